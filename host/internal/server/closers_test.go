package server

import (
	"errors"
	"slices"
	"testing"
)

func TestClosersRunInReverseAndJoinErrors(t *testing.T) {
	var order []string
	var c closers
	for _, name := range []string{"a", "b"} {
		c.add(func() error { order = append(order, name); return errors.New(name + " failed") })
	}
	err := c.close()
	if !slices.Equal(order, []string{"b", "a"}) || err == nil || err.Error() != "b failed\na failed" {
		t.Errorf("order %v, error %v", order, err)
	}
	if err := c.close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
}
