package process

import (
	"os"
	"strings"
	"testing"
	"time"
)

// The readers of an ended process's output end when they have read it, though another process still holds its pipes: the end
// of the process is not reported late because of that.
func TestReadersDoNotWaitForOtherHolders(t *testing.T) {
	t.Parallel()
	l, out := newTestLogs()
	s := &streams{}
	var held []*os.File
	for _, read := range []**os.File{&s.stdout, &s.stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		*read, held = r, append(held, w)
	}
	h := newHandshake(l.line)
	h.seen = true // its line has come before
	s.read(h, l, func(err error) { t.Error(err) })
	for _, w := range held {
		if _, err := w.WriteString(strings.Repeat("the last words\n", 10)); err != nil {
			t.Fatal(err)
		}
	}
	s.interrupt()
	ended := make(chan struct{})
	go func() {
		s.readers.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("the readers wait for who holds the pipes")
	}
	if n := strings.Count(out.String(), "the last words"); n != 20 {
		t.Errorf("%d lines of 20: %s", n, out)
	}
}
