package fuzz

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// holdings is what the host holds.
type holdings struct {
	goroutines, descriptors, processes int
	stacks                             map[string]int // goroutines by their functions
	files                              []string       // below the runtime directory
}

// holdings counts what the host holds.
func (s *site) holdings(ctx context.Context) (h holdings, err error) {
	ctx, cancel := context.WithTimeout(ctx, others)
	defer cancel()
	_, profile, err := s.get(ctx, nil, "/debug/pprof/goroutine?debug=1")
	if err != nil {
		return h, err
	}
	if _, err := fmt.Sscanf(string(profile), "goroutine profile: total %d", &h.goroutines); err != nil {
		return h, err
	}
	h.stacks = stacksOf(string(profile))
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.Process().PID()))
	if err != nil {
		return h, err
	}
	h.descriptors, h.processes = len(entries), len(cluster.Children(s.Process().PID()))
	err = filepath.WalkDir(filepath.Join(s.DataDir(), "run"), func(path string, _ fs.DirEntry, err error) error {
		h.files = append(h.files, path)
		if errors.Is(err, fs.ErrNotExist) { // it has just been removed
			err = nil
		}
		return err
	})
	return h, err
}

// function is one of a stack in a profile.
var function = regexp.MustCompile(`(?m)^#\t0x[0-9a-f]+\t(\S+?)\+0x`)

// stacksOf returns how many goroutines of a profile have each stack.
func stacksOf(profile string) map[string]int {
	stacks := map[string]int{}
	for block := range strings.SplitSeq(profile, "\n\n") {
		count, _, _ := strings.Cut(strings.TrimSpace(block[strings.LastIndex(block, "total ")+1:]), " @")
		if i := strings.LastIndexByte(count, '\n'); i >= 0 {
			count = count[i+1:]
		}
		n, err := strconv.Atoi(count)
		if err != nil {
			continue
		}
		var names []string
		for _, m := range function.FindAllStringSubmatch(block, -1) {
			names = append(names, m[1])
		}
		stacks[strings.Join(names, " < ")] += n
	}
	return stacks
}

// grown lists stacks that more goroutines have than before.
func grown(before, now map[string]int) string {
	more := slices.SortedFunc(maps.Keys(now), func(a, b string) int { return now[b] - before[b] - (now[a] - before[a]) })
	out := ""
	for _, stack := range more[:min(len(more), 12)] {
		out += fmt.Sprintf("%6d %s\n", now[stack]-before[stack], stack)
	}
	return out
}

// slack is how many more goroutines and descriptors the host may hold than before, for connections and informers of Kubernetes' stages, which may be
// swapped meanwhile. What is lost with each process, or each request, is more than that in a run of hours.
const slack = 150

// forgets removes the stages at random, and waits until the host holds nothing of them.
func (s *site) forgets(t *testing.T, before holdings) {
	t.Helper()
	remove := func() error { return s.apply(t.Context(), func(c *chain) { clear(c.with) }) }
	// A change that is under way, or that a stage ends, may be in the way of this one.
	if err := within(remove); err != nil {
		t.Errorf("the stages cannot be removed: %v", err)
		return
	}
	began := time.Now()
	err := within(func() error { return s.forgot(t.Context(), before) })
	if err != nil {
		t.Errorf("after the stages are removed: %v", err)
		return
	}
	t.Logf("all is forgotten %s after the stages are removed", time.Since(began).Round(time.Millisecond))
}

// within calls a function until it succeeds, for as long as forgetting may take.
func within(f func() error) error {
	for end := time.Now().Add(forgetting); ; time.Sleep(time.Second) {
		if err := f(); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// forgot returns an error if the host holds more than before, or knows of the stages at random.
func (s *site) forgot(ctx context.Context, before holdings) error {
	now, err := s.holdings(ctx)
	if err != nil {
		return err
	}
	if now.processes > before.processes || now.descriptors > before.descriptors+slack || now.goroutines > before.goroutines+slack || len(now.files) > len(before.files) {
		return fmt.Errorf("the host holds %d goroutines, %d descriptors, %d processes and %d files, and held %d, %d, %d and %d; the files are %q, and more goroutines than before are\n%s",
			now.goroutines, now.descriptors, now.processes, len(now.files), before.goroutines, before.descriptors, before.processes, len(before.files), now.files, grown(before.stacks, now.stacks))
	}
	if claims, _ := os.ReadFile(filepath.Join(s.DataDir(), "claims.json")); strings.Contains(string(claims), "random-") {
		return fmt.Errorf("the claims are still %s", claims)
	}
	ctx, cancel := context.WithTimeout(ctx, others)
	defer cancel()
	for path, want := range map[string]int{"/metrics": http.StatusOK, "/": http.StatusOK, "/readyz?verbose": http.StatusOK, "/fuzz/random-a/x": http.StatusNotFound} {
		code, body, err := s.get(ctx, nil, path)
		if err != nil {
			return err
		}
		if code != want {
			return fmt.Errorf("%s: %d %.500s", path, code, body)
		}
		for line := range strings.Lines(string(body)) {
			if want == http.StatusOK && known(line) {
				return fmt.Errorf("%s has %.500s", path, line)
			}
		}
	}
	return nil
}

// cumulative is the beginning of a series of the host that counts for as long as it runs: there are as many as
// operators have given names to stages, or, of what kube-apiserver has too, as clients have used paths.
var cumulative = regexp.MustCompile(`^(catena|apiserver)_[a-z_]+_(total|bucket|sum|count)\{`)

// known reports whether a line of a response is about the stages at random, and should not be there any more.
func known(line string) bool {
	return strings.Contains(line, "fuzz_things") || strings.Contains(line, "random-") && !cumulative.MatchString(line)
}
