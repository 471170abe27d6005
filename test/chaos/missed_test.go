package chaos

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

// change is an acknowledged write. The response to a deletion does not have its version,
// which lies between those of the writes of the same client before and after it.
type change struct {
	name, value string
	version     uint64    // 0 of a deletion
	uid         types.UID // of the object: a late request may create one of the same name after the deletion
}

// missed returns an error for each of the changes of one client, in their order, that the
// informer has received neither as an event nor in a list that replaces it. Stored has the
// objects at the end.
func (s *stream) missed(changes []change, stored map[string]unstructured.Unstructured) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	var last change // before a deletion, the last write of the object
	for i, c := range changes {
		var err error
		if c.value == gone {
			err = s.missedDeletion(last, next(changes[i:]))
		} else {
			o, there := stored[c.name]
			err, last = s.missedWrite(c, there && o.GetUID() == c.uid), c
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return first(errs)
}

// next returns the version of the first write of these, the first of which is a deletion.
func next(changes []change) uint64 {
	for _, c := range changes {
		if c.version != 0 {
			return c.version
		}
	}
	return math.MaxUint64
}

// missedWrite accepts an event with that version, or a list if the write lies between the
// position before the list and the list's version. An object that is not deleted must be in
// that list.
func (s *stream) missedWrite(c change, stays bool) error {
	if e, ok := s.seen[c.version]; ok {
		if e != (sighting{c.name, c.value}) {
			return fmt.Errorf("the event of version %d is %v, the write was %v", c.version, e, c)
		}
		return nil
	}
	for _, l := range s.lists {
		if l.after < c.version && c.version <= l.at {
			if got := l.items[c.name].version; got < c.version && (got != 0 || stays) {
				return fmt.Errorf("the list of version %d has %s at version %d, it was written at %d", l.at, c.name, got, c.version)
			}
			s.listedOnly++
			return nil
		}
	}
	return fmt.Errorf("the event of %s with value %q at version %d is missing", c.name, c.value, c.version)
}

// missedDeletion is the same for a deletion at an unknown version between the object's last write and another one.
// A list may have a twin of the object, which a late request has created.
func (s *stream) missedDeletion(last change, before uint64) error {
	if s.deleted[last.name] > last.version {
		return nil
	}
	for _, l := range s.lists {
		if l.items[last.name].uid != last.uid && l.after < before && l.at > last.version {
			return nil
		}
	}
	return fmt.Errorf("the event of the deletion of %s after version %d is missing", last.name, last.version)
}

// first joins the first few errors.
func first(errs []error) error {
	const few = 5
	if len(errs) > few {
		errs = append(errs[:few:few], fmt.Errorf("and %d more", len(errs)-few))
	}
	return errors.Join(errs...)
}

func (s *stream) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%d events and, of %d writes, one of %d lists instead", len(s.seen)+len(s.deleted), s.listedOnly, len(s.lists))
}

