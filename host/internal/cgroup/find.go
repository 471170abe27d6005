package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
)

// errNoMount is why there is no directory of a cgroup.
var errNoMount = errors.New("no file system of cgroup v2 is mounted here that has the cgroup of this process")

// find returns the directory of the process to which /proc/PID/cgroup and /proc/PID/mountinfo
// belong.
func find(cgroups, mountinfo []byte) (string, error) {
	name, ok := unified(cgroups)
	if !ok {
		return "", errors.New("this machine has no cgroup v2")
	}
	for line := range bytes.Lines(mountinfo) {
		root, point, ok := parseMount(string(line))
		if !ok {
			continue
		}
		if rest, ok := below(name, root); ok {
			return path.Join(point, rest), nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, errNoMount)
}

// unified returns the name of the cgroup in the hierarchy of cgroup v2.
func unified(cgroups []byte) (string, bool) {
	for line := range bytes.Lines(cgroups) {
		if name, ok := strings.CutPrefix(string(line), "0::"); ok {
			return strings.TrimSuffix(name, "\n"), true
		}
	}
	return "", false
}

// parseMount returns the root and the mount point of a line that mounts cgroup v2.
func parseMount(line string) (root, point string, ok bool) {
	mount, kind, _ := strings.Cut(line, " - ")
	if fs, _, _ := strings.Cut(kind, " "); fs != "cgroup2" {
		return "", "", false
	}
	fields := strings.Fields(mount)
	if len(fields) < 5 {
		return "", "", false
	}
	return unescape(fields[3]), unescape(fields[4]), true
}

// below returns the path of a cgroup relative to the root of a mount. A name that leaves the
// namespace begins with /.. and is below no mount.
func below(name, root string) (string, bool) {
	if name == "/.." || strings.HasPrefix(name, "/../") || !path.IsAbs(name) {
		return "", false
	}
	if root == "/" || name == root {
		return strings.TrimPrefix(name, root), true
	}
	return strings.CutPrefix(name, root+"/")
}

// unescape replaces the escapes of /proc, a backslash and three octal digits.
func unescape(s string) string {
	for from := 0; ; {
		i := strings.IndexByte(s[from:], '\\')
		if i < 0 {
			return s
		}
		i += from
		if from = i + 1; len(s) < i+4 {
			return s
		}
		if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
			s = s[:i] + string([]byte{byte(c)}) + s[i+4:]
		}
	}
}
