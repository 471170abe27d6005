package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// leadPause is the time before a process that cannot learn who leads asks again.
const leadPause = time.Second

// Lead runs f when this process is the only one of its stage that runs what was given to Lead by that name: of those
// that a swap, a canary or a standby has beside each other, and of all hosts that share a store. A name has at most 63
// lower-case letters, digits, dots and hyphens.
//
// The context of f ends when ctx does, when the stage drains or stops, and when the host cannot say any more that the
// process leads. Another process leads when f has returned: what it goes on with must have ended by then. If it was the
// host that could not say, since the store has not responded for ten seconds, another host's process may lead while f
// still returns; f runs again when the process leads again. Lead returns what f has returned, and nil if the process
// has never led.
//
// It is for work in the background: a worker of a PostStartHook, which both processes of a swap would do.
func (e *Env) Lead(ctx context.Context, name string, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	go func() {
		select {
		case <-e.Draining():
			cancel()
		case <-ctx.Done():
		}
	}()
	for told := false; ; {
		led, err := leadOnce(ctx, e, name, f)
		refused, _ := errors.AsType[*leadError](err)
		switch {
		case ctx.Err() != nil && (!led || errors.Is(err, context.Canceled)):
			return nil
		case ctx.Err() != nil || led && !errors.Is(err, errLeadLost):
			return err
		case refused != nil && refused.code == http.StatusConflict: // a process that is only looked at
			<-ctx.Done()
			return nil
		case refused != nil && refused.final():
			return err
		case !led && !told:
			told = true
			e.Log.Warn("the host cannot say who leads; asking again", "lead", name, "error", err)
		}
		select {
		case <-time.After(leadPause):
		case <-ctx.Done():
		}
	}
}

// errLeadLost is why f runs again.
var errLeadLost = errors.New("the host cannot say any more that this process leads")

// leadError is what the host responds if it does not have the process lead.
type leadError struct {
	name, status, text string
	code               int
}

func (e *leadError) Error() string {
	return fmt.Sprintf("lead %q: the host responds with %s: %s", e.name, e.status, e.text)
}

// final reports whether it makes no sense to ask again.
func (e *leadError) final() bool {
	return e.code < http.StatusInternalServerError && e.code != http.StatusTooManyRequests
}

// leadOnce runs f when the process leads, and reports whether it has.
func leadOnce(ctx context.Context, e *Env, name string, f func(context.Context) error) (led bool, err error) {
	// The request lasts until f has returned.
	request, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	waiting := context.AfterFunc(ctx, end)
	r, err := http.NewRequestWithContext(request, http.MethodPost, "http://"+hostName+"/", http.NoBody)
	if err != nil {
		return false, err
	}
	r.Header.Set("Authorization", "Bearer "+e.host.Token)
	r.Header.Set(stagev1.HeaderLead, name)
	resp, err := e.transports.own.RoundTrip(r)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return false, &leadError{name, resp.Status, strings.TrimSpace(string(text)), resp.StatusCode}
	}
	if !waiting() {
		return false, ctx.Err()
	}
	leads, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	go func() {
		_, _ = io.Copy(io.Discard, resp.Body)
		lose(errLeadLost)
	}()
	if err = f(leads); context.Cause(leads) == errLeadLost && ctx.Err() == nil {
		return true, errLeadLost
	}
	return true, err
}
