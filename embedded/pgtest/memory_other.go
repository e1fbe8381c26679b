//go:build !linux

package pgtest

func memoryParent() string { return "" }
