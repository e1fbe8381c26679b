package main

import (
	"context"
	"log/slog"
	"os"

	"go.temporal.io/server/common/log/tag"
)

// logger takes the server's log lines.
type logger struct{ to *slog.Logger }

func (l logger) write(level slog.Level, message string, tags []tag.Tag) {
	ctx := context.Background()
	if !l.to.Enabled(ctx, level) {
		return
	}
	attributes := make([]slog.Attr, len(tags))
	for i, t := range tags {
		attributes[i] = slog.Any(t.Key(), t.Value())
	}
	l.to.LogAttrs(ctx, level, message, attributes...)
}

func (l logger) Debug(message string, tags ...tag.Tag)  { l.write(slog.LevelDebug, message, tags) }
func (l logger) Info(message string, tags ...tag.Tag)   { l.write(slog.LevelInfo, message, tags) }
func (l logger) Warn(message string, tags ...tag.Tag)   { l.write(slog.LevelWarn, message, tags) }
func (l logger) Error(message string, tags ...tag.Tag)  { l.write(slog.LevelError, message, tags) }
func (l logger) DPanic(message string, tags ...tag.Tag) { l.write(slog.LevelError, message, tags) }

func (l logger) Panic(message string, tags ...tag.Tag) {
	l.write(slog.LevelError, message, tags)
	panic(message)
}

// Fatal ends the process, as the server expects: its parent starts it again.
func (l logger) Fatal(message string, tags ...tag.Tag) {
	l.write(slog.LevelError, message, tags)
	os.Exit(exitFailed)
}
