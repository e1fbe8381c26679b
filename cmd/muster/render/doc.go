// Package render prints for people and for machines: tables, JSON, findings,
// test results, and the traces of explanations. It asks nobody and judges
// nothing.
package render
