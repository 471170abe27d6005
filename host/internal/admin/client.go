package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/catena-dev/catena/host/internal/datadir"
	"github.com/catena-dev/catena/host/internal/guard"
	"github.com/catena-dev/catena/host/internal/shadow"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/host/internal/upgrade"
)

// Client calls the host that runs on a data directory. A call waits for a host that reports to be alive, and ends with
// a *SilentError, after fifteen seconds, if the host does not.
type Client struct {
	// DataDir and RuntimeDir are those of the host's configuration.
	DataDir, RuntimeDir string
	// Waiting, if it is not nil, is called every few seconds while a call waits for a host that is alive.
	Waiting func(since time.Duration)
}

// IsNotRunning reports whether an error of a Client means that no host runs on the data
// directory.
func IsNotRunning(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// Status returns the state of the host.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.call(ctx, http.MethodGet, "/status", nil, &s)
	return s, err
}

// Swap has the host replace the process of a stage, and waits for that.
func (c *Client) Swap(ctx context.Context, r SwapRequest) (supervisor.Swapped, error) {
	var s supervisor.Swapped
	err := c.call(ctx, http.MethodPost, "/swap", r, &s)
	return s, cutOff("swap", err)
}

// PlanUpgrade asks the host what a swap to a binary of another release of Kubernetes would change.
func (c *Client) PlanUpgrade(ctx context.Context, r PlanRequest) (*upgrade.Plan, error) {
	p := &upgrade.Plan{}
	err := c.call(ctx, http.MethodPost, "/upgrade/plan", r, p)
	return p, cutOff("plan", err)
}

// Shadow has the host compare requests of a stage with what another binary responds to them.
func (c *Client) Shadow(ctx context.Context, r ShadowRequest) (*shadow.Summary, error) {
	s := &shadow.Summary{}
	err := c.call(ctx, http.MethodPost, "/shadow", r, s)
	return s, cutOff("start of the shadow", err)
}

// ShadowReport returns what the latest comparison has found.
func (c *Client) ShadowReport(ctx context.Context) (*shadow.Report, error) {
	r := &shadow.Report{}
	err := c.call(ctx, http.MethodGet, "/shadow", nil, r)
	return r, err
}

// StopShadow ends the comparison under way, and returns what it has found.
func (c *Client) StopShadow(ctx context.Context) (*shadow.Report, error) {
	r := &shadow.Report{}
	err := c.call(ctx, http.MethodDelete, "/shadow", nil, r)
	return r, err
}

// Reload has the host read its configuration again, and waits until it is in effect.
func (c *Client) Reload(ctx context.Context) (Reload, error) {
	var r Reload
	err := c.call(ctx, http.MethodPost, "/reload", nil, &r)
	return r, cutOff("reload", err)
}

// UpgradeHost has another program take the place of the host, and returns when that begins.
func (c *Client) UpgradeHost(ctx context.Context, r HostUpgradeRequest) error {
	return c.call(ctx, http.MethodPost, "/host/upgrade", r, &struct{}{})
}

// Conclude ends the probation or the canary of a swap.
func (c *Client) Conclude(ctx context.Context, r ConcludeRequest) error {
	return c.call(ctx, http.MethodPost, "/swap/conclude", r, &struct{}{})
}

// Explain asks the host what would happen to a request.
func (c *Client) Explain(ctx context.Context, r ExplainRequest) (*Explanation, error) {
	query := url.Values{"method": {r.Method}, "path": {r.Path}, "as": {r.As}, "group": r.Groups}
	e := &Explanation{}
	err := c.call(ctx, http.MethodGet, "/explain?"+query.Encode(), nil, e)
	return e, err
}

// Source returns what the configuration of the host is read from, and the user of the host.
func (c *Client) Source(ctx context.Context) (s Source, uid int, err error) {
	response, uid, err := c.request(ctx, http.MethodGet, "/source", nil)
	if err != nil {
		return Source{}, 0, err
	}
	return s, uid, decode(response, &s)
}

// call decodes the response into result.
func (c *Client) call(ctx context.Context, method, path string, body, result any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return err
	}
	response, _, err := c.request(ctx, method, path, encoded)
	if err != nil {
		return err
	}
	return decode(response, result)
}

func decode(response io.ReadCloser, result any) error {
	defer response.Close()
	b, err := io.ReadAll(response)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, result)
}

// stream returns a response that may be long, or come bit by bit. The caller closes it.
func (c *Client) stream(ctx context.Context, path string) (io.ReadCloser, error) {
	body, _, err := c.request(ctx, http.MethodGet, path, nil)
	return body, err
}

// request returns the body of a response with the code 200, and the user of the host. The body of another response is the error.
func (c *Client) request(ctx context.Context, method, path string, body []byte) (response io.ReadCloser, uid int, err error) {
	client := c.http(func(_ net.Conn, user int) { uid = user })
	var responds atomic.Bool
	watched, stop := c.watch(ctx, &responds)
	req, err := http.NewRequestWithContext(watched, method, "http://catena"+path, bytes.NewReader(body))
	if err != nil {
		stop()
		return nil, 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		err = silence(watched, errors.Unwrap(err)) // without the made-up URL
		stop()
		return nil, 0, err
	}
	responds.Store(true)
	response = &watchedBody{resp.Body, watched, stop}
	if resp.StatusCode == http.StatusOK {
		return response, uid, nil
	}
	defer response.Close()
	b, err := io.ReadAll(response)
	if err != nil {
		return nil, 0, err
	}
	return nil, 0, errors.New(string(bytes.TrimSpace(b)))
}

// http returns a client for one request, which calls connected with the connection and the user of the host.
func (c *Client) http(connected func(conn net.Conn, uid int)) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, uid, err := c.dial(ctx)
			if err == nil {
				connected(conn, uid)
			}
			return conn, err
		},
	}}
}

// dial connects to the host, and returns its user. It passes over nothing that guard.DialServer refuses.
func (c *Client) dial(ctx context.Context) (conn net.Conn, uid int, err error) {
	dirs, err := datadir.Runtime(c.RuntimeDir, c.DataDir)
	if err != nil {
		return nil, 0, err
	}
	for _, dir := range dirs {
		if conn, uid, err = guard.DialServer(ctx, filepath.Join(dir, socketName), c.DataDir); err == nil {
			return conn, uid, nil
		}
		// The path of a socket can be too long in one directory, and short enough in the next.
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.EINVAL) {
			break
		}
	}
	if !IsNotRunning(err) {
		return nil, 0, fmt.Errorf("connect to the host on the data directory %s: %w", c.DataDir, err)
	}
	return nil, 0, fmt.Errorf("no host runs on the data directory %s; --data-dir, --config or CATENA_DATA_DIR name another one (%w)", c.DataDir, err)
}

// cutOff explains an error of a connection that broke off before the host could say how a
// change went. Other errors are as they were.
func cutOff(change string, err error) error {
	if silent := (*SilentError)(nil); errors.As(err, &silent) {
		return fmt.Errorf("%w; what becomes of the %s is not known before it does: see catena status", err, change)
	}
	for _, broken := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, broken) {
			return fmt.Errorf("the host has ended before the end of the %s: its next start is as its configuration says (%w)", change, err)
		}
	}
	return err
}
