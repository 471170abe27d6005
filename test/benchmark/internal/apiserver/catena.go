package apiserver

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// CatenaOptions are what the two systems cannot have in common.
type CatenaOptions struct {
	// Config is the configuration file.
	Config string
	// Set is added to it, as key=value.
	Set []string
	// Debug serves the profiles of the processes on sockets.
	Debug bool
}

// Catena returns a Catena of the binaries in bin, with its data in the new directory dir.
func Catena(bin, dir string, o CatenaOptions) (*Server, error) {
	ports, err := prepare(dir, 1)
	if err != nil {
		return nil, err
	}
	args := []string{
		"serve", "--config", o.Config, "--data-dir", dataDir(dir), "--set", "pluginDirs=" + filepath.Join(bin, "plugins"),
		"--set", "apiserver.secure-port=" + strconv.Itoa(ports[0]),
		"--set", "apiserver.token-auth-file=" + tokens(dir),
	}
	for _, v := range o.Set {
		args = append(args, "--set", v)
	}
	if o.Debug {
		args = append(args, "--set", "apiserver.debug-socket-path="+debugSocket(dir))
	}
	host := filepath.Join(bin, "catena")
	stages, err := filepath.Glob(filepath.Join(bin, "plugins", "catena-stage-*"))
	if err != nil {
		return nil, err
	}
	return &Server{
		Name: "Catena", Config: clientConfig(ports[0]), dir: dir,
		Binaries: append([]string{host}, stages...),
		commands: []command{{"catena.log", host, args}},
	}, nil
}

func dataDir(dir string) string { return filepath.Join(dir, "data") }

// Swap replaces the process of a stage of Catena by a new one, and returns when requests have
// moved to it.
func (s *Server) Swap(ctx context.Context, stage string) error {
	out, err := exec.CommandContext(ctx, s.commands[0].path, "swap", stage, "--data-dir", dataDir(s.dir)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("swap %s: %w: %s", stage, err, out)
	}
	return nil
}

// debugSocket is where the host of a Catena in dir serves its profiles. Each stage has a
// socket in the runtime directory.
func debugSocket(dir string) string { return filepath.Join(dir, "debug") }

// DebugSockets returns the sockets on which the processes of a Catena serve their profiles, by
// the names of the processes. kube-apiserver has none.
func (s *Server) DebugSockets() (map[string]string, error) {
	stages, err := filepath.Glob(filepath.Join(dataDir(s.dir), "run", "*-*.dbg"))
	if err != nil || len(stages) == 0 {
		return nil, err
	}
	sockets := map[string]string{"host": debugSocket(s.dir)}
	for _, path := range stages {
		name := filepath.Base(path)
		sockets[name[:strings.LastIndexByte(name, '-')]] = path
	}
	return sockets, nil
}
