package system

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coder "github.com/coder/websocket"
	gorilla "github.com/gorilla/websocket"
	xnet "golang.org/x/net/websocket"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// upgrades are the paths of a stage at which it switches protocols, by the library in the next segment.
func upgrades(stage string) string { return "/apis/" + stage + ".example.com/v1/upgrades/" }

func upgradePath(stage, library string) string { return upgrades(stage) + library + "/exec" }

// switchProtocols switches protocols by the library that a path names, and sends back what comes.
func switchProtocols(w http.ResponseWriter, r *http.Request) {
	switch strings.Split(r.URL.Path, "/")[5] {
	case "gorilla":
		echoByGorilla(w, r)
	case "coder":
		echoByCoder(w, r)
	case "xnet":
		xnet.Server{Handler: func(c *xnet.Conn) { _, _ = io.Copy(c, c) }}.ServeHTTP(w, r)
	case "proxy":
		if err := proxyToEcho(w, r); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	case "spdy":
		echoBySPDY(w, r)
	case "controller":
		echoByController(w)
	case "unhijacked":
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "echo")
		w.WriteHeader(http.StatusSwitchingProtocols)
	}
}

func echoByGorilla(w http.ResponseWriter, r *http.Request) {
	var upgrader gorilla.Upgrader
	c, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer c.Close()
	for {
		kind, message, err := c.ReadMessage()
		if err != nil || c.WriteMessage(kind, message) != nil {
			return
		}
	}
}

func echoByCoder(w http.ResponseWriter, r *http.Request) {
	c, err := coder.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer c.CloseNow()
	c.SetReadLimit(-1)
	for {
		kind, message, err := c.Read(r.Context())
		if err != nil || c.Write(r.Context(), kind, message) != nil {
			return
		}
	}
}

// proxyToEcho has a server of its own respond, through a reverse proxy.
func proxyToEcho(w http.ResponseWriter, r *http.Request) error {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		return err
	}
	backend := &http.Server{Handler: http.HandlerFunc(echoByGorilla)}
	go func() { _ = backend.Serve(listener) }()
	defer backend.Close()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", listener.Addr().String())
	}}
	defer transport.CloseIdleConnections()
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "backend"})
	proxy.Transport = transport
	proxy.ServeHTTP(w, r)
	return nil
}

func echoBySPDY(w http.ResponseWriter, r *http.Request) {
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, _ <-chan struct{}) error {
		go func() {
			_, _ = io.Copy(stream, stream)
			_ = stream.Close()
		}()
		return nil
	})
	if conn != nil {
		<-conn.CloseChan()
	}
}

// echoByController uses all that http.ResponseController has.
func echoByController(w http.ResponseWriter) {
	control, deadline := http.NewResponseController(w), time.Now().Add(-time.Second)
	if err := errors.Join(control.EnableFullDuplex(), control.SetReadDeadline(deadline), control.SetWriteDeadline(deadline)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	conn, buffered, err := control.Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	_ = buffered.Flush()
	_, _ = io.Copy(conn, buffered)
}

// anyServer is for clients for which it does not matter who the server is.
var anyServer = &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}

// webSockets are the clients of WebSocket: each connects, sends messages, wants them back, and closes the connection.
var webSockets = map[string]func(ctx context.Context, url string, header http.Header, messages [][]byte) error{
	"gorilla": func(ctx context.Context, url string, header http.Header, messages [][]byte) error {
		c, _, err := (&gorilla.Dialer{TLSClientConfig: anyServer}).DialContext(ctx, url, header)
		if err != nil {
			return err
		}
		defer c.Close()
		deadline, _ := ctx.Deadline()
		_ = c.SetReadDeadline(deadline)
		err = echoed(messages, func(p []byte) error { return c.WriteMessage(gorilla.BinaryMessage, p) }, func() ([]byte, error) {
			_, p, err := c.ReadMessage()
			return p, err
		})
		return errors.Join(err, c.WriteMessage(gorilla.CloseMessage, nil))
	},
	"coder": func(ctx context.Context, url string, header http.Header, messages [][]byte) error {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: anyServer}}
		defer client.CloseIdleConnections()
		c, _, err := coder.Dial(ctx, url, &coder.DialOptions{HTTPClient: client, HTTPHeader: header})
		if err != nil {
			return err
		}
		defer c.CloseNow()
		c.SetReadLimit(-1)
		return echoed(messages, func(p []byte) error { return c.Write(ctx, coder.MessageBinary, p) }, func() ([]byte, error) {
			_, p, err := c.Read(ctx)
			return p, err
		})
	},
	"xnet": func(ctx context.Context, url string, header http.Header, messages [][]byte) error {
		config, err := xnet.NewConfig(url, strings.Replace(url, "wss", "https", 1))
		if err != nil {
			return err
		}
		config.Header, config.TlsConfig = header, anyServer
		c, err := config.DialContext(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		deadline, _ := ctx.Deadline()
		_ = c.SetDeadline(deadline)
		c.PayloadType = xnet.BinaryFrame
		return echoed(messages, func(p []byte) error { return xnet.Message.Send(c, p) }, func() ([]byte, error) {
			var p []byte // of the server of x/net, a message may come in several
			for {
				var more []byte
				if err := xnet.Message.Receive(c, &more); err != nil {
					return nil, err
				}
				if p = append(p, more...); bytes.HasSuffix(p, messageEnd) {
					return p, nil
				}
			}
		})
	},
}

