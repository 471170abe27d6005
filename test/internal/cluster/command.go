package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Status has the parts of "catena status -o json" that tests use.
type Status struct {
	Stages []struct {
		Stage      string
		State      string
		Generation string
		PID        int
		Restarts   int
		// Version is the stage's, and Emulates the minor release of Kubernetes as which it serves if that is another one.
		Version, Emulates string
		Failure           string
		// Isolation has what isolates the process, IsolationLacks what the machine lacks for it.
		Isolation, IsolationLacks []string
		Standby                   *struct {
			Generation, State string
			PID               int
		}
		Others    []struct{ PID int }
		Probation *struct {
			Until  time.Time
			Canary *struct{ Waits bool }
		}
		LastSwap *struct {
			At             time.Time
			Result, Reason string
		}
	}
	Signals []struct {
		Name string
		At   time.Time
	}
	LastReload *struct {
		At    time.Time
		Error string
	}
}

// Command runs a command of bin/catena on the server's data directory. An error has the
// output of the command.
func (c *Catena) Command(ctx context.Context, args ...string) (string, error) {
	bin, err := c.bin()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "catena"), append(args, "--data-dir", c.DataDir())...)
	cmd.Dir, cmd.Env = Root(), Environ()
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("catena %s: %w: %s", args[0], err, exit.Stderr)
	}
	return string(out), err
}

// Swap swaps a stage and makes that final, so that the old process ends, and a crash of the new one leads to a restart.
func (c *Catena) Swap(ctx context.Context, stage string) error {
	out, err := c.Command(ctx, "swap", stage)
	if err == nil && strings.Contains(out, "on probation") { // it is not if the old process has ended
		_, err = c.Command(ctx, "swap", stage, "--promote")
	}
	return err
}

// Status returns the state of the stages.
func (c *Catena) Status(ctx context.Context) (*Status, error) {
	out, err := c.Command(ctx, "status", "-o", "json")
	if err != nil {
		return nil, err
	}
	s := &Status{}
	return s, json.Unmarshal([]byte(out), s)
}

// CertificateConfig is a client's configuration with a client certificate, made by
// "catena kubeconfig".
func (c *Catena) CertificateConfig(ctx context.Context, user string, groups ...string) (*rest.Config, error) {
	args := []string{"kubeconfig", "--user", user}
	for _, g := range groups {
		args = append(args, "--group", g)
	}
	out, err := c.Command(ctx, args...)
	if err != nil {
		return nil, err
	}
	return clientcmd.RESTConfigFromKubeConfig([]byte(out))
}

// ClientCA is the file of the authority that signs clients' certificates.
func (c *Catena) ClientCA() ([]byte, error) {
	return os.ReadFile(filepath.Join(c.DataDir(), "pki", "ca.crt"))
}
