package fleet

import "fmt"

// Reclassified is a device whose inventory gives it another class, by which it
// would leave a writer's scope.
type Reclassified struct {
	Joinable
	Role string // that the inventory says: of the record, not of the policy
}

// ClassKey names a change of class: a person confirms the devices and what they
// become.
func (r *Reclassified) ClassKey() string { return "class:" + r.MissingKey() + "=" + r.Role }

// ClassHash names a set of changes whatever its order.
func ClassHash(held []Reclassified) string {
	keys := make([]string, len(held))
	for i := range held {
		keys[i] = held[i].ClassKey()
	}
	return HashKeys(keys)
}

// JudgeClasses says whether a sweep may take devices out of scopes by their
// class: a share of the site at once needs a person's word for exactly this
// set. A role that somebody renamed looks like the loss of a fleet. devices is
// how many the site has. alert is "" when it may.
func JudgeClasses(held []Reclassified, devices int, share float64, confirmed map[string]bool) (hash, alert string) {
	hash = ClassHash(held)
	if float64(len(held)) <= share*float64(devices) || confirmed[hash] {
		return hash, ""
	}
	return hash, fmt.Sprintf("%d of the %d devices would leave a scope by their new class: they keep the old one; if the change is meant, confirm it by the hash %s",
		len(held), devices, hash)
}
