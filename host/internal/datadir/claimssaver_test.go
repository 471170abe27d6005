package datadir

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/sdk/claim"
)

// A data directory on a disk that hangs delays nothing but the file.
func TestClaimsAreSavedWithoutWaiting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// A FIFO without a reader blocks the write as such a disk does.
	fifo := filepath.Join(dir, "claims.json.new")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	f := OpenClaims(dir, hclog.NewNullLogger())
	for i := range 100 {
		f.Save(map[string][]claim.Claim{"a": {claim.Exact(fmt.Sprintf("/%d", i))}})
	}
	if got := f.Of("a"); !slices.Equal(got, []claim.Claim{claim.Exact("/99")}) {
		t.Errorf("the claims are %v", got)
	}
	r, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f.Save(map[string][]claim.Claim{"a": {claim.Exact("/late")}}) // too late, and no harm
}

// The file has the latest claims when it is closed.
func TestLatestClaimsAreSaved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := OpenClaims(dir, hclog.NewNullLogger())
	var want map[string][]claim.Claim
	for i := range 100 {
		want = map[string][]claim.Claim{"a": {claim.Exact(fmt.Sprintf("/%d", i))}, "b": {claim.Prefix("/b")}}
		f.Save(want)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got := ReadClaims(dir); !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := OpenClaims(dir, hclog.NewNullLogger()).Of("b"); !slices.Equal(got, want["b"]) {
		t.Errorf("the next start has %v", got)
	}
}

// Claims that change again and again are written at once, and then after a pause.
func TestClaimsAreSavedWithPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		f := OpenClaims(dir, hclog.NewNullLogger())
		began, seen := time.Now(), map[string]bool{}
		for i := 0; time.Since(began) < 10*bounds.ClaimsPause; i++ {
			f.Save(map[string][]claim.Claim{"a": {claim.Exact(fmt.Sprintf("/%d", i))}})
			synctest.Wait()
			seen[fmt.Sprint(ReadClaims(dir))] = true
			time.Sleep(bounds.ClaimsPause / 20)
		}
		if n := len(seen); n < 9 || n > 12 {
			t.Errorf("the file was written %d times in ten pauses", n)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
