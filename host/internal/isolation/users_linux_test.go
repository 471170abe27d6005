package isolation

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/catena-dev/catena/host/internal/guard"
)

func openUsers(t *testing.T, dir string) *Users {
	t.Helper()
	u, err := OpenUsers(dir)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func userOf(t *testing.T, u *Users, stage string) int {
	t.Helper()
	uid, err := u.Of(stage)
	if err != nil {
		t.Fatal(err)
	}
	if !guard.IsStageID(uid) {
		t.Errorf("stage %q has user %d, which is not one for stages", stage, uid)
	}
	return uid
}

// Of some hundred stages, two or more have the same hash: no two have the same user.
func TestUsersAreNotShared(t *testing.T) {
	t.Parallel()
	u := openUsers(t, t.TempDir())
	group, err := u.group()
	if err != nil {
		t.Fatal(err)
	}
	stages := map[int]string{group: "the group"}
	for i := range 300 {
		stage := fmt.Sprintf("stage-%d", i)
		uid := userOf(t, u, stage)
		if other, ok := stages[uid]; ok {
			t.Errorf("%s and %s have user %d", other, stage, uid)
		}
		stages[uid] = stage
	}
}

// A stage keeps its user, whichever stages there are when the host is started again.
func TestUsersAreRemembered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	before := openUsers(t, dir)
	first, second := userOf(t, before, "first"), userOf(t, before, "second")
	after := openUsers(t, dir)
	for stage, want := range map[string]int{"second": second, "first": first} {
		if got := userOf(t, after, stage); got != want {
			t.Errorf("%s has user %d, and had %d", stage, got, want)
		}
		if after.Stage(want) == "" {
			t.Errorf("no stage has user %d", want)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, usersFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
}

// A file that gives two stages one user, or a stage that of somebody else, is not used.
func TestUsersOfABadFile(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no JSON":     `{"users"`,
		"root":        `{"users": {"hello": 0}}`,
		"ordinary":    `{"users": {"hello": 1000}}`,
		"twice":       `{"users": {"hello": 61200, "other": 61200}}`,
		"as group":    `{"users": {"hello": 61200}, "group": 61200}`,
		"root, group": `{"users": {}, "group": -1}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, usersFile)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := OpenUsers(dir); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "without the file") {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// Without the file, which cannot be written, no stage gets a user that the next start would not know.
func TestUsersThatCannotBeRemembered(t *testing.T) {
	t.Parallel()
	u := openUsers(t, filepath.Join(t.TempDir(), "missing"))
	if uid, err := u.Of("hello"); err == nil || u.Stage(uid) != "" {
		t.Errorf("stage hello has user %d, %v", uid, err)
	}
}
