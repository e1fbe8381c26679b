// Package dev is what `muster dev` adds to a server: a data directory with a
// PostgreSQL and a Temporal of its own, the shipped policies written out to be edited and
// watched, first sites from a folder of recordings or from a simulated fleet that
// it runs as a process of its own, a token for the commands.
// It is for one machine and one person; package server does the work.
package dev
