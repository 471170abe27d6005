package generation

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/catena-dev/catena/host/internal/grants"
	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/cgroup"
	"github.com/catena-dev/catena/host/internal/isolation"
)

// Spec is what the process of a generation is made from. A stage whose Spec changes needs
// another process.
type Spec struct {
	Name string
	// Binary is the path of the plugin, and SHA256 the digest that it must have, if
	// that is given.
	Binary, SHA256 string
	// Attach, if not empty, is the directory of the sockets of a process that was started
	// by hand with --debug, which is used in place of one that is started here. It is
	// never killed, and never swapped: its user can start another.
	Attach string
	// Digest is that of the file behind Binary as the caller has found it, if the stage is
	// to be swapped whenever the file has changed; of a locked stage, that of its
	// process.Contents.
	Digest string
	// Config is the stage's own configuration, or nil.
	Config map[string]any
	// Flags are those of the API server, by name, that differ from Options.Flags. One without values is not set.
	Flags map[string][]string
	// Env is added to the environment of the process.
	Env map[string]string
	// OpenFiles is how many files the process may have open; 0 is as many as the host.
	OpenFiles int64
	// KernelLimits are those that the kernel keeps, if this machine has what that takes (see
	// process.Spec.Limits).
	KernelLimits cgroup.Limits
	// Isolation is what keeps the process from what it was not granted; nothing if zero.
	Isolation isolation.Spec
	// User and Groups are the identity of the stage's calls to the host.
	User   string
	Groups []string
	// Grants are what the stage may do.
	Grants grants.Grants
	// ReadOnly keeps the process from writing through the host. Flags lead it to a store that it can only read.
	ReadOnly bool
}

// Equal reports whether a process that is made from the one does for the other.
func (s Spec) Equal(other Spec) bool { return reflect.DeepEqual(s.normal(), other.normal()) }

// normal returns s with nothing in place of what is empty.
func (s Spec) normal() Spec {
	if len(s.Config) == 0 {
		s.Config = nil
	}
	if len(s.Flags) == 0 {
		s.Flags = nil
	}
	if len(s.Env) == 0 {
		s.Env = nil
	}
	if len(s.Groups) == 0 {
		s.Groups = nil
	}
	s.Grants = s.Grants.Normal()
	if len(s.Isolation.Files) == 0 {
		s.Isolation.Files = nil
	}
	return s
}

// Clone returns a copy whose flags, environment, groups and files can be changed.
func (s Spec) Clone() Spec {
	s.Flags = maps.Clone(s.Flags)
	s.Env, s.Groups, s.Isolation.Files = maps.Clone(s.Env), slices.Clone(s.Groups), slices.Clone(s.Isolation.Files)
	return s
}

// EmulatedVersion is the flag by which a stage serves as an older release of Kubernetes.
const EmulatedVersion = "emulated-version"

// Emulates is the minor release that the stage's flag names, which can be that of its binary; empty if it has none.
func (s Spec) Emulates() string {
	if values := s.Flags[EmulatedVersion]; len(values) > 0 {
		return strings.TrimPrefix(values[0], "kube=")
	}
	return ""
}

// flags returns those that all stages have, each as name=value, as they are for this one, sorted.
func (s Spec) flags(all []string) []string {
	if len(s.Flags) == 0 {
		return all
	}
	own := slices.DeleteFunc(slices.Clone(all), func(flag string) bool {
		name, _, _ := strings.Cut(flag, "=")
		_, differs := s.Flags[name]
		return differs
	})
	for name, values := range s.Flags {
		for _, value := range values {
			own = append(own, name+"="+value)
		}
	}
	slices.SortStableFunc(own, func(a, b string) int {
		nameA, _, _ := strings.Cut(a, "=")
		nameB, _, _ := strings.Cut(b, "=")
		return strings.Compare(nameA, nameB)
	})
	return own
}

// Server is what stages are told of the server.
type Server struct {
	Version, ExternalURL string
	// HistoryRevision, if not nil, returns the revision of the store from which on caches have to know the changes; 0
	// is now.
	HistoryRevision func() int64
}

// Options are what all generations of a stage have in common.
type Options struct {
	// DataDir is the directory of the stage, RuntimeDir that for sockets.
	DataDir, RuntimeDir string
	// Own are the directories of the host, of which a stage that is isolated sees nothing but what is its own.
	Own []string
	// Hidden returns files and directories of which it sees what it is granted, or nil.
	Hidden func() []string
	// Machine returns what this machine can do to isolate stages; nil if no stage is isolated.
	Machine func() *isolation.Machine
	// Cgroups returns where processes that are isolated or limited get a group each; nil if there
	// are none.
	Cgroups func() *cgroup.Tree
	// Flags of the API server, as name=value.
	Flags []string
	// OwnStore returns the flags with which a stage reaches keys of its own in the store. It may
	// be nil.
	OwnStore func(stage string) ([]string, error)
	// HostSocket is the path of the Unix socket on which the stage calls the host.
	HostSocket string
	// Server is told to the stages.
	Server Server
	// HostPaths returns the paths that the host serves itself, whatever stages claim;
	// one that ends with a slash, but for "/", stands for all below it. It may be nil.
	HostPaths func() []string
	// Log gets what the host has to say of the stage, StageLog what the stage logs.
	Log, StageLog hclog.Logger
}