// The recorder detects each kind of omission.
func TestStreamOfAnInformer(t *testing.T) {
	writes := []change{{"a", "0", 3, "a"}, {"a", "1", 5, "a"}, {"a", gone, 0, ""}, {"b", "0", 9, "b"}}
	stored := map[string]unstructured.Unstructured{}
	for name, uid := range map[string]types.UID{"a": "another", "b": "b"} {
		o := newConfigMap(name, "0")
		o.SetUID(uid)
		stored[name] = *o
	}
	for name, tc := range map[string]struct {
		sent string // per word: list or watch at a version, or an event
		want string // in the error; "" is none
	}{
		"all events":              {"list@1 watch@1 +a0@3 +a1@5 -a@7 +b0@9", ""},
		"all, over two watches":   {"list@1 watch@1 +a0@3 watch@3 +a1@5 -a@7 +b0@9", ""},
		"all, some twice":         {"list@1 watch@1 +a0@3 +a1@5 watch@3 +a1@5 -a@7 +b0@9", ""},
		"relist after a gap":      {"list@1 watch@1 +a0@3 list@7 watch@7 +b0@9", ""},
		"relist after deletion":   {"list@1 watch@1 list@8 watch@8 +b0@9", ""},
		"relist by watching":      {"list@1 watch@1 +a0@3 initial bookmark@8 +b0@9", ""},
		"initial events":          {"initial +a1@5 bookmark@6 -a@7 +b0@9", ""},
		"bookmarks":               {"list@1 watch@1 bookmark@2 +a0@3 bookmark@3 +a1@5 -a@7 +b0@9", ""},
		"an event left out":       {"list@1 watch@1 +a0@3 -a@7 +b0@9", `a with value "1" at version 5 is missing`},
		"a deletion left out":     {"list@1 watch@1 +a0@3 +a1@5 +b0@9", "deletion of a after version 5 is missing"},
		"the last left out":       {"list@1 watch@1 +a0@3 +a1@5 -a@7", `b with value "0" at version 9 is missing`},
		"left out between":        {"list@1 watch@1 +a0@3 watch@6 -a@7 +b0@9", `a with value "1" at version 5 is missing`},
		"left out before a list":  {"list@1 watch@1 +a0@3 bookmark@5 list@7 watch@7 +b0@9", `a with value "1" at version 5 is missing`},
		"a list that is too old":  {"list@1 watch@1 +a0@3 +a1@5 -a@7 list@6 watch@6 -a@7 +b0@9", "a list of version 6 after events up to 7"},
		"a list that lacks one":   {"list@1 watch@1 +a0@3 +a1@5 -a@7 list@9", "the list of version 9 has b at version 0"},
		"a deleted one in a list": {"list@1 watch@1 +a0@3 +a1@5 initial +a1@5 bookmark@7 +b0@9", "deletion of a after version 5 is missing"},
		"a twin in a list":        {"list@1 watch@1 +a0@3 +a1@5 initial twin:a1@8 bookmark@8 +b0@9", ""},
		"a twin's event alone":    {"list@1 watch@1 +a0@3 +a1@5 twin:a1@8 +b0@9", "deletion of a after version 5 is missing"},
		"out of order":            {"list@1 watch@1 +a1@5 +a0@3 -a@7 +b0@9", "ADDED of a at version 3 has come after version 5"},
		"twice in one watch":      {"list@1 watch@1 +a0@3 +a0@3 +a1@5 -a@7 +b0@9", "ADDED of a at version 3 has come after version 3"},
		"another value":           {"list@1 watch@1 +a0@3 +a2@5 -a@7 +b0@9", "the event of version 5 is {a 2}"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStream()
			s.play(tc.sent)
			err := errors.Join(append(s.problems, s.missed(writes, stored))...)
			if tc.want == "" && err != nil {
				t.Errorf("got %v", err)
			}
			if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// play sends the lists and events that the words describe.
func (s *stream) play(words string) {
	listing, number := false, 0
	for _, word := range strings.Fields(words) {
		what, version, _ := strings.Cut(word, "@")
		o := &unstructured.Unstructured{Object: map[string]any{}}
		o.SetResourceVersion(version)
		e := watch.Event{Type: watch.Added, Object: o}
		switch {
		case what == "list":
			list := &unstructured.UnstructuredList{Object: map[string]any{}}
			list.SetResourceVersion(version)
			s.listed(true, list)
			continue
		case what == "watch":
			listing, number = s.began(metav1.ListOptions{ResourceVersion: version})
			continue
		case what == "initial":
			listing, number = s.began(metav1.ListOptions{SendInitialEvents: ptr.To(true)})
			continue
		case what == "bookmark":
			e.Type = watch.Bookmark
			if listing {
				o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
			}
		case what[0] == '-':
			e.Type = watch.Deleted
			o.SetName(what[1:])
		default:
			name, value := what[len(what)-2:len(what)-1], what[len(what)-1:]
			o = newConfigMap(name, value)
			o.SetUID(types.UID(strings.TrimPrefix(what[:len(what)-1], "+")))
			o.SetResourceVersion(version)
			e.Object = o
		}
		listing = s.event(number, listing, e)
	}
}
