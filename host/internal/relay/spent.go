package relay

import "github.com/catena-dev/catena/host/internal/relay/h1"

// maxSpent is how many spent connections an endpoint has.
const maxSpent = 8

// spent are connections that take no other request, because the stage may have left in them a body that it was sent,
// and take that for a request: its response would be another client's. They stay open until others take their place, to
// find that out. The zero value has none.
type spent struct {
	conns [maxSpent]*h1.Conn // the longest in it is at next
	next  int
}

// add takes a connection, and returns the one whose place that is, or nil.
func (s *spent) add(c *h1.Conn) (before *h1.Conn) {
	before, s.conns[s.next] = s.conns[s.next], c
	s.next = (s.next + 1) % maxSpent
	return before
}

// spend ends a request after which the connection takes no other.
func (e *endpoint) spend(c *h1.Conn) {
	e.mu.Lock()
	if !e.closed {
		c = e.spent.add(c)
	}
	e.mu.Unlock()
	e.closeSpent(c)
	e.put(nil, false)
}

func (e *endpoint) closeSpent(c *h1.Conn) {
	if c == nil {
		return
	}
	if c.Strayed() {
		e.strayed()
	}
	c.Close()
}

// strayed reports that the stage has sent more than a response.
func (e *endpoint) strayed() {
	if e.limited != nil {
		e.limited(e.stage, LimitStray, "")
	}
}
