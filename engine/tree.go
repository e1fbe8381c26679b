package engine

import (
	"io/fs"
	"maps"
	"slices"
)

// Files reads the cue.mod/, schema/ and policies/ of a tree, bounded as Load
// is, by slash-separated path.
func Files(fsys fs.FS) (map[string][]byte, error) {
	src, err := readSource(fsys)
	if err != nil {
		return nil, err
	}
	return src.files, nil
}

// Tree makes files an fs.FS that Load reads.
func Tree(files map[string][]byte) fs.FS {
	return &source{files: files, paths: slices.Sorted(maps.Keys(files))}
}
