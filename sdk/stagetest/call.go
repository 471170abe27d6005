package stagetest

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Call is a request of a client. The zero value is GET /.
type Call struct {
	Method, Path, Body string
	Header             http.Header
	// User makes the request; Options.User if nil.
	User *sdk.User
	// Context ends the request if it ends; the test's if nil.
	Context context.Context
}

// Answer is the response that the client got, and how it came about.
type Answer struct {
	Status int
	Header http.Header
	Body   string
	// Declined: the stage has declined the request, and Options.Next has responded.
	Declined bool
	// Unclaimed: the stage does not claim the path and has not got the request; Options.Next has responded.
	Unclaimed bool
	// Called is how often the stage has called the stages downstream.
	Called int
	// Annotations are what it has added to the audit event.
	Annotations map[string]string
	// Warnings are the texts of the Warning headers.
	Warnings []string
}

// callHeader ties a request at the relay to the call that made it.
const callHeader = "X-Stagetest-Call"

// Get is Do for a path.
func (s *Stage) Get(t testing.TB, path string) Answer {
	t.Helper()
	return s.Do(t, Call{Path: path})
}

// Do makes a request. It fails the test if there is no response.
func (s *Stage) Do(t testing.TB, c Call) Answer {
	t.Helper()
	a, err := s.try(t, c)
	if err != nil {
		t.Fatalf("%s %s: %v", c.Method, c.Path, err)
	}
	return a
}

func (s *Stage) try(t testing.TB, c Call) (Answer, error) {
	ctx := c.Context
	if ctx == nil {
		ctx = t.Context()
	}
	req, err := http.NewRequestWithContext(ctx, c.Method, s.URL+c.Path, strings.NewReader(c.Body))
	if err != nil {
		return Answer{}, err
	}
	maps.Copy(req.Header, c.Header)
	if c.User != nil {
		req.Header.Set(stagev1.HeaderUser, encodeUser(c.User))
	}
	record := s.records.add()
	defer s.records.remove(record)
	req.Header.Set(callHeader, strconv.Itoa(record.id))
	resp, err := s.client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return Answer{}, err
	}
	record.mu.Lock()
	defer record.mu.Unlock()
	return Answer{
		Status: resp.StatusCode, Header: resp.Header, Body: string(body),
		Declined: record.declined, Unclaimed: record.unclaimed, Called: record.called,
		Annotations: record.annotations, Warnings: warningsOf(resp.Header),
	}, nil
}

// warningsOf returns the texts of Warning headers: 299 - "TEXT".
func warningsOf(h http.Header) []string {
	var texts []string
	for _, w := range h["Warning"] {
		_, quoted, _ := strings.Cut(w, `"`)
		quoted = strings.TrimSuffix(quoted, `"`)
		texts = append(texts, strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(quoted))
	}
	return texts
}

// annotationsOf returns the annotations in X-Catena-Audit headers.
func annotationsOf(values []string) map[string]string {
	all := map[string]string{}
	for _, v := range values {
		var audit struct {
			Annotations map[string]string `json:"annotations"`
		}
		if json.Unmarshal([]byte(v), &audit) == nil {
			maps.Copy(all, audit.Annotations)
		}
	}
	return all
}
