package guard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
)

// DialServer connects to the Unix socket of a server that uses a data directory, if root, this user or
// the owner of that directory runs it: another user may have made a directory with the name of
// one that a server would use. It checks that one of these has made the directory of the socket
// and the socket, that no other user can write to the directory, and, where the system tells, that one
// of these listens. It returns who does.
//
// An error that is fs.ErrNotExist or syscall.ECONNREFUSED means that no process listens.
func DialServer(ctx context.Context, socket, dataDir string) (c net.Conn, uid int, err error) {
	trusted := []int{0, os.Geteuid()}
	if info, err := os.Stat(dataDir); err == nil {
		trusted = append(trusted, ownerOf(info))
	}
	uid, err = checkSocket(socket, trusted)
	if err != nil {
		return nil, 0, err
	}
	var d net.Dialer
	if c, err = d.DialContext(ctx, "unix", socket); err != nil {
		return nil, 0, err
	}
	switch peer, err := PeerOf(c); {
	case errors.Is(err, ErrNoPeers):
	case err != nil:
		return nil, 0, errors.Join(err, c.Close())
	case !slices.Contains(trusted, peer.UID):
		return nil, 0, errors.Join(fmt.Errorf("process %d, which listens at %s, %w", peer.PID, socket, untrusted(peer.UID)), c.Close())
	default:
		uid = peer.UID
	}
	return c, uid, nil
}

// checkSocket returns the owner of a socket. Its mode does not matter: who may connect to it cannot listen there.
func checkSocket(socket string, trusted []int) (uid int, err error) {
	dir := filepath.Dir(socket)
	for _, stat := range []func(string) (fs.FileInfo, error){os.Lstat, os.Stat} { // a link, and what it leads to
		info, err := stat(dir)
		if err != nil {
			return 0, err
		}
		if uid := ownerOf(info); !slices.Contains(trusted, uid) {
			return 0, fmt.Errorf("directory %s %w; if no server of yours uses it, remove it", dir, untrusted(uid))
		}
		if open := info.Mode().Perm() & 0o022; info.IsDir() && open != 0 {
			return 0, fmt.Errorf("directory %s has the mode %04o, with which other users can make sockets in it; run chmod 700 %[1]s", dir, info.Mode().Perm())
		}
	}
	info, err := os.Lstat(socket)
	switch {
	case err != nil:
		return 0, err
	case info.Mode().Type() != fs.ModeSocket:
		return 0, fmt.Errorf("%s is not a socket", socket)
	case !slices.Contains(trusted, ownerOf(info)):
		return 0, fmt.Errorf("socket %s %w", socket, untrusted(ownerOf(info)))
	}
	return ownerOf(info), nil
}

// untrusted continues a sentence about what is of a user who is not to be believed.
func untrusted(uid int) error {
	return fmt.Errorf("belongs to user %d, and not to root, to this user (%d) or to the owner of the data directory: it is not used", uid, os.Geteuid())
}
