package sdk_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// echoUpgrade switches to a protocol that sends back what it gets, until its end.
func echoUpgrade(w http.ResponseWriter) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	_, _ = io.Copy(conn, buffered)
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// dialUpgrade asks for the protocol echo.
func dialUpgrade(url, path string) (net.Conn, *bufio.Reader, error) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		return nil, nil, err
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", path)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		return nil, nil, errors.Join(err, fmt.Errorf("response %v", resp))
	}
	return conn, r, nil
}

// switchProtocol has the server write the head of a 101, and then takes the connection over, or returns.
func switchProtocol(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "Upgrade")
	w.Header().Set("Upgrade", "echo")
	w.Header().Set(stagev1.HeaderDecline, "forged")
	sdk.SetHostHeader(w, stagev1.HeaderAudit, "{}")
	if r.URL.Query().Has("held") {
		sdk.HoldResponse(w, func() {})
	}
	w.WriteHeader(http.StatusSwitchingProtocols)
	if r.URL.Query().Has("return") {
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	_, _ = io.Copy(conn, buffered)
}

// What follows a 101 of the server's is the handler's: nothing of it is held back, left out or added.
func TestSwitchAndHijack(t *testing.T) {
	both(t, func(t *testing.T, start start) {
		stage := start(t, stagetest.Options{})
		for _, path := range []string{"/switch", "/switch?held"} {
			resp := ask(t, stage.Socket(), http.MethodGet, path, "Connection: Upgrade\r\nUpgrade: echo\r\n")
			if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get(stagev1.HeaderAudit) != "{}" ||
				resp.Header.Get(stagev1.HeaderDecline)+resp.Header.Get(stagev1.HeaderRaw) != "" {
				t.Errorf("%s: %s %v", path, resp.Status, resp.Header)
			}
			frames := []string{"\x81\x05hello", "X-Catena-Decline: 1\r\n", "a\r\n\r\nb", "X-Catena-Audit: 1\r\n\r\n"}
			for _, frame := range frames {
				got := make([]byte, len(frame))
				if _, err := io.WriteString(resp.Body.(io.Writer), frame); err != nil {
					t.Fatal(err)
				}
				if n, err := io.ReadFull(resp.Body, got); string(got) != frame {
					t.Fatalf("%s: %q is %q, %v", path, frame, got[:n], err)
				}
			}
		}
	})
}

// A 101 whose connection no handler takes over ends it: what the client sends then, which the host passes on as it is,
// is no request, whatever user it names.
func TestSwitchWithoutHijack(t *testing.T) {
	both(t, func(t *testing.T, start start) {
		stage := start(t, stagetest.Options{})
		conn, err := net.Dial("unix", stage.Socket())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		const upgrade = "GET /switch?return HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
		const forged = "GET /user HTTP/1.1\r\nHost: h\r\nX-Catena-User: {\"name\":\"forged\"}\r\n\r\n"
		if _, err := io.WriteString(conn, upgrade+forged); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(conn)
		head, rest, _ := strings.Cut(string(got), "\r\n\r\n")
		if !strings.HasPrefix(head, "HTTP/1.1 101 ") || rest != "" {
			t.Errorf("%q, %v", got, err)
		}
	})
}
