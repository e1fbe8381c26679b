// Package config reads a server's configuration: one CUE, YAML or JSON file
// checked by #Config of schema/config.cue, over it the environment, over that
// the command line. It says of each value where it came from, and shows no
// secret. It opens and starts nothing: package server does by what it says.
package config
