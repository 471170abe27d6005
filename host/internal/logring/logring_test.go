package logring

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// read returns what a reader has not read yet.
func read(r *Reader) (texts []string, lost uint64) {
	for {
		lines, missed, more := r.Next()
		if more != nil {
			return texts, lost
		}
		lost += missed
		for _, l := range lines {
			texts = append(texts, string(l.Text))
		}
	}
}

func TestLinesComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	r := New(1 << 10)
	want := Line{At: time.Unix(7, 8), Level: hclog.Warn, Source: "core", Text: []byte("a\nb\n")}
	r.Add(want)
	lines, lost, _ := r.Reader().Next()
	if len(lines) != 1 || lost != 0 {
		t.Fatalf("got %v, %d lost", lines, lost)
	}
	if got := lines[0]; !got.At.Equal(want.At) || got.Level != want.Level || got.Source != want.Source || !bytes.Equal(got.Text, want.Text) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// The ring holds the latest lines of those that were added, whatever their lengths are.
func TestOldestLinesGiveWay(t *testing.T) {
	t.Parallel()
	const size = 1500
	random := rand.New(rand.NewPCG(1, 2))
	r := New(size)
	follower := r.Reader()
	var added []string
	for i := range 2000 {
		text := fmt.Sprintf("%d %s\n", i, strings.Repeat("x", random.IntN(120)))
		added = append(added, text)
		r.Add(Line{Source: "s", Text: []byte(text)})
		got, lost := read(r.Reader())
		if lost != 0 {
			t.Fatalf("a new reader has lost %d lines", lost)
		}
		if !slices.Equal(got, added[len(added)-len(got):]) {
			t.Fatalf("after %d lines, the ring does not have the latest", i+1)
		}
		total := 0
		for _, text := range got {
			total += headSize + 1 + len(text)
		}
		if i > 100 && (total > size || total < size/2) {
			t.Fatalf("the lines of the ring take %d bytes of %d", total, size)
		}
	}
	got, lost := read(follower)
	if lost+uint64(len(got)) != uint64(len(added)) || lost == 0 {
		t.Errorf("a reader got %d lines and lost %d of %d", len(got), lost, len(added))
	}
}

func TestLineThatIsTooLongIsCut(t *testing.T) {
	t.Parallel()
	r := New(0)
	r.Add(Line{Source: strings.Repeat("s", 300), Text: bytes.Repeat([]byte("x"), 2000)})
	r.Add(Line{Text: bytes.Repeat([]byte("y"), 2000)})
	if got, _ := read(r.Reader()); len(got) != 2 || len(got[0]) != minSize/2-headSize-maxSource || len(got[1]) != minSize/2-headSize {
		t.Errorf("got %q", got)
	}
}

// A reader that waits is woken, and one that does not read stops nobody.
func TestFollow(t *testing.T) {
	t.Parallel()
	r := New(1 << 10)
	_ = r.Reader() // never reads
	follower := r.Reader()
	const lines = 5000
	var got, lost uint64
	var done sync.WaitGroup
	done.Go(func() {
		for got+lost < lines {
			next, missed, more := follower.Next()
			got, lost = got+uint64(len(next)), lost+missed
			if more != nil {
				<-more
			}
		}
	})
	for range lines {
		r.Add(Line{Text: []byte("line\n")})
	}
	done.Wait()
	if got+lost != lines {
		t.Errorf("read %d and lost %d of %d lines", got, lost, lines)
	}
}

func BenchmarkAdd(b *testing.B) {
	r := New(4 << 20)
	line := Line{At: time.Now(), Level: hclog.Info, Source: "core", Text: bytes.Repeat([]byte("x"), 150)}
	b.ReportAllocs()
	for b.Loop() {
		r.Add(line)
	}
}
