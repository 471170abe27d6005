package isolation

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/catena-dev/catena/host/internal/guard"
)

// usersFile has, in a data directory, which user each stage has.
const usersFile = "users.json"

// traversal stands, in place of a stage, for the group that may pass through the host's directories.
const traversal = ""

// Users gives each stage of a host a user of its own, and remembers which. It is for hosts that run as root.
type Users struct {
	path string // of the file; "" if nothing is remembered
	seed string

	mu      sync.Mutex
	byStage map[string]int

	leaving sync.Mutex
	live    map[int]int // of users, to how many processes they have: see Launcher.Begin
}

// usersDoc is what the file has.
type usersDoc struct {
	Users map[string]int `json:"users"`
	// Group may pass through directories of the host; 0 if no group may.
	Group int `json:"group,omitempty"`
}

// OpenUsers reads the users that stages of a data directory have been given. Without a data directory,
// users are given for the life of this process.
func OpenUsers(dataDir string) (*Users, error) {
	u := &Users{byStage: map[string]int{}}
	if dataDir == "" {
		u.seed = strconv.Itoa(os.Getpid())
		return u, nil
	}
	u.seed, u.path = dataDir, filepath.Join(dataDir, usersFile)
	text, err := os.ReadFile(u.path)
	if errors.Is(err, fs.ErrNotExist) {
		return u, nil
	}
	var doc usersDoc
	if err == nil {
		err = json.Unmarshal(text, &doc)
	}
	if doc.Users == nil {
		doc.Users = map[string]int{}
	}
	if err != nil {
		return nil, fmt.Errorf("users of the stages: %s: %w; without the file, stages are given users anew", u.path, err)
	}
	owners := map[int]string{}
	if doc.Group != 0 {
		doc.Users[traversal] = doc.Group
	}
	for stage, uid := range doc.Users {
		other, taken := owners[uid]
		if taken || !guard.IsStageID(uid) {
			return nil, fmt.Errorf("users of the stages: %s: user %d of stage %q is out of range or also that of %q; without the file, stages are given users anew", u.path, uid, stage, other)
		}
		owners[uid] = stage
		u.byStage[stage] = uid
	}
	return u, nil
}

// group returns the group that may pass through the host's directories.
func (u *Users) group() (int, error) { return u.Of(traversal) }

// Of returns the user of a stage, which is written to the file before it is returned for the first time.
func (u *Users) Of(stage string) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if uid, ok := u.byStage[stage]; ok {
		return uid, nil
	}
	uid, err := u.free(stage)
	if err != nil {
		return 0, err
	}
	u.byStage[stage] = uid
	if err := u.write(); err != nil {
		delete(u.byStage, stage)
		return 0, fmt.Errorf("users of the stages: %w", err)
	}
	return uid, nil
}

// Stage returns the stage that has that user; "" if none has.
func (u *Users) Stage(uid int) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	for stage, of := range u.byStage {
		if of == uid && stage != traversal {
			return stage
		}
	}
	return ""
}

// free returns a user that no stage of this host has, and, as far as this machine tells, no other user.
func (u *Users) free(stage string) (int, error) {
	taken, err := running()
	if err != nil {
		return 0, err
	}
	for _, uid := range u.byStage {
		taken[uid] = true
	}
	h := fnv.New32a()
	_, _ = io.WriteString(h, stage+"\x00"+u.seed)
	const all = guard.LastStageID - guard.FirstStageID + 1
	for i := range all {
		uid := guard.FirstStageID + (int(h.Sum32()%all)+i)%all
		if !taken[uid] && !reserved(uid) {
			return uid, nil
		}
	}
	return 0, fmt.Errorf("no user from %d to %d is free for stage %q", guard.FirstStageID, guard.LastStageID, stage)
}

// reserved reports whether an account or a service of systemd has a user.
func reserved(uid int) bool {
	if _, err := os.Lstat("/run/systemd/dynamic-uid/" + strconv.Itoa(uid)); err == nil {
		return true
	}
	_, err := user.LookupId(strconv.Itoa(uid))
	return err == nil
}

// running are the users of the processes of this machine.
func running() (map[int]bool, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	all := map[int]bool{}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		if uid, err := ownerOf("/proc/" + e.Name()); err == nil {
			all[uid] = true
		}
	}
	return all, nil
}

// write replaces the file in one step.
func (u *Users) write() error {
	if u.path == "" {
		return nil
	}
	doc := usersDoc{Users: maps.Clone(u.byStage), Group: u.byStage[traversal]}
	delete(doc.Users, traversal)
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return err
	}
	return guard.WriteFile(u.path, func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}
