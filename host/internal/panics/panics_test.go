package panics

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

func TestCall(t *testing.T) {
	t.Parallel()
	failure := errors.New("failure")
	if err := Call(func() error { return failure }); !errors.Is(err, failure) {
		t.Error(err)
	}
	if err := Call(func() error { return nil }); err != nil {
		t.Error(err)
	}
	err := Call(func() error { panic(http.ErrAbortHandler) })
	if p, ok := errors.AsType[*Error](err); !ok || !errors.Is(err, http.ErrAbortHandler) || !strings.Contains(string(p.Stack), "TestCall") {
		t.Errorf("%#v", err)
	}
	if err := Call(func() error { panic("x") }); err == nil || err.Error() != "panic: x" {
		t.Error(err)
	}
}

func TestContain(t *testing.T) {
	t.Parallel()
	var got error
	var none []int
	Contain(func() { _ = none[len(none)] }, func(err error) { got = err })()
	if got == nil || !strings.Contains(got.Error(), "index out of range") {
		t.Error(got)
	}
	Contain(func() {}, func(err error) { t.Error(err) })()
}
