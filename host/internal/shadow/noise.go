package shadow

import (
	"strings"
	"sync"
)

// noise are the fields in which two responses of one generation have differed, by what was asked.
type noise struct {
	mu sync.Mutex
	// seen is how often each was found to, by the label of requests and by path. It is noise from enoughNoise on.
	seen map[string]map[string]int
}

// enoughNoise is how often a field has to differ if that could also come from a change in between.
const enoughNoise = 3

// add takes note that a field has differed, surely of itself or not, and reports whether it is noise from now on.
func (n *noise) add(label, path string, surely bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.seen[label][path]
	if before >= enoughNoise {
		return false
	}
	if n.seen == nil {
		n.seen = map[string]map[string]int{}
	}
	if n.seen[label] == nil {
		n.seen[label] = map[string]int{}
	}
	n.seen[label][path]++
	if surely {
		n.seen[label][path] = enoughNoise
	}
	return n.seen[label][path] >= enoughNoise
}

// covers reports whether a field, or one around it, is noise.
func (n *noise) covers(label, path string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for field, times := range n.seen[label] {
		if times >= enoughNoise && around(field, path) {
			return true
		}
	}
	return false
}

// around reports whether a path is that of a field, or of one inside of it.
func around(field, path string) bool {
	rest, ok := strings.CutPrefix(path, field)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

func (n *noise) without(label string, all []difference) []difference {
	var rest []difference
	for _, d := range all {
		if !n.covers(label, d.path) {
			rest = append(rest, d)
		}
	}
	return rest
}

// learn takes what two responses of the old generation differ in for noise, and drops what was found there before.
func (s *Shadow) learn(label string, all []difference, surely bool) {
	for _, d := range all {
		if !s.noise.add(label, d.path, surely) {
			continue
		}
		s.mu.Lock()
		for key := range s.groups {
			if key.label == label && s.noise.covers(label, key.path) {
				delete(s.groups, key)
			}
		}
		s.report.Noise = append(s.report.Noise, label+": "+d.path)
		s.mu.Unlock()
	}
}
