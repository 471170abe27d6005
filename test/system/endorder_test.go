package system

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// The parts of a server are closed in the reverse of the order in which they are opened: commands end before stages, and
// stages before what they use.
func TestEndInOrder(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.start(t, s.args("--set", "log.level=debug")...)
	h.awaitReady(t)
	h.stop(t)
	log, err := os.ReadFile(h.Log)
	if err != nil {
		t.Fatal(err)
	}
	var closed []string
	for _, m := range regexp.MustCompile(`part of the server closed: part="?([a-z ]*[a-z])"? took=`).FindAllStringSubmatch(string(log), -1) {
		closed = append(closed, m[1])
	}
	want := []string{
		"admin socket", "trials", "stages", "leaders", "relay", "groups of processes", "processes left behind",
		"keys of stages", "sockets of stages", "claims file", "front", "store", "runtime directory", "data directory",
	}
	if !slices.Equal(closed, want) {
		t.Errorf("closed are\n%q, want\n%q", closed, want)
	}
}
