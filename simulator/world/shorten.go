package world

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// shorten writes the journal anew when it has grown long: every row that it ever
// changed as it is now, and every effect.
func (w *World) shorten(dir string) error {
	moved := w.moved
	w.moved = nil
	if size, err := w.journal.size(); err != nil || size < w.options.Long {
		return err
	}
	var err error
	w.journal, err = w.journal.shorten(dir, func(yield func(*entry) error) error {
		for effects := range slices.Chunk(w.kept, lineRows) {
			if err := yield(&entry{Effects: effects}); err != nil {
				return err
			}
		}
		for rows := range slices.Chunk(slices.SortedFunc(maps.Keys(moved), compareImages), lineRows) {
			e := entry{}
			for _, at := range rows {
				body, err := w.tables[at.table].encode(at.key)
				if err != nil {
					return err
				}
				e.Rows = append(e.Rows, image{Table: at.table, Key: at.key, Row: body})
			}
			if err := yield(&e); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// at names a row.
type at struct{ table, key string }

func compareImages(a, b at) int {
	return cmp.Or(cmp.Compare(a.table, b.table), cmp.Compare(a.key, b.key))
}

// What a journal is shortened at, when it is opened, and how many rows and
// effects one line of a shortened one holds.
const (
	shortenAt = 32 << 20
	lineRows  = 1000
)

// shorten replaces a journal that has grown long by one that leads to the same
// rows and effects. Whatever ends this, the file is the one or the other.
func (j *journal) shorten(dir string, entries func(yield func(*entry) error) error) (*journal, error) {
	path := filepath.Join(dir, journalName)
	file, err := os.OpenFile(path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return j, err
	}
	short := &journal{file: file}
	buffer := bufio.NewWriterSize(file, 1<<20)
	err = entries(func(e *entry) error {
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		_, err = buffer.Write(append(line, '\n'))
		return err
	})
	if err == nil {
		err = buffer.Flush()
	}
	if err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return j, errors.Join(err, file.Close())
	}
	return short, j.close()
}

func (j *journal) size() (int64, error) {
	info, err := j.file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
