package sdk

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
)

// An error is a metav1.Status, whatever headers the handler has set before.
func TestError(t *testing.T) {
	t.Parallel()
	for code, reason := range map[int]string{
		400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed", 406: "NotAcceptable",
		409: "Conflict", 410: "Gone", 413: "RequestEntityTooLarge", 415: "UnsupportedMediaType", 418: "", 422: "Invalid",
		429: "TooManyRequests", 500: "InternalError", 502: "InternalError", 503: "ServiceUnavailable", 504: "Timeout",
	} {
		w := httptest.NewRecorder()
		for key, value := range map[string]string{"Content-Length": "3", "Content-Encoding": "gzip", "Content-Type": "text/plain", "Retry-After": "1"} {
			w.Header().Set(key, value)
		}
		Error(w, "why", code)
		var status struct{ Kind, APIVersion, Status, Message, Reason string }
		if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil {
			t.Fatal(err)
		}
		if w.Code != code || status.Reason != reason || status.Kind != "Status" || status.APIVersion != "v1" || status.Status != "Failure" || status.Message != "why" {
			t.Errorf("%d: %d %+v", code, w.Code, status)
		}
		h := w.Header()
		if h.Get("Content-Type") != "application/json" || h.Get("Content-Encoding") != "" || h.Get("Content-Length") != "" || h.Get("Retry-After") != "1" {
			t.Errorf("%d: %v", code, h)
		}
	}
	w := httptest.NewRecorder()
	Error(w, `"quoted" & <b>`, http.StatusForbidden)
	var status struct{ Message string }
	if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil || status.Message != `"quoted" & <b>` {
		t.Errorf("%v, %q", err, status.Message)
	}
}

func TestUserIn(t *testing.T) {
	t.Parallel()
	jane := &User{Groups: []string{"a", "b"}}
	var none *User
	if !jane.In("x", "b") || jane.In("x") || jane.In() || none.In("a") {
		t.Error("groups are mixed up")
	}
}

func TestWarningText(t *testing.T) {
	t.Parallel()
	long := make([]byte, 0, 3*maxWarning)
	for range maxWarning {
		long = append(long, "é"...)
	}
	for text, want := range map[string]string{
		"": "", " \n": "", "a\r\nb": "a  b", "bad \xff byte": "bad   byte", string(long): string(long[:maxWarning]), "ü": "ü", "\x00\x7f": "",
	} {
		if got := warningText(text); got != want {
			t.Errorf("%.20q: %.40q, want %.40q", text, got, want)
		}
	}
}
