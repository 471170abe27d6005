package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// Options of a server.
type Options struct {
	// Flags of kube-apiserver by name, besides those that every server has. An empty
	// value leaves out one of these.
	Flags map[string]string
	// Beside is a server whose etcd and credentials this one has too, so that both serve one
	// cluster. It has to outlive this one. (NewKubeAPIServer only)
	Beside *KubeAPIServer
	// Peers makes the server pass requests on to others of its cluster. (NewKubeAPIServer only)
	Peers bool
	// Release is the minor release of Kubernetes, that of go.mod by default. (StartKubeAPIServer only)
	Release string
	// ConfigFile is the configuration of Catena; configs/kube-apiserver.yaml by default.
	ConfigFile string
	// PluginDirs are directories with plugins besides bin/plugins. (Catena only)
	PluginDirs []string
	// OwnPlugins leaves bin/plugins out. (Catena only)
	OwnPlugins bool
	// Set are further --set arguments. (Catena only)
	Set []string
	// Env are further variables of the environment. (Catena only)
	Env []string
	// UID is the user that runs the server if it is not 0, which takes root. The user has to be able
	// to read Bin, ConfigFile and PluginDirs. (Catena only)
	UID int
	// OpenFiles limits the descriptors of the host, and those of each stage, if it is not 0. (Catena only)
	OpenFiles int
	// Prepare is called before the first start. (Catena only)
	Prepare func(*Catena) error
	// Bin is the directory of the binaries in the place of that of the function Bin. (Catena only)
	Bin string
}

// commonFlags are given to every server, so that they are alike.
func (s *Server) commonFlags(o Options) map[string]string {
	flags := map[string]string{
		"bind-address":             "127.0.0.1",
		"advertise-address":        "192.0.2.1", // kube-apiserver finds none on a machine without a network
		"token-auth-file":          s.tokens(),
		"authorization-mode":       "Node,RBAC",
		"service-cluster-ip-range": "10.0.0.0/24",
		"service-account-issuer":   "https://kubernetes.default.svc.cluster.local",
		"allow-privileged":         "true",
	}
	for name, value := range o.Flags {
		flags[name] = value
		if value == "" {
			delete(flags, name)
		}
	}
	return flags
}

// Catena is a running Catena.
type Catena struct {
	*Server
	options Options
}

// starting lets two servers start at the same time. If those of many parallel tests did,
// their stages would not come up within startTimeout.
var starting = make(chan struct{}, 2)

// StartCatena starts "catena serve" on a free port and returns when it is ready.
func StartCatena(ctx context.Context, o Options) (*Catena, error) {
	if o.ConfigFile == "" {
		o.ConfigFile = filepath.Join(Root(), "configs", "kube-apiserver.yaml")
	}
	s, err := newServer("catena")
	if err != nil {
		return nil, err
	}
	c := &Catena{Server: s, options: o}
	if err := c.give(); err != nil {
		return nil, errors.Join(err, c.Stop(false))
	}
	if o.Prepare != nil {
		if err := o.Prepare(c); err != nil {
			return nil, errors.Join(err, c.Stop(false))
		}
	}
	starting <- struct{}{}
	defer func() { <-starting }()
	if err := c.Start(ctx); err != nil {
		return nil, errors.Join(err, c.Stop(false))
	}
	return c, nil
}

// DataDir is the data directory.
func (c *Catena) DataDir() string { return filepath.Join(c.Dir, "data") }

// AdminKubeconfig is the kubeconfig that Catena itself writes.
func (c *Catena) AdminKubeconfig() string { return filepath.Join(c.DataDir(), "admin.kubeconfig") }

// Start starts the host, again if it has ended, and returns when it is ready.
func (c *Catena) Start(ctx context.Context) error {
	bin, err := c.bin()
	if err != nil {
		return err
	}
	if err := os.Remove(c.AdminKubeconfig()); err != nil && !os.IsNotExist(err) {
		return err
	}
	program, args := filepath.Join(bin, "catena"), c.Args(bin)
	if c.options.OpenFiles > 0 {
		limited := fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, c.options.OpenFiles)
		program, args = "/bin/sh", append([]string{"-c", limited, program}, args...)
	}
	c.process, err = startProcess(c.Dir, c.Name, c.options.UID, c.options.Env, program, args...)
	if err != nil {
		return err
	}
	return c.awaitReady(ctx, c.locate)
}

func (c *Catena) bin() (string, error) {
	if c.options.Bin != "" {
		return c.options.Bin, nil
	}
	return Bin()
}

// give makes the files of the server the property of the user that runs it.
func (c *Catena) give() error {
	if c.options.UID == 0 {
		return nil
	}
	return errors.Join(os.Chown(c.Dir, c.options.UID, c.options.UID), os.Chown(c.tokens(), c.options.UID, c.options.UID))
}

// Args is the command line of the host.
func (c *Catena) Args(bin string) []string {
	dirs := c.options.PluginDirs
	if !c.options.OwnPlugins {
		dirs = append([]string{filepath.Join(bin, "plugins")}, dirs...)
	}
	args := []string{"serve", "--config", c.options.ConfigFile, "--data-dir", c.DataDir(),
		"--set", "pluginDirs=" + strings.Join(dirs, ","), "--set", "apiserver.secure-port=0"}
	for name, value := range c.commonFlags(c.options) {
		args = append(args, "--set", "apiserver."+name+"="+value)
	}
	for _, set := range c.options.Set {
		args = append(args, "--set", set)
	}
	return args
}

// locate reads the address and the authority of the server from the kubeconfig.
func (c *Catena) locate() error {
	config, err := clientcmd.BuildConfigFromFlags("", c.AdminKubeconfig())
	if err != nil {
		return err
	}
	c.URL, c.ca = strings.TrimSuffix(config.Host, "/"), config.CAData
	return nil
}

// Stages are the processes of the stages by the names of the stages.
func (c *Catena) Stages() map[string]int {
	stages := map[string]int{}
	for pid, name := range c.StageProcesses() {
		stages[name] = pid
	}
	return stages
}

// StageProcesses returns the ids of all processes of stages, with the name of the stage: there may be several of one.
func (c *Catena) StageProcesses() map[int]string {
	stages := map[int]string{}
	for pid, command := range Children(c.process.PID()) {
		if name, ok := strings.CutPrefix(command, "catena-stage-"); ok {
			stages[pid] = name
		}
	}
	return stages
}

// KillAll ends the host and every process below it with SIGKILL, at once.
func (c *Catena) KillAll() {
	children := Children(c.process.PID())
	_ = c.process.Signal(syscall.SIGKILL)
	for pid := range children {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-c.process.Done
}

// Stop ends the server, and is an error if it leaves a process behind.
func (c *Catena) Stop(failed bool) error {
	var children map[int]string
	if c.process != nil {
		children = Children(c.process.PID())
	}
	err := c.Server.Stop(failed)
	return errors.Join(err, killLeftovers(children))
}

// leftoverTimeout is how long killed processes may take to end on a busy machine.
const leftoverTimeout = 10 * time.Second

// killLeftovers gives the processes time to end, then kills them.
func killLeftovers(children map[int]string) error {
	deadline := time.Now().Add(leftoverTimeout)
	for {
		var errs []error
		for pid, command := range children {
			if commandName(pid) == command && command != "" {
				errs = append(errs, fmt.Errorf("process %d (%s) has outlived the host", pid, command))
			}
		}
		if len(errs) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			for pid := range children {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			return errors.Join(errs...)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
