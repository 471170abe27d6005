// Package support writes an archive of what is known of a server, for those who look for a fault
// elsewhere. Each part has a deadline, and secrets are taken out.
package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/catena-dev/catena/host/internal/printable"
)

// Part is a file of the archive.
type Part struct {
	Name string
	// About is what is in it, for the index.
	About string
	// Binary reports whether it is no text, and has no secrets.
	Binary bool
	// Timeout is how long Write may take; ten seconds if it is 0.
	Timeout time.Duration
	// Write writes what there is. What it has written before an error is kept.
	Write func(ctx context.Context, w io.Writer) error
}

// Result is what became of a part.
type Result struct {
	Part
	Content []byte
	// Err is why something is missing.
	Err error
}

const (
	defaultTimeout = 10 * time.Second
	// maxPart is the most bytes of a part that are kept.
	maxPart = 32 << 20
	// atOnce is how many parts are collected at the same time.
	atOnce = 8
)

var (
	errTooLong  = errors.New("is cut off at 32 MiB")
	errTimedOut = errors.New("did not come within")
)

// Collect returns the results of all parts, in their order. A part that does not return after its deadline is
// left behind.
func Collect(ctx context.Context, parts []Part, secrets *Secrets) []Result {
	results := make([]Result, len(parts))
	free := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, p := range parts {
		all.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			results[i] = collect(ctx, p)
			if !p.Binary {
				results[i].Content = []byte(printable.Text(string(secrets.Remove(results[i].Content))))
			}
			if err := results[i].Err; err != nil {
				results[i].Err = errors.New(string(secrets.Remove([]byte(err.Error()))))
			}
		})
	}
	all.Wait()
	return results
}

func collect(ctx context.Context, p Part) Result {
	timeout := p.Timeout
	if timeout == 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var written limited
	returned := make(chan error, 1)
	go func() { returned <- p.Write(ctx, &written) }()
	var err error
	select {
	case err = <-returned:
	case <-ctx.Done():
		select { // a part that heeds its deadline may say more
		case err = <-returned:
		case <-time.After(timeout / 10):
			err = fmt.Errorf("%w %s", errTimedOut, timeout)
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w %s", errTimedOut, timeout)
	}
	return Result{Part: p, Content: written.take(), Err: err}
}

// limited keeps what is written to it, up to a limit, until it is taken.
type limited struct {
	mu    sync.Mutex
	b     bytes.Buffer
	taken bool
}

func (l *limited) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.taken {
		return 0, errTimedOut
	}
	room := maxPart - l.b.Len()
	l.b.Write(p[:min(len(p), room)])
	if len(p) > room {
		return room, errTooLong
	}
	return len(p), nil
}

func (l *limited) take() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken = true
	return l.b.Bytes()
}

// Create writes the archive, which must not exist yet. If that fails, it removes it.
func Create(path, dir string, at time.Time, results []Result) (size int64, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	err = write(f, dir, at, results)
	if err == nil {
		err = f.Sync()
	}
	if info, statErr := f.Stat(); statErr == nil {
		size = info.Size()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(path))
	}
	return size, nil
}

func write(out io.Writer, dir string, at time.Time, results []Result) error {
	zip := gzip.NewWriter(out)
	archive := tar.NewWriter(zip)
	add := func(name string, content []byte) error {
		err := archive.WriteHeader(&tar.Header{Name: dir + "/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: at})
		if err == nil {
			_, err = archive.Write(content)
		}
		return err
	}
	if err := add("README.txt", index(at, results)); err != nil {
		return err
	}
	for _, r := range results {
		if len(r.Content) == 0 {
			continue
		}
		if err := add(r.Name, r.Content); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), zip.Close())
}

// index says what the archive contains, and what is missing.
func index(at time.Time, results []Result) []byte {
	var b, missing bytes.Buffer
	fmt.Fprintf(&b, "What catena support collected at %s.\n\n", at.UTC().Format(time.RFC3339))
	for _, r := range results {
		if len(r.Content) > 0 {
			fmt.Fprintf(&b, "%-40s %s\n", r.Name, r.About)
		}
		if r.Err != nil {
			fmt.Fprintf(&missing, "%-40s %s\n", r.Name, r.Problem())
		}
	}
	b.WriteString(`
Left out on purpose: private keys, tokens, kubeconfigs, environments of processes, values of
stages.NAME.env and secret values of stages.NAME.config, the contents of the data directory and
of etcd. Values that are known to be secret, and what looks like a key or a token, is replaced
by *** wherever it stands.
`)
	if missing.Len() > 0 {
		b.WriteString("\nMissing or incomplete:\n\n")
		b.Write(missing.Bytes())
	}
	return b.Bytes()
}

// Problem returns why a part is missing or incomplete, in one line.
func (r Result) Problem() string {
	text := printable.Line(strings.ReplaceAll(r.Err.Error(), "\n", "; "))
	if len(r.Content) > 0 {
		return "incomplete: " + text
	}
	return text
}
