package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/catena-dev/catena/host/internal/percent"
	"github.com/catena-dev/catena/host/internal/suggest"
)

// Rollback is what makes a swap go back to the previous generation.
type Rollback struct {
	// ErrorRate is the share of failed requests, from 0 to 1, above which the swap is
	// rolled back; 0 turns that off.
	ErrorRate float64
	// Health is set if a failed health check rolls it back.
	Health bool
}

// ParseRollback parses the elements of rollbackOn: errors=N%, health.
func ParseRollback(conditions []string) (Rollback, error) {
	var r Rollback
	var errs []error
	for _, c := range conditions {
		rate, isRate := strings.CutPrefix(c, "errors=")
		switch {
		case c == "health" && !r.Health:
			r.Health = true
		case isRate && r.ErrorRate == 0:
			share, err := percent.Parse(rate, 1)
			if err != nil {
				errs = append(errs, fmt.Errorf("errors: %w", err))
			}
			r.ErrorRate = share
		case c == "health" || isRate:
			errs = append(errs, fmt.Errorf("has %q after another of its kind", c))
		default:
			hint := suggest.DidYouMean(c, []string{"health"})
			errs = append(errs, fmt.Errorf("want errors=N%% or health, have %q%s", c, hint))
		}
	}
	return r, errors.Join(errs...)
}

func rollbackOn(v any) error {
	list, _ := v.([]string)
	_, err := ParseRollback(list)
	return err
}
