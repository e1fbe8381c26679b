// Package muster holds the shipped policy bundle: the schema that every policy
// satisfies and the policies that a new installation starts with. It judges
// nothing; package engine loads the files, `muster policy init` writes them out.
package muster

import (
	"embed"
	"io/fs"
)

//go:embed cue.mod/module.cue schema/*.cue policies
var bundle embed.FS

// Bundle gives the shipped bundle as a read-only tree: cue.mod, schema and
// policies, tests of the policies included.
func Bundle() fs.FS { return bundle }
