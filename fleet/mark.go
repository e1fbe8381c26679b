package fleet

import "strings"

// markPrefix begins what muster writes beside what it sets at a source:
// muster:JOB. Only what carries a mark of ours is ever taken away again.
const markPrefix = "muster:"

// MarkIn gives the first mark of ours in a text in which others may have written
// too, "" for none.
func MarkIn(text string) string {
	for _, word := range strings.Fields(text) {
		if len(word) > len(markPrefix) && strings.HasPrefix(word, markPrefix) {
			return word
		}
	}
	return ""
}
