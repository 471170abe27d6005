// Package canary decides which requests of a stage go to a new process while an old one serves too, and compares how
// the two do. It knows no process and no wire.
package canary

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/catena-dev/catena/host/internal/percent"
	"github.com/catena-dev/catena/host/internal/suggest"
)

// By says what sticks to one side: all requests of a user, in a namespace, or of a client.
type By string

// What can stick to one side.
const (
	User      By = "user"
	Namespace By = "namespace"
	// Client is a user with a user agent at an address.
	Client By = "client"
)

// Share says of what a share is: 5% of the users.
func (b By) Share(share float64) string { return percent.Format(share) + " of the " + string(b) + "s" }

// All are the values that By can have.
func All() []By { return []By{Client, User, Namespace} }

// Plan is how the share of the new process grows.
type Plan struct {
	// Shares are those of the steps, each above 0 and up to 1, and above the one before. The last is 1.
	Shares []float64 `json:"shares"`
	// For is the time of each step.
	For time.Duration `json:"forNanoseconds"`
	By  By            `json:"by"`
	// Limits are by how much the new process may do worse.
	Limits Limits `json:"limits,omitzero"`
}

// Length is the time of all steps.
func (p *Plan) Length() time.Duration { return time.Duration(len(p.Shares)) * p.For }

// NewPlan makes a plan of a first share and those that follow, each as N%. After the last that is
// given comes 100%, if that is not it.
func NewPlan(first string, then []string, each time.Duration, by By) (*Plan, error) {
	p := &Plan{For: each, By: by}
	var errs []error
	for i, text := range append([]string{first}, then...) {
		flag := "--then"
		if i == 0 {
			flag = "--canary"
		}
		share, err := percent.Parse(text, 1)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", flag, err))
		case len(p.Shares) > 0 && share <= p.Shares[len(p.Shares)-1]:
			errs = append(errs, fmt.Errorf("%s: %s is not above the share before it", flag, text))
		default:
			p.Shares = append(p.Shares, share)
		}
	}
	if each <= 0 {
		errs = append(errs, fmt.Errorf("--for %s: must be above 0", each))
	}
	if !slices.Contains(All(), by) {
		hint := suggest.DidYouMean(by, All())
		errs = append(errs, fmt.Errorf("--by: want user, namespace or client, have %q%s", by, hint))
	}
	if n := len(p.Shares); n > 0 && p.Shares[n-1] < 1 {
		p.Shares = append(p.Shares, 1)
	}
	return p, errors.Join(errs...)
}

// Validate returns an error unless the plan is one that NewPlan could have made.
func (p *Plan) Validate() error {
	last := 0.0
	for _, share := range p.Shares {
		if !(share > last && share <= 1) {
			return errors.New("the shares of a canary must be above 0, up to 100%, and grow")
		}
		last = share
	}
	if last != 1 || p.For <= 0 || !slices.Contains(All(), p.By) {
		return errors.New("a canary ends with 100%, and has a time for each step and what sticks to a side")
	}
	return nil
}

// Includes reports whether what has the key is on the side of the new process when that has the given share. It is the
// same on each host and at each time, and what is included stays so when the share grows.
func Includes(key string, share float64) bool {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	// FNV alone spreads keys badly that differ in their last bytes: the finalizer of MurmurHash3 mixes them.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return float64(x>>11)/(1<<53) < share
}
