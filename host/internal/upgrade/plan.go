// Package upgrade says what happens when a stage of Kubernetes goes to a binary of another release, before it does: it
// compares what the two binaries describe, serve and read.
package upgrade

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// ErrNotFound is that a path is not served.
var ErrNotFound = errors.New("status 404")

// Side is one of the two processes.
type Side struct {
	// Release describes what it has of Kubernetes.
	Release *stagev1.Kubernetes
	// Get makes a request to it. A status other than 200 is an error, and 404 is ErrNotFound. It is nil if the process did not
	// come up.
	Get func(ctx context.Context, path string, header http.Header) ([]byte, error)
}

// Input is what a plan is made from.
type Input struct {
	Stage    string
	Old, New Side
	// Flags are those of the API server that the stage gets, each as name=value.
	Flags []string
	// Emulated is the minor release as which the new process serves; empty if as its own.
	Emulated string
	// Beside are the others that serve the cluster together with the new process: the host and the other stages.
	Beside []Component
	// Controllers are those of the server, if it has any and their stage matters to them.
	Controllers Controllers
	// Chain makes a request to the chain as it serves, as Side.Get does. It may be nil.
	Chain func(ctx context.Context, path string, header http.Header) ([]byte, error)
	// Failure is why the new process did not come up; nil if it did.
	Failure error
	// Clients returns who has used a resource.
	Clients func(group, version, resource string) []Client
	// Stored calls found for each object in the store, with its key and its value.
	Stored func(ctx context.Context, found func(key string, value []byte)) error
	// Sample is how many objects of each resource are compared.
	Sample int
}

// Component is a part of the server with a release of its own.
type Component struct {
	// Name is such as "stage extensions", Release its release of Kubernetes.
	Name, Release string
}

// Controllers are clients that come with the server.
type Controllers struct {
	Component
	// Along is the binary to which they go together with the stage; empty if they stay as they are.
	Along string
}

// Crosses reports whether the two are of different minor releases of Kubernetes, as far as they say.
func (in Input) Crosses() bool {
	from, errFrom := version.ParseSemantic(in.Old.Release.GetRelease())
	to, errTo := version.ParseSemantic(in.New.Release.GetRelease())
	return errFrom == nil && errTo == nil && (from.Major() != to.Major() || from.Minor() != to.Minor())
}

// Client is a program that has used a resource.
type Client struct {
	UserAgent string `json:"userAgent"`
	Requests  int64  `json:"requests"`
}

// Plan says what an upgrade, or the way back from one, changes.
type Plan struct {
	Stage string `json:"stage"`
	// From and To are releases of Kubernetes.
	From string `json:"from"`
	To   string `json:"to"`
	// Objects is how many of those in the store were looked at, and Compared how many were read by both processes.
	Objects  int `json:"objects"`
	Compared int `json:"compared"`
	// Findings are in the order of their topics, in each of which those that block come first.
	Findings []Finding `json:"findings"`
}

// Topic is what a finding is about.
type Topic string

// All topics, in the order in which they are told.
const (
	Start      Topic = "start"         // the new process does not come up
	Skew       Topic = "release"       // the releases are too far apart
	Settings   Topic = "setting"       // a flag, feature gate or admission plugin that is set, and not known
	Defaults   Topic = "default"       // a feature gate whose default differs
	Removed    Topic = "removed"       // a resource that is not served any more
	Added      Topic = "added"         // a resource that is served from then on
	Unreadable Topic = "unreadable"    // stored objects that the new process cannot read
	Back       Topic = "way back"      // what the old process could not read afterwards
	Differs    Topic = "object"        // a field that the two read differently
	Unknown    Topic = "not looked at" // what could not be found out
)

var topics = []Topic{Start, Skew, Settings, Unreadable, Removed, Back, Differs, Defaults, Added, Unknown}

// Finding is one thing to know.
type Finding struct {
	Topic Topic `json:"topic"`
	// Name is what it is about, such as a resource.
	Name string `json:"name"`
	// Blocks reports whether the upgrade loses data, breaks a client in use or does not start.
	Blocks bool   `json:"blocks,omitempty"`
	Detail string `json:"detail"`
	// Clients are those in whose way it is.
	Clients []Client `json:"clients,omitempty"`
}

// Blocked returns the findings that block.
func (p *Plan) Blocked() []Finding {
	return slices.DeleteFunc(slices.Clone(p.Findings), func(f Finding) bool { return !f.Blocks })
}

// Check returns an error that tells what is in the way, but for the findings with a name in allowed.
func (p *Plan) Check(allowed []string) error {
	var all []string
	for _, f := range p.Blocked() {
		if !slices.Contains(allowed, f.Name) {
			all = append(all, f.Name+": "+f.Detail)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("stage %q: from %s to %s: %s (catena upgrade plan tells more; --allow NAME goes on regardless)",
		p.Stage, p.From, p.To, strings.Join(all, "; "))
}

func (p *Plan) add(f Finding) { p.Findings = append(p.Findings, f) }

// Make makes a plan. The error is why it cannot.
func Make(ctx context.Context, in Input) (*Plan, error) {
	if in.Old.Release == nil || in.New.Release == nil {
		return nil, fmt.Errorf("stage %q: the two binaries do not both say which release of Kubernetes they serve", in.Stage)
	}
	p := &Plan{Stage: in.Stage, From: in.Old.Release.GetRelease(), To: in.New.Release.GetRelease(), Findings: []Finding{}}
	if err := p.compareReleases(in); err != nil {
		return nil, err
	}
	if in.Failure != nil {
		p.add(Finding{Topic: Start, Name: in.Stage, Blocks: true, Detail: in.Failure.Error()})
	}
	old, next := kinds(in.Old.Release), kinds(in.New.Release)
	both := in.Old.Get != nil && in.New.Get != nil
	if both {
		if err := p.addCustom(ctx, in, old, next); err != nil {
			return nil, err
		}
	}
	if err := p.compareStored(ctx, in, old, next); err != nil {
		return nil, err
	}
	if err := p.compareServers(ctx, in, old, next); err != nil {
		return nil, err
	}
	if both {
		if err := p.compareServed(ctx, in); err != nil {
			return nil, err
		}
		p.tellWayBack(in)
	}
	slices.SortStableFunc(p.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(topics, a.Topic), slices.Index(topics, b.Topic)),
			-cmp.Compare(rank(a.Blocks), rank(b.Blocks)), strings.Compare(a.Name, b.Name))
	})
	return p, nil
}

func rank(b bool) int {
	if b {
		return 1
	}
	return 0
}
