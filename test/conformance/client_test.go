package conformance

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/test/internal/cluster"
)

const (
	requestTimeout = time.Minute // needed only on a machine whose DNS server does not respond
	untilTimeout   = 3 * time.Minute
	pollInterval   = 100 * time.Millisecond
)

// response is the response of a server.
type response struct {
	status int
	header http.Header
	body   []byte
	// ended is the error with which the response ended, if it is incomplete.
	ended string
}

// client talks to one server.
type client struct {
	server *cluster.Server
	vars   map[string]string
	tls    *tls.Config
	http1  *http.Client
	http2  *http.Client
}

func newClient(server *cluster.Server) (*client, error) {
	config, err := rest.TLSConfigFor(server.Config(cluster.Admin))
	if err != nil {
		return nil, err
	}
	base, err := url.Parse(server.URL)
	if err != nil {
		return nil, err
	}
	c := &client{server: server, tls: config, vars: map[string]string{"HOST": base.Host}}
	c.http1 = plainClient(config, false)
	c.http2 = plainClient(config, true)
	return c, nil
}

// plainClient adds nothing to requests and follows no redirects.
func plainClient(config *tls.Config, http2 bool) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2)
	return &http.Client{
		Transport: &http.Transport{TLSClientConfig: config.Clone(), Protocols: protocols, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}

// run sends the request of a case, repeatedly if it has Until.
func (c *client) run(ctx context.Context, tc testCase) (*response, error) {
	tc = tc.expand(c.vars)
	ctx, cancel := context.WithTimeout(ctx, untilTimeout)
	defer cancel()
	if tc.During != nil {
		held, err := c.hold(ctx, *tc.During)
		if err != nil {
			return nil, err
		}
		defer held.Close()
	}
	for {
		a, err := c.send(ctx, tc)
		if tc.Until == "" || err == nil && strings.Contains(fmt.Sprintf("%d %s", a.status, a.body), tc.Until) {
			return a, errors.Join(err, c.save(tc, a))
		}
		select {
		case <-ctx.Done():
			if err == nil {
				err = fmt.Errorf("the last response is %d %s", a.status, a.body)
			}
			return nil, fmt.Errorf("%q did not come: %w", tc.Until, err)
		case <-time.After(pollInterval):
		}
	}
}

func (c *client) send(ctx context.Context, tc testCase) (*response, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if tc.Raw != "" {
		return c.sendRaw(ctx, tc)
	}
	req, err := c.request(ctx, tc)
	if err != nil {
		return nil, err
	}
	client := c.http2
	if tc.HTTP1 || *onlyHTTP1 {
		client = c.http1
	}
	resp, err := client.Do(req)
	if err != nil && ctx.Err() != nil {
		return nil, err
	}
	if err != nil {
		return &response{ended: "no response"}, nil
	}
	if tc.Meanwhile != nil {
		if err := c.meanwhile(ctx, *tc.Meanwhile); err != nil {
			return nil, errors.Join(err, resp.Body.Close())
		}
	}
	return read(resp, tc)
}

func (c *client) meanwhile(ctx context.Context, tc testCase) error {
	a, err := c.send(ctx, tc)
	if err == nil && a.status != *tc.Want {
		err = fmt.Errorf("%s: %d %s", tc.Name, a.status, a.body)
	}
	return err
}

func (c *client) request(ctx context.Context, tc testCase) (*http.Request, error) {
	method, target, ok := strings.Cut(tc.Request, " ")
	if !ok {
		return nil, fmt.Errorf("request %q is not METHOD TARGET", tc.Request)
	}
	body, err := tc.body()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, c.server.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body == nil {
		req.Body, req.ContentLength = nil, 0
	} else {
		req.Header.Set("Content-Type", "application/json")
	}
	path, query, _ := strings.Cut(target, "?")
	req.URL.RawPath, req.URL.RawQuery = path, query
	if req.URL.Path, err = url.PathUnescape(path); err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "conformance")
	req.Header.Set("Authorization", "Bearer "+tc.user()+"-token")
	if tc.As == "anonymous" {
		req.Header.Del("Authorization")
	}
	for key, value := range tc.Headers {
		req.Header.Del(key)
		if value != "" {
			req.Header.Set(key, value)
		}
	}
	return req, nil
}

func (c *testCase) user() string {
	if c.As == "" {
		return cluster.Admin
	}
	return c.As
}

// sendRaw writes bytes to a connection and reads one response. The connection stays open:
// only the server closes it, if the request is malformed.
func (c *client) sendRaw(ctx context.Context, tc testCase) (*response, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, strings.ReplaceAll(tc.Raw, "\n", "\r\n")); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return &response{ended: err.Error()}, nil
	}
	return read(resp, tc)
}

// read reads the whole response, or the first events of a watch.
func read(resp *http.Response, tc testCase) (*response, error) {
	defer resp.Body.Close()
	a := &response{status: resp.StatusCode, header: resp.Header}
	if len(resp.TransferEncoding) > 0 {
		a.header["Transfer-Encoding"] = resp.TransferEncoding
	}
	var err error
	if tc.Events > 0 && resp.StatusCode == http.StatusOK {
		if a.body, err = readEvents(resp, tc.Events); err != nil {
			a.ended = fmt.Sprintf("stream ended: %v", err)
		}
		return a, nil
	}
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		a.ended = fmt.Sprintf("body ended: %v", err)
	}
	return a, nil
}

// save keeps values of a response: from its headers and from its JSON.
func (c *client) save(tc testCase, a *response) error {
	if a == nil {
		return nil
	}
	for name, key := range tc.SaveHeaders {
		if c.vars[name] = a.header.Get(key); c.vars[name] == "" {
			return fmt.Errorf("save: the response has no header %s: %v", key, a.header)
		}
	}
	if len(tc.Save) == 0 {
		return nil
	}
	var body any
	if err := json.Unmarshal(a.body, &body); err != nil {
		return fmt.Errorf("save: %w", err)
	}
	for name, path := range tc.Save {
		value, ok := lookup(body, path)
		if !ok {
			return fmt.Errorf("save: the response has no %s: %s", path, a.body)
		}
		c.vars[name] = fmt.Sprint(value)
	}
	return nil
}

// lookup follows a dotted path; the segments of a list are its indexes.
func lookup(value any, path string) (any, bool) {
	for segment := range strings.SplitSeq(path, ".") {
		switch v := value.(type) {
		case map[string]any:
			if value = v[segment]; value == nil {
				return nil, false
			}
		case []any:
			var index int
			if _, err := fmt.Sscan(segment, &index); err != nil || index >= len(v) {
				return nil, false
			}
			value = v[index]
		default:
			return nil, false
		}
	}
	return value, true
}
