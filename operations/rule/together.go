package rule

import (
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/errors"
)

func itoa(n int) string { return strconv.Itoa(n) }

// together notes the values of an object that are each allowed but not with one
// another: the hidden fields of the schema that say because of what.
func (w *walker) together(want cue.Value, n *node, above []*node, path string, clean bool) {
	if len(n.fields) == 0 {
		return
	}
	whole := want.Unify(w.validator.value(n, w.bad))
	it, err := whole.Fields(cue.Hidden(true))
	for err == nil && it.Next() {
		because := wordsOf(it.Value(), "because")
		if because == "" || wordAt(it.Value(), "because", 1) == "whole" && !clean {
			continue
		}
		group := it.Selector().String()
		seen := map[string]bool{}
		for _, one := range errors.Errors(it.Value().Validate()) {
			labels := after(one.Path(), group)
			key := strings.Join(labels, ".")
			if labels == nil || seen[key] {
				continue
			}
			seen[key] = true
			w.noteTogether(labels, because, n, above, path)
		}
	}
}

// after gives the labels behind a hidden field, nil where they do not lead there.
func after(path []string, group string) []string {
	for i := len(path) - 1; i >= 0; i-- {
		if name := path[i]; name == group || strings.HasPrefix(name, group+"_") {
			labels := path[i+1:]
			for j, label := range labels {
				if strings.HasPrefix(label, "#") {
					return labels[:j]
				}
			}
			return labels
		}
	}
	return nil
}

// noteTogether follows labels down to the value that is told, as far as the
// document has it; a label that leads nowhere is what the words call the label.
func (w *walker) noteTogether(labels []string, because string, n *node, above []*node, path string) {
	at, label := n, ""
	for _, name := range labels {
		name = strings.Trim(name, `"`)
		label = name
		if i, err := strconv.Atoi(name); err == nil && at.kind == aList && i < len(at.items) {
			at, path = at.items[i], element(path, i)
		} else if next := at.field(name); next != nil {
			at, path = next, under(path, name)
		} else {
			if at.kind == aMap {
				path = under(path, name)
			}
			break
		}
		if at.kind == aMap {
			above = append(above[:len(above):len(above)], at)
		}
	}
	w.note(at, path, w.filled(because, above, label))
	if at.kind != aMap && at.kind != aList {
		w.bad[at] = true
	}
}
