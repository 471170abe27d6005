// Package problems lists what is wrong with a configuration: one error for each line to
// print, with the place where its key was set.
package problems

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/catena-dev/catena/host/internal/config"
)

// Split takes joined errors apart.
func Split(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // only what errors.Join made
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, Split(e)...)
		}
		return all
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// List puts each of several errors on a line of its own, below their number.
func List(err error) error {
	all := Split(err)
	if len(all) < 2 {
		return err
	}
	return &list{err: err, items: all}
}

// list is several errors.
type list struct {
	err   error
	items []error
}

func (l *list) title() string { return fmt.Sprintf("the configuration has %d errors:", len(l.items)) }
func (l *list) Error() string { return l.title() + "\n" + l.err.Error() }
func (l *list) Unwrap() error { return l.err }

// Items makes each error a line that begins with its place, as editors read it: see package printable.
func (l *list) Items() (title string, items []error) { return l.title(), l.items }

// keyPattern is a key in an error of code that does not know the layers of the
// configuration: a flag anywhere, or a key of a stage at the beginning. The item of a list
// has the place of the list.
var keyPattern = regexp.MustCompile(`\bapiserver\.[a-z0-9]+(?:-[a-z0-9]+)*|^stages\.[^:,\[]+`)

// Locate begins each of the joined errors with the place where the first key in it that is
// set was set. Libraries and stages name the key alone.
func Locate(cfg *config.Config, err error) error {
	all := Split(err)
	for i, e := range all {
		if where := place(cfg, e.Error()); where != "" {
			all[i] = &located{where: where, err: e}
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return errors.Join(all...)
}

// located is an error about a key, with the place where that was set.
type located struct {
	where string
	err   error
}

func (e *located) Error() string {
	message := e.err.Error()
	if key, ok := strings.CutPrefix(e.where, "--set "); ok {
		message = withoutKey(message, key)
	}
	return e.where + ": " + message
}

func (e *located) Unwrap() error { return e.err }

// withoutKey drops the key from the beginning of a message, as it has been named already,
// unless another key follows: then the message needs both.
func withoutKey(message, key string) string {
	rest, ok := strings.CutPrefix(message, key)
	if !ok {
		return message
	}
	for _, separator := range []string{": ", " "} {
		if after, ok := strings.CutPrefix(rest, separator); ok && !strings.HasPrefix(after, "and ") {
			return after
		}
	}
	if strings.HasPrefix(rest, "[") { // an item of the list
		return rest
	}
	return message
}

// place is empty if no layer has set a key that the message names.
func place(cfg *config.Config, message string) string {
	for _, key := range keyPattern.FindAllString(message, -1) {
		where := cfg.Where(key)
		if cfg.IsSet(key) || strings.HasPrefix(key, "stages.") && where != "default" {
			return where
		}
	}
	return ""
}