var messageEnd = []byte("\n.")

// echoed sends messages, and wants them back.
func echoed(messages [][]byte, send func([]byte) error, receive func() ([]byte, error)) error {
	for _, m := range messages {
		if err := send(m); err != nil {
			return err
		}
		switch got, err := receive(); {
		case err != nil:
			return err
		case !bytes.Equal(got, m):
			return errors.New("another message has come back")
		}
	}
	return nil
}

// Whichever library switches the protocol in a stage: it works as it does in a server of net/http, with each client.
func TestUpgradesByLibraries(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	var messages [][]byte
	for _, n := range []int{1, 125, 4 << 10, 20_000} {
		messages = append(messages, append(bytes.Repeat([]byte("X-Catena-A: b\r\n"), n/15+1), messageEnd...))
	}
	for _, server := range []string{"gorilla", "coder", "xnet", "proxy"} {
		for name, client := range webSockets {
			if server == "xnet" && name != "xnet" {
				continue // its messages are what io.Copy reads at once
			}
			for _, wrap := range []string{"none", "front,middle"} {
				header := headerOf([]string{"Authorization: Bearer admin-token", wrapHeader + ": " + wrap})
				target := strings.Replace(l.URL, "https", "wss", 1) + upgradePath("behind", server)
				if err := client(ctx, target, header, messages); err != nil {
					t.Errorf("client %s, server %s, wrapped by %s: %v", name, server, wrap, err)
				}
			}
		}
	}
}

// SPDY of Kubernetes, as kubelets and clients of exec speak it.
func TestUpgradeToSPDY(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	for _, wrap := range []string{"none", "front,middle"} {
		transport, err := spdy.NewRoundTripper(anyServer)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.URL+upgradePath("behind", "spdy"), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = headerOf([]string{"Authorization: Bearer admin-token", wrapHeader + ": " + wrap})
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := transport.NewConnection(resp)
		if err != nil {
			t.Fatalf("wrapped by %s: %v", wrap, err)
		}
		defer conn.Close()
		for _, text := range []string{"first", strings.Repeat("a longer one\r\n\r\n", 10_000)} {
			stream, err := conn.CreateStream(http.Header{})
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				_, _ = io.WriteString(stream, text)
				_ = stream.Close()
			}()
			if got, err := io.ReadAll(stream); string(got) != text {
				t.Errorf("wrapped by %s: %d bytes, %v", wrap, len(got), err)
			}
		}
	}
}

// A stage that uses all of http.ResponseController and then takes the connection over, has it without deadlines.
func TestUpgradeByController(t *testing.T) {
	t.Parallel()
	conn := dial(t, theLong(t).Server)
	conn.send("GET " + upgradePath("behind", "controller") + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin-token\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	if resp := conn.response("GET"); resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp.Status)
	}
	conn.send("some words\n")
	if got := conn.line(); got != "some words\n" {
		t.Errorf("%q", got)
	}
}

// A client cannot speak to a stage in the host's name behind a 101 whose connection the stage's handler has not taken over.
func TestForgedBehindSwitch(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	for _, wrap := range []string{"none", "front", "front,middle"} {
		conn := dial(t, l.Server)
		conn.send("GET " + upgradePath("behind", "unhijacked") + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin-token\r\n" +
			"Connection: Upgrade\r\nUpgrade: echo\r\n" + wrapHeader + ": " + wrap + "\r\n\r\n" +
			"GET /stage/behind HTTP/1.1\r\nHost: x\r\nX-Catena-User: {\"name\":\"forged\",\"groups\":[\"system:masters\"]}\r\n\r\n")
		if resp := conn.response("GET"); resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatal(resp.Status)
		}
		if rest, err := io.ReadAll(conn.in); len(rest) > 0 || isTimeout(err) {
			t.Errorf("wrapped by %s: %q, %v", wrap, rest, err)
		}
	}
}
