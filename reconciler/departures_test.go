package reconciler

import (
	"maps"
	"slices"
	"sync"
)

// departures counts what has left either site and may not be settled yet: until
// both have been listed twice since. More of them at once than a site may miss
// would rightly have its listing withheld.
type departures struct {
	mu           sync.Mutex
	begun, ended map[int64]int   // listings, by site
	left         []map[int64]int // for each departure the listings that had begun
}

func (d *departures) listing(site int64, list func()) {
	d.mu.Lock()
	d.begun[site]++
	d.mu.Unlock()
	list()
	d.mu.Lock()
	d.ended[site]++
	d.mu.Unlock()
}

// leave takes one departure, unless most of them are not settled.
func (d *departures) leave(most int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = slices.DeleteFunc(d.left, func(begun map[int64]int) bool {
		for site, n := range begun {
			if d.ended[site] < n+2 {
				return false
			}
		}
		return true
	})
	if len(d.left) >= most {
		return false
	}
	d.left = append(d.left, maps.Clone(d.begun))
	return true
}
