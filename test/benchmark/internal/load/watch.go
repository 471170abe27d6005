package load

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Watch opens a watch and returns its stream of events, one a line, which ends with ctx. It decodes nothing: of
// many watchers, client-go would need more of the processor than the server does.
func (c *Client) Watch(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return nil, fmt.Errorf("watch %s: %s: %s", path, resp.Status, body)
	}
	return resp.Body, nil
}

// Events sends the time of each event of a stream until the stream or ctx ends, and closes the stream. The error
// is never nil; an error that the server sends as an event is one.
func Events(ctx context.Context, stream io.ReadCloser, events chan<- time.Time) error {
	defer stream.Close()
	r := bufio.NewReader(stream)
	for {
		line, err := r.ReadSlice('\n')
		now := time.Now()
		switch {
		case err != nil:
			return err
		case bytes.HasPrefix(line, []byte(`{"type":"ERROR"`)):
			return fmt.Errorf("event %s", line)
		}
		select {
		case events <- now:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
