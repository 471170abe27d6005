package apiserver

import (
	"reflect"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// Kubernetes' code asks for each value by a key of its own.
func TestFindKeys(t *testing.T) {
	t.Parallel()
	keys, seen := reflect.ValueOf(findKeys()), map[any]string{}
	for i := range keys.NumField() {
		name, key := keys.Type().Field(i).Name, keys.Field(i).Elem()
		if !key.IsValid() {
			t.Errorf("%s: no key was asked for", name)
			continue
		}
		// Kubernetes' keys are numbers of types of their own: what tells two of them apart is the type, or the number.
		id := [2]any{key.Type(), key.Int()}
		if other := seen[id]; other != "" {
			t.Errorf("%s has the key of %s", name, other)
		}
		seen[id] = name
	}
}

// There is a tracker of each kind: a release may come with another.
func TestLatencyTrackers(t *testing.T) {
	t.Parallel()
	own := &latencyTrackers{}
	all := reflect.ValueOf(own.start()).Elem()
	for i := range all.NumField() {
		name, field := all.Type().Field(i).Name, all.Field(i)
		if field.IsNil() {
			t.Errorf("%s: none", name)
			continue
		}
		tracker := field.Interface().(request.DurationTracker)
		tracker.TrackDuration(time.Hour)
		tracker.TrackDuration(time.Minute)
		tracker.Track(func() {})
		sums := map[bool]time.Duration{true: time.Hour, false: time.Hour + time.Minute}[reflect.TypeOf(tracker) == reflect.TypeFor[*longestDuration]()]
		if got := tracker.GetLatency().Round(time.Second); got != sums {
			t.Errorf("%s: %s, want %s", name, got, sums)
		}
	}
	// Those of which Kubernetes takes the longest.
	for _, longest := range []request.DurationTracker{own.all.ValidatingWebhookTracker, own.all.AuthorizationTracker, own.all.APFQueueWaitTracker} {
		if _, ok := longest.(*longestDuration); !ok {
			t.Errorf("%T", longest)
		}
	}
}

// The name is read without the rest only if that is the same.
func TestUserName(t *testing.T) {
	t.Parallel()
	const parsed = "" // by the SDK, from a request, of which there is none here
	for header, want := range map[string]string{
		`{"name":"jane","groups":["a"]}`:          "jane",
		`{"name":"system:serviceaccount:a:b"}`:    "system:serviceaccount:a:b",
		`{"name":"","groups":["a"]}`:              "",
		`{"name":"j\u00fcrgen","groups":["a"]}`:   parsed,
		`{"name":"a\"b","groups":["a"]}`:          parsed,
		`{"groups":["name\":\"x"],"name":"jane"}`: parsed,
		`{"name":"jane"`:                          parsed,
		`{"name":"jane`:                           parsed,
		``:                                        parsed,
	} {
		u := &hostUser{ctx: t.Context(), header: header}
		if got := u.GetName(); got != want {
			t.Errorf("%s: %q, want %q", header, got, want)
		}
	}
}
