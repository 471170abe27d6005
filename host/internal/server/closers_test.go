package server

import (
	"errors"
	"slices"
	"testing"

	"github.com/hashicorp/go-hclog"
)

func TestClosersRunInReverseAndJoinErrors(t *testing.T) {
	var order []string
	var c closers
	for _, name := range []string{"a", "b"} {
		c.add(name, func() error { order = append(order, name); return errors.New(name + " failed") })
	}
	err := c.close(hclog.NewNullLogger())
	if !slices.Equal(order, []string{"b", "a"}) || err == nil || err.Error() != "b failed\na failed" {
		t.Errorf("order %v, error %v", order, err)
	}
	if err := c.close(hclog.NewNullLogger()); err != nil {
		t.Errorf("closing twice: %v", err)
	}
}
