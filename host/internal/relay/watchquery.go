package relay

import (
	"strconv"
	"strings"
	"time"
)

// watchQuery is the query of a watch as far as it says where the watch begins and ends.
type watchQuery struct {
	// plain reports whether there is one way to read it. Else nothing is known.
	plain bool
	// others are the parameters that are the same wherever the watch begins.
	others string
	// revision is where it begins; 0 is with the objects that there are, or now.
	revision uint64
	// initial reports whether it begins with the objects that there are.
	initial bool
	// bookmarks reports whether the client wants them.
	bookmarks bool
	// timeout is the client's; 0 without one.
	timeout time.Duration
}

// The parameters of metav1.ListOptions that a watchQuery knows.
const (
	queryRevision  = "resourceVersion"
	queryMatch     = "resourceVersionMatch"
	queryInitial   = "sendInitialEvents"
	queryBookmarks = "allowWatchBookmarks"
	queryTimeout   = "timeoutSeconds"
)

// parseWatchQuery reads a query. In one that is not plain, a parameter comes twice, or a name or a value of those that
// count is written in a way in which Kubernetes' clients do not write it.
func parseWatchQuery(raw string) watchQuery {
	q, known, others := watchQuery{plain: true}, map[string]string{}, make([]string, 0, 4)
	for parameter := range strings.SplitSeq(raw, "&") {
		name, value, _ := strings.Cut(parameter, "=")
		if strings.ContainsFunc(name, func(c rune) bool { return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') }) {
			return watchQuery{}
		}
		switch name {
		case "":
		case queryRevision, queryMatch, queryInitial, queryBookmarks, queryTimeout:
			if _, again := known[name]; again || value == "" {
				return watchQuery{}
			}
			known[name] = value
		default:
			others = append(others, parameter)
		}
	}
	q.others = strings.Join(others, "&")
	var ok [4]bool
	var seconds uint64
	q.revision, ok[0] = plainNumber(known[queryRevision])
	seconds, ok[1] = plainNumber(known[queryTimeout])
	q.bookmarks, ok[2] = plainBool(known[queryBookmarks])
	q.initial, ok[3] = plainBool(known[queryInitial])
	if ok != [4]bool{true, true, true, true} || seconds > maxSeconds {
		return watchQuery{}
	}
	q.timeout = time.Duration(seconds) * time.Second
	if known[queryInitial] == "" && q.revision == 0 {
		q.initial = true
	}
	return q
}

// maxSeconds is more than any watch lasts.
const maxSeconds = 1 << 32

// plainNumber reads a decimal number as it is printed; an empty one is 0.
func plainNumber(s string) (n uint64, ok bool) {
	if s == "" {
		return 0, true
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil && strconv.FormatUint(n, 10) == s
}

func plainBool(s string) (b, ok bool) {
	switch s {
	case "true", "1":
		return true, true
	case "", "false", "0":
		return false, true
	}
	return false, false
}

// after returns the query for what follows a revision, of a watch that has lasted for some time.
func (q *watchQuery) after(revision uint64, lasted time.Duration) string {
	out := []byte(q.others)
	add := func(name, value string) {
		if len(out) > 0 {
			out = append(out, '&')
		}
		out = append(append(append(out, name...), '='), value...)
	}
	add(queryRevision, strconv.FormatUint(revision, 10))
	if q.bookmarks {
		add(queryBookmarks, "true")
	}
	if q.timeout > 0 {
		left := max((q.timeout-lasted+time.Second-1)/time.Second, 1)
		add(queryTimeout, strconv.FormatInt(int64(left), 10))
	}
	return string(out)
}
