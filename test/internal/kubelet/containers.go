package kubelet

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// ExecInContainer implements remotecommand.Executor with the commands that tests need:
//
//	echo WORD...       to standard output
//	fail CODE WORD...  to standard error, with that exit code
//	cat                standard input to standard output, until its end
//	size               the first size of the terminal
func (k *Kubelet) ExecInContainer(ctx context.Context, _, _, _ string, cmd []string, in io.Reader, out, errOut io.WriteCloser,
	_ bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	switch {
	case cmd[0] == "echo":
		_, err := fmt.Fprintln(out, strings.Join(cmd[1:], " "))
		return err
	case cmd[0] == "fail" && len(cmd) > 1:
		code, err := strconv.Atoi(cmd[1])
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(errOut, strings.Join(cmd[2:], " ")); err != nil {
			return err
		}
		return utilexec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", code), Code: code}
	case cmd[0] == "cat" && in != nil:
		_, err := io.Copy(out, in)
		return err
	case cmd[0] == "size":
		select {
		case s := <-resize:
			_, err := fmt.Fprintf(out, "%dx%d\n", s.Width, s.Height)
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fmt.Errorf("exec: %q: executable file not found", cmd[0])
}

// AttachContainer implements remotecommand.Attacher: the container's process prints a
// line, then repeats its input in capitals.
func (k *Kubelet) AttachContainer(_ context.Context, pod, _, container string, in io.Reader, out, _ io.WriteCloser,
	_ bool, _ <-chan remotecommand.TerminalSize) error {
	k.attached.Add(1)
	defer k.attached.Add(-1)
	if _, err := fmt.Fprintf(out, "attached to %s/%s\n", pod, container); err != nil || in == nil {
		return err
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := in.Read(buf)
		if n > 0 {
			if _, err := io.WriteString(out, strings.ToUpper(string(buf[:n]))); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Attached returns how many clients are attached to containers.
func (k *Kubelet) Attached() int { return int(k.attached.Load()) }

// PortForward implements portforward.PortForwarder: the ports of a pod are those of
// the loopback interface.
func (k *Kubelet) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	defer conn.Close()
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(conn, stream)
		_ = conn.(*net.TCPConn).CloseWrite()
		sent <- err
	}()
	if _, err := io.Copy(stream, conn); err != nil {
		return err
	}
	_ = stream.Close()
	return <-sent
}

// Log appends to what the pod's container has logged.
func (k *Kubelet) Log(namespace, pod, text string) {
	k.logs.write(types.NamespacedName{Namespace: namespace, Name: pod}, text)
}

// Followers returns how many clients are reading logs that go on.
func (k *Kubelet) Followers() int {
	k.logs.mu.Lock()
	defer k.logs.mu.Unlock()
	return k.logs.followers
}

// logStore holds the logs of all pods.
type logStore struct {
	mu      sync.Mutex
	text    map[types.NamespacedName]string
	changed chan struct{} // closed at the next write

	followers int
}

func (s *logStore) init() {
	s.text = map[types.NamespacedName]string{}
	s.changed = make(chan struct{})
}

func (s *logStore) write(pod types.NamespacedName, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text[pod] += text
	close(s.changed)
	s.changed = make(chan struct{})
}

// copy writes a pod's log to w, and if it follows goes on until the context ends.
func (s *logStore) copy(ctx context.Context, w io.Writer, pod types.NamespacedName, follow bool) {
	if follow {
		s.follow(1)
		defer s.follow(-1)
	}
	for sent := 0; ; {
		s.mu.Lock()
		text, changed := s.text[pod], s.changed
		s.mu.Unlock()
		// The write of an empty log sends the head of the response.
		if _, err := io.WriteString(w, text[sent:]); err != nil || !follow {
			return
		}
		sent = len(text)
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (s *logStore) follow(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followers += n
}
