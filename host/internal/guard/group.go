package guard

import (
	"bufio"
	"os"
	"os/user"
	"strconv"
	"strings"
)

// groupFile lists the members of groups.
const groupFile = "/etc/group"

// isOwnGroup reports whether a group is that of one user alone: the user's primary group, of the
// same name, which no other user is a member of. Distributions make one for each user, and let
// the user's files be writable for it. A group that is not known is not.
func isOwnGroup(uid, gid int) bool {
	if uid == 0 && gid == 0 {
		return !hasOtherMembers(groupFile, gid, "root")
	}
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil || u.Gid != strconv.Itoa(gid) {
		return false
	}
	g, err := user.LookupGroupId(u.Gid)
	return err == nil && g.Name == u.Username && !hasOtherMembers(groupFile, gid, u.Username)
}

// hasOtherMembers reports whether the file of groups gives a group a member but that one. Groups
// that only a directory service knows are not in it.
func hasOtherMembers(file string, gid int, name string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) < 4 || fields[2] != strconv.Itoa(gid) {
			continue
		}
		for member := range strings.SplitSeq(fields[3], ",") {
			if member = strings.TrimSpace(member); member != "" && member != name {
				return true
			}
		}
	}
	return false
}

func groupName(gid int) string {
	id := strconv.Itoa(gid)
	if g, err := user.LookupGroupId(id); err == nil {
		return g.Name
	}
	return id
}
