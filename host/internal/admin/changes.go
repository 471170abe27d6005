package admin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/catena-dev/catena/host/internal/guard"
	"github.com/catena-dev/catena/host/internal/percent"
)

type callerKey struct{}

// withCaller keeps in the context of a connection which user has opened it.
func withCaller(ctx context.Context, conn net.Conn) context.Context {
	peer, err := guard.PeerOf(conn)
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, callerKey{}, fmt.Sprintf("%s (pid %d)", userName(peer.UID), peer.PID))
}

// userName returns the name of a user of this machine, or the number of one without a name.
func userName(uid int) string {
	number := strconv.Itoa(uid)
	if u, err := user.LookupId(number); err == nil {
		return u.Username
	}
	return "uid " + number
}

// CallerOf returns which user of this machine makes a request on the socket.
func CallerOf(ctx context.Context) string {
	if by, ok := ctx.Value(callerKey{}).(string); ok {
		return by
	}
	return "unknown"
}

// changeBy is a change that was asked for by a request, began then and has just ended.
func changeBy(r *http.Request, began time.Time, what string, err error) Change {
	c := Change{At: began, By: CallerOf(r.Context()), What: what, TookSeconds: time.Since(began).Seconds()}
	if err != nil {
		c.Error = err.Error()
	}
	return c
}

// command is the request as a command without its name.
func (r SwapRequest) command() string {
	words := []string{"swap", r.Stage}
	switch {
	case r.Finalize:
		words[0] = "upgrade finalize"
	case r.Binary != "":
		words = append(words, "--binary", r.Binary)
	}
	if r.SHA256 != "" {
		words = append(words, "--sha256", r.SHA256)
	}
	if r.Emulate {
		words = append(words, "--emulate")
	}
	if len(r.Allow) > 0 {
		words = append(words, "--allow", strings.Join(r.Allow, ","))
	}
	if c := r.Canary; c != nil && len(c.Shares) > 0 {
		words = append(words, "--canary", percent.Format(c.Shares[0]))
		if then := c.Shares[1:]; len(then) > 1 {
			words = append(words, "--then", joinShares(then[:len(then)-1])) // 100% comes last in any case
		}
		words = append(words, "--by", string(c.By), "--for", c.For.String())
	}
	if conditions := r.conditions(); len(conditions) > 0 {
		words = append(words, "--rollback-on", strings.Join(conditions, ","))
	}
	if r.Rollback.Probation > 0 {
		words = append(words, "--probation", r.Rollback.Probation.String())
	}
	return strings.Join(words, " ")
}

func joinShares(shares []float64) string {
	texts := make([]string, len(shares))
	for i, share := range shares {
		texts[i] = percent.Format(share)
	}
	return strings.Join(texts, ",")
}

// conditions are those of --rollback-on.
func (r SwapRequest) conditions() (all []string) {
	add := func(name string, limit float64) {
		if limit > 0 {
			all = append(all, name+"="+percent.Format(limit))
		}
	}
	add("errors", r.Rollback.ErrorRate)
	if r.Canary != nil {
		add("refused", r.Canary.Limits.Refused)
		add("latency", r.Canary.Limits.Latency)
	}
	if r.Rollback.Health {
		all = append(all, "health")
	}
	return all
}

// command is the request as a command without its name.
func (r ConcludeRequest) command() string {
	if r.Keep {
		return "swap " + r.Stage + " --promote"
	}
	return "swap " + r.Stage + " --rollback"
}
