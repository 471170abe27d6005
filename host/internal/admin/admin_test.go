package admin

import (
	"testing"

	"github.com/catena-dev/catena/host/internal/supervisor"
)

func TestReloadInWords(t *testing.T) {
	for want, r := range map[string]Reload{
		"applied, nothing has changed":              {},
		"not applied: because":                      {Error: "because"},
		"applied: added a, b; removed c; swapped d": {Applied: supervisor.Applied{Added: []string{"a", "b"}, Removed: []string{"c"}, Swapped: []string{"d"}}},
		"applied, nothing has changed; only a restart of the host applies the changed files of apiserver.token-auth-file": {Stale: []string{"apiserver.token-auth-file"}},
		"applied: set log.level; reordered": {Settings: []string{"log.level"}, Applied: supervisor.Applied{Reordered: true}},
	} {
		if got := r.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
