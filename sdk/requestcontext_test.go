package sdk

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The context of a request ends at its deadline for whoever asks in whatever way, and with the connection.
func TestRequestContext(t *testing.T) {
	t.Parallel()
	type parent struct{}
	for name, ended := range map[string]func(t *testing.T, ctx context.Context) error{
		"asked": func(_ *testing.T, ctx context.Context) error { return ctx.Err() },
		"waited for": func(_ *testing.T, ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		},
		"the cause": func(_ *testing.T, ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		},
		"a child": func(t *testing.T, ctx context.Context) error {
			child, cancel := context.WithCancel(context.WithValue(ctx, parent{}, "child"))
			t.Cleanup(cancel)
			<-child.Done()
			return child.Err()
		},
		"a child with more time": func(t *testing.T, ctx context.Context) error {
			child, cancel := context.WithTimeout(ctx, time.Hour)
			t.Cleanup(cancel)
			<-child.Done()
			return child.Err()
		},
		"a function": func(_ *testing.T, ctx context.Context) error {
			called := make(chan struct{})
			context.AfterFunc(ctx, func() { close(called) })
			<-called
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				x := &exchange{}
				begin := func(millis string) (ctx *requestContext, hangup func()) {
					server, hangup := context.WithCancel(context.WithValue(t.Context(), parent{}, "server"))
					return &requestContext{Context: server, exchange: x, deadline: deadlineAfter(millis)}, hangup
				}
				ctx, hangup := begin("1000")
				defer hangup()
				begun := time.Now()
				if end, ok := ctx.Deadline(); !ok || !end.Equal(begun.Add(time.Second)) || ctx.Err() != nil {
					t.Errorf("deadline %s, %t, error %v", end, ok, ctx.Err())
				}
				if name == "asked" {
					time.Sleep(time.Second)
				}
				if err := ended(t, ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
					t.Errorf("%v after %s", err, time.Since(begun))
				}
				ctx.end()
				if exchangeFrom(ctx) != x || ctx.Value(parent{}) != "server" {
					t.Error("its values are lost")
				}

				for _, millis := range []string{"1000", "", "x", "1099511627777"} {
					ctx, hangup := begin(millis)
					defer hangup()
					begun := time.Now()
					if _, ok := ctx.Deadline(); ok != (millis == "1000") {
						t.Errorf("%q: a deadline: %t", millis, ok)
					}
					time.AfterFunc(time.Millisecond, hangup)
					if name == "asked" {
						time.Sleep(2 * time.Millisecond)
					}
					if err := ended(t, ctx); !errors.Is(err, context.Canceled) || time.Since(begun) > 2*time.Millisecond {
						t.Errorf("%q: with the connection: %v after %s", millis, err, time.Since(begun))
					}
					ctx.end()
				}
			})
		})
	}
}
