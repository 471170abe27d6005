package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// Session is a client's "exec cat" in a pod: it gets back what it sends.
type Session struct {
	keyboard *io.PipeWriter
	screen   *io.PipeReader
	cancel   context.CancelFunc
	ended    chan struct{}
	err      error
}

// OpenSession starts a session through the API server. The caller closes it.
func OpenSession(config *rest.Config, namespace, pod string) (*Session, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	url := client.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: []string{"cat"}, Stdin: true, Stdout: true}, scheme.ParameterCodec).URL()
	exec, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, url.String())
	if err != nil {
		return nil, err
	}
	in, keyboard := io.Pipe()
	screen, out := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	s := &Session{keyboard: keyboard, screen: screen, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		s.err = exec.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: out})
		_ = out.CloseWithError(fmt.Errorf("the stream has ended: %w", s.err))
		_ = in.CloseWithError(io.ErrClosedPipe)
	}()
	return s, nil
}

// ErrSilent is the error of a session that sends nothing back.
var ErrSilent = errors.New("the session does not respond")

// Echo sends a text and waits until it comes back.
func (s *Session) Echo(text string, patience time.Duration) error {
	silence := time.AfterFunc(patience, func() { _ = s.screen.CloseWithError(ErrSilent) })
	defer silence.Stop()
	got := make([]byte, len(text))
	if _, err := io.WriteString(s.keyboard, text); err != nil {
		<-s.ended
		return fmt.Errorf("the stream has ended: %w", s.err)
	}
	if _, err := io.ReadFull(s.screen, got); err != nil {
		return err
	}
	if string(got) != text {
		return fmt.Errorf("%q comes back as %q", text, got)
	}
	return nil
}

// Ended is closed when the stream has ended.
func (s *Session) Ended() <-chan struct{} { return s.ended }

// Close ends the session.
func (s *Session) Close() {
	s.cancel()
	<-s.ended
}
