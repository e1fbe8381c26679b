package slurm

import (
	"fmt"
	"strconv"
	"strings"
)

// maxHosts bounds what one hostlist may name.
const maxHosts = 20_000

// expand gives the names of a hostlist such as n[01-03,7],m5, as SLURM takes one
// wherever it takes a node's name.
func expand(list string) ([]string, error) {
	var names []string
	for rest := list; rest != ""; {
		var part string
		part, rest = cutHost(rest)
		open := strings.IndexByte(part, '[')
		if open < 0 {
			names = append(names, part)
			continue
		}
		if !strings.HasSuffix(part, "]") {
			return nil, fmt.Errorf("%q is no hostlist", list)
		}
		for _, span := range strings.Split(part[open+1:len(part)-1], ",") {
			more, err := expandSpan(part[:open], span)
			if err != nil || len(names)+len(more) > maxHosts {
				return nil, fmt.Errorf("%q is no hostlist", list)
			}
			names = append(names, more...)
		}
	}
	return names, nil
}

// cutHost gives the first part of a list, up to a comma outside brackets.
func cutHost(list string) (part, rest string) {
	depth := 0
	for i := range len(list) {
		switch list[i] {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				return list[:i], list[i+1:]
			}
		}
	}
	return list, ""
}

func expandSpan(prefix, span string) ([]string, error) {
	from, to, ranged := strings.Cut(span, "-")
	if !ranged {
		return []string{prefix + span}, nil
	}
	first, err := strconv.Atoi(from)
	if err != nil {
		return nil, err
	}
	last, err := strconv.Atoi(to)
	if err != nil {
		return nil, err
	}
	if last < first || last-first >= maxHosts {
		return nil, fmt.Errorf("%s to %s is no span", from, to)
	}
	var names []string
	for i := first; i <= last; i++ {
		names = append(names, fmt.Sprintf("%s%0*d", prefix, len(from), i))
	}
	return names, nil
}
