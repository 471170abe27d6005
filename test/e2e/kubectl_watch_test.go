package e2e

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"
)

// stream is a kubectl whose output is read while it runs.
type stream struct {
	t     *testing.T
	lines chan string
	done  chan struct{}
	err   error // of the process, when done
	stop  context.CancelFunc
}

// start runs kubectl in the background, until it ends or stop is called.
func (k *kubectl) start(args ...string) *stream {
	k.t.Helper()
	return k.startWith(nil, args...)
}

// startWith is start with a standard input, which has to end before the test.
func (k *kubectl) startWith(stdin io.Reader, args ...string) *stream {
	k.t.Helper()
	ctx, cancel := context.WithCancel(k.t.Context())
	cmd := k.command(ctx, args...)
	s := &stream{t: k.t, lines: make(chan string, 1000), done: make(chan struct{}), stop: cancel}
	cmd.Stdin = stdin
	out, err := cmd.StdoutPipe()
	if err == nil {
		cmd.Stderr = cmd.Stdout
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		k.t.Fatal(err)
	}
	go func() {
		defer close(s.done)
		defer close(s.lines)
		scanner := bufio.NewScanner(out)
		for scanner.Scan() {
			s.lines <- scanner.Text()
		}
		s.err = cmd.Wait()
	}()
	k.t.Cleanup(func() {
		cancel()
		<-s.done
	})
	return s
}

// next reads a line.
func (s *stream) next() string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), timeout)
	defer cancel()
	select {
	case line, ok := <-s.lines:
		if !ok {
			s.t.Fatal("the command has ended, a line was to come")
		}
		return line
	case <-ctx.Done():
		s.t.Fatal("no line comes")
	}
	return ""
}

// expect reads the next line, in which any white space is like a blank.
func (s *stream) expect(want string) {
	s.t.Helper()
	if got := strings.Join(strings.Fields(s.next()), " "); got != want {
		s.t.Fatalf("the next line is %q, want %q", got, want)
	}
}

// skipTo reads lines until one has the text.
func (s *stream) skipTo(text string) {
	s.t.Helper()
	for !strings.Contains(s.next(), text) {
	}
}

// end waits until the command has ended by itself, with success.
func (s *stream) end() {
	s.t.Helper()
	s.gone()
	if s.err != nil {
		s.t.Fatal(s.err)
	}
}

// gone waits until the command has ended by itself.
func (s *stream) gone() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), timeout)
	defer cancel()
	select {
	case <-s.done:
	case <-ctx.Done():
		s.t.Fatal("the command does not end")
	}
}

func TestKubectlWatch(t *testing.T) {
	t.Parallel()
	k := shared(t).kubectl(t)
	kind := createKind(k, "Ticker", "tickers")
	for resource, create := range map[string]func(name string) string{
		"secrets": func(name string) string {
			return "apiVersion: v1\nkind: Secret\nmetadata: {name: " + name + "}\n"
		},
		kind.resource: func(name string) string { return kind.object(name, 1) },
	} {
		t.Run(resource, func(t *testing.T) {
			k := k.in(t)
			k.pipe(create("before"), "apply", "-f", "-")
			w := k.start("get", resource, "--watch", "--output-watch-events", "-o",
				`jsonpath={.type} {.object.metadata.name} {.object.metadata.annotations.a}{"\n"}`)
			w.expect("ADDED before")
			k.run("annotate", resource, "before", "a=1")
			w.expect("MODIFIED before 1")
			k.pipe(create("after"), "create", "-f", "-")
			w.expect("ADDED after")
			k.run("delete", resource, "before")
			w.expect("DELETED before 1")
		})
	}
}

func TestKubectlWait(t *testing.T) {
	t.Parallel()
	k := shared(t).kubectl(t)
	k.pipe(configMap("awaited", "phase: young"), "apply", "-f", "-")
	k.fail("", []string{"wait", "--for=jsonpath={.data.phase}=old", "configmap/awaited", "--timeout=300ms"}, "timed out waiting for the condition")

	// -v=6 prints the requests, so that what is awaited happens after the watch has begun.
	old := k.start("wait", "--for=jsonpath={.data.phase}=old", "configmap/awaited", patiently, "-v=6")
	old.skipTo("watch=true")
	k.run("patch", "configmap", "awaited", "-p", `{"data":{"phase":"old"}}`)
	old.skipTo("configmap/awaited condition met")
	old.end()

	gone := k.start("wait", "--for=delete", "configmap/awaited", patiently, "-v=6")
	gone.skipTo("watch=true")
	k.run("delete", "configmap", "awaited")
	gone.skipTo("configmap/awaited condition met")
	gone.end()

	k.run("create", "deployment", "web", "--image=web:1")
	k.run("wait", "--for=condition=Available", "deployment/web", patiently)
}
