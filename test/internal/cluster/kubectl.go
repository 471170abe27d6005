package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// Kubectl is a command of kubectl with a kubeconfig. Its preferences and caches are in home, and not those of somebody.
func Kubectl(ctx context.Context, home, kubeconfig string, args ...string) (*exec.Cmd, error) {
	path, err := Tool("kubectl")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, append([]string{"--kubeconfig", kubeconfig}, args...)...)
	cmd.Env = append(Environ(), "HOME="+home)
	return cmd, nil
}

// Kubectl runs kubectl as the administrator and returns its standard output. The error has all that it printed.
func (s *Server) Kubectl(ctx context.Context, home string, args ...string) (string, error) {
	config, err := s.Kubeconfig(Admin)
	if err != nil {
		return "", err
	}
	cmd, err := Kubectl(ctx, home, config, args...)
	if err != nil {
		return "", err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out), nil
}
