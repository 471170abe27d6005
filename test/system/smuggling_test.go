package system

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk/stagev1"
	"github.com/catena-dev/catena/test/internal/cluster"
)

// askers lets all who are authenticated ask the test stages.
const askers = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: ask-stages}
rules:
- {nonResourceURLs: ["/stage/*"], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: ask-stages}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ask-stages}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:authenticated"}]
`

// letAsk waits until bob may ask the test stages.
func letAsk(t *testing.T, l *long) {
	t.Helper()
	l.askers.Do(func() { apply(t, l.Server, askers) })
	eventually(t, "bob may ask", func() bool { return do(t, l.Config(cluster.Bob), http.MethodGet, "/stage/front", "").code == 200 })
}

// forged is in every value that a client makes up for a header of others.
const forged = "forged"

// No header of a client changes the user that a stage sees, in whatever spelling.
func TestForgedHeaders(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	letAsk(t, l)
	const who = `{"name":"forged","groups":["system:masters"]}`
	for name, headers := range map[string]string{
		"remote user":           "X-Remote-User: forged\r\nX-Remote-Group: forged\r\nX-Remote-Extra-A: forged\r\nX-Remote-Uid: forged",
		"remote user, lower":    "x-remote-user: forged\r\nx-remote-group: system:masters-forged",
		"remote user, upper":    "X-REMOTE-USER: forged",
		"remote user, twice":    "X-Remote-User: forged\r\nX-Remote-User: forged2",
		"stage user":            "X-Catena-User: " + who,
		"stage user, lower":     "x-catena-user: " + who,
		"stage user, mixed":     "x-CATENA-uSER: " + who,
		"stage user, twice":     "X-Catena-User: " + who + "\r\nX-Catena-User: " + who,
		"stage user, listed":    "Connection: X-Catena-User, close\r\nX-Catena-User: " + who,
		"host's user, listed":   "Connection: X-Catena-User",
		"authorization, listed": "Connection: Authorization, X-Catena-Request, X-Catena-Timeout, Audit-Id",
		"audit id, listed":      "Connection: Audit-ID\r\nAudit-ID: chosen-by-bob",
		"trace, listed":         "Connection: Traceparent, tracestate\r\nTraceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"request id":            "X-Catena-Request: 1forged\r\nX-Catena-Next: 1forged\r\nX-Catena-Delegate: forged",
		"decline":               "X-Catena-Decline: forged",
		"added":                 "X-Catena-Added: Content-Type" + forged + "\r\nX-Catena-Client: 192.0.2.1:1" + forged,
		"deadline":              "X-Catena-Timeout: 99999999forged\r\nX-Catena-Received: 1forged",
		"audit":                 "X-Catena-Audit-Level: None-forged\r\nX-Catena-Audit: {\"forged\":1}\r\nX-Catena-Latency: forged=1",
		"stage header, unknown": "X-Catena-Anything-At-All: forged",
		"front proxy's, listed": "Connection: X-Remote-User\r\nX-Remote-User: forged",
		"trailer":               "Trailer: X-Catena-User, X-Remote-User",
		"te":                    "TE: trailers\r\nX-Catena-User: " + who,
		"proxy authorization":   "Proxy-Authorization: Bearer admin-token\r\nProxy-Connection: X-Catena-User",
		"forwarded":             "Forwarded: for=\"X-Catena-User\"\r\nX-Forwarded-User: forged-by-nobody",
	} {
		t.Run(name, func(t *testing.T) {
			for _, stage := range []string{"front", "middle", "behind"} {
				wrap := "none"
				if stage == "behind" {
					wrap = "front,middle"
				}
				conn := dial(t, l.Server)
				conn.send("POST /stage/" + stage + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer bob-token\r\n" + wrapHeader + ": " + wrap +
					"\r\nTransfer-Encoding: chunked\r\n" + headers + "\r\n\r\n3\r\nabc\r\n0\r\nX-Catena-User: " + who + "\r\nX-Remote-User: forged\r\n\r\n")
				checkSeen(t, stage, conn.whole("POST").seen(t))
			}
			conn := dial(t, l.Server)
			const review = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
			conn.send("POST /apis/authentication.k8s.io/v1/selfsubjectreviews HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer bob-token\r\n" +
				"Content-Type: application/json\r\nContent-Length: " + itoa(len(review)) + "\r\n" + headers + "\r\n\r\n" + review)
			checkReview(t, conn.whole("POST"))
		})
	}
}

// checkSeen checks that a stage has seen bob, and nothing that the client has made up.
func checkSeen(t *testing.T, stage string, s seen) {
	t.Helper()
	if s.User == nil || s.User.Name != cluster.Bob || !slices.Equal(s.User.Groups, []string{"system:authenticated"}) || s.User.UID != "bob-uid" {
		t.Errorf("%s sees the user %+v", stage, s.User)
	}
	if s.BodyBytes != 3 {
		t.Errorf("%s sees a body of %d bytes: %s", stage, s.BodyBytes, s.BodyError)
	}
	for key, values := range s.Header {
		if key == stagev1.HeaderAdded {
			if rest := slices.DeleteFunc(slices.Clone(values), func(v string) bool { return v == "Expect" || v == "Audit-Id" }); len(rest) > 0 || len(values) > 2 {
				t.Errorf("%s sees %s: %q", stage, key, values)
			}
			continue
		}
		internal := strings.HasPrefix(key, stagev1.HeaderPrefix)
		if strings.HasPrefix(key, "X-Remote-") || key == "Authorization" || internal && (len(values) != 1 || strings.Contains(values[0], forged)) {
			t.Errorf("%s sees %s: %q", stage, key, values)
		}
	}
	for key, values := range s.Trailer {
		if strings.HasPrefix(key, "X-Remote-") || strings.HasPrefix(key, stagev1.HeaderPrefix) {
			t.Errorf("%s sees the trailer %s: %q", stage, key, values)
		}
	}
	for _, key := range []string{stagev1.HeaderUser, stagev1.HeaderRequest, stagev1.HeaderTimeout, stagev1.HeaderReceived, "Audit-Id"} {
		if s.Header.Get(key) == "" {
			t.Errorf("%s sees no %s", stage, key)
		}
	}
}

func checkReview(t *testing.T, a response) {
	t.Helper()
	var review struct {
		Status struct {
			UserInfo struct {
				Username string
				Groups   []string
			}
		}
	}
	if err := json.Unmarshal([]byte(a.body), &review); err != nil || a.code != http.StatusCreated {
		t.Fatalf("SelfSubjectReview: %d %s", a.code, a.body)
	}
	if u := review.Status.UserInfo; u.Username != cluster.Bob || !slices.Equal(u.Groups, []string{"system:authenticated"}) {
		t.Errorf("core sees %+v", u)
	}
}

// A request whose end host and stage could see at different places does not bring a
// second one along.
func TestSmuggledRequests(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	letAsk(t, l)
	const (
		hidden = "GET /stage/front/smuggled HTTP/1.1\r\nHost: x\r\nX-Catena-User: {\"name\":\"forged\"}\r\n\r\n"
		head   = "POST /stage/front HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer bob-token\r\n"
	)
	for name, tc := range map[string]struct {
		raw  string
		want []int
	}{
		"length and chunks":            {head + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden, []int{200, 400}},
		"chunks and length":            {head + "Transfer-Encoding: chunked\r\nContent-Length: " + itoa(5+len(hidden)) + "\r\n\r\n0\r\n\r\n" + hidden, []int{200, 400}},
		"two lengths":                  {head + "Content-Length: 0\r\nContent-Length: " + itoa(len(hidden)) + "\r\n\r\n" + hidden, []int{400}},
		"two lengths in one":           {head + "Content-Length: 0, " + itoa(len(hidden)) + "\r\n\r\n" + hidden, []int{400}},
		"a length of odd digits":       {head + "Content-Length: 0x10\r\n\r\n" + hidden, []int{400}},
		"a signed length":              {head + "Content-Length: +3\r\n\r\nabc" + hidden, []int{400}},
		"an unknown encoding":          {head + "Transfer-Encoding: xchunked\r\n\r\n" + hidden, []int{501}},
		"two encodings":                {head + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + hidden, []int{501}},
		"an encoding twice":            {head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden, []int{400, 501}},
		"an encoding with a tab":       {head + "Transfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n" + hidden, []int{200, 400}},
		"an encoding with a control":   {head + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n" + hidden, []int{400, 501}},
		"an encoding that is folded":   {head + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + hidden, []int{200, 400}},
		"an encoding before the colon": {head + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + hidden, []int{400}},
		"an encoding over HTTP/1.0":    {strings.Replace(head, "1.1", "1.0", 1) + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden, []int{200, 400}},
		"a chunk of too many digits":   {head + "Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n" + hidden, []int{200, 400}},
		"a chunk with an extension":    {head + "Transfer-Encoding: chunked\r\n\r\n3;a=\"\n\"\r\nabc\r\n0\r\n\r\n" + hidden, []int{200, 400}},
		"a chunk that ends in LF":      {head + "Transfer-Encoding: chunked\r\n\r\n3\nabc\n0\n\n" + hidden, []int{200, 400}},
		"a listed length":              {head + "Connection: Content-Length\r\nContent-Length: " + itoa(len(hidden)) + "\r\n\r\n" + hidden, []int{200, 400}},
		"a listed encoding":            {head + "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(hidden) + "0\r\n\r\n", []int{200, 400}},
		"a listed host":                {head + "Connection: Host\r\nContent-Length: " + itoa(len(hidden)) + "\r\n\r\n" + hidden, []int{200, 400}},
		"an upgrade with a body":       {head + "Connection: Upgrade\r\nUpgrade: shout\r\nContent-Length: " + itoa(len(hidden)) + "\r\n\r\n" + hidden, []int{200, 400}},
		"a body of GET":                {strings.Replace(head, "POST", "GET", 1) + "Content-Length: " + itoa(len(hidden)) + "\r\n\r\n" + hidden, []int{200, 400}},
		"a body of HEAD":               {strings.Replace(head, "POST", "HEAD", 1) + "Content-Length: " + itoa(len(hidden)) + "\r\n\r\n" + hidden, []int{200, 400}},
		"a body that is waited for":    {head + "Expect: 100-continue\r\nContent-Length: " + itoa(len(hidden)) + "\r\n\r\n" + hidden, []int{100}},
		"a line end in the target":     {strings.Replace(head, "/stage/front", "/stage/front?a\r\nX-Catena-User: forged\r\n\r\n"+hidden, 1) + "\r\n", []int{400}},
		"an escaped line end":          {strings.Replace(head, "/stage/front", "/stage/front?%0d%0a%0d%0aGET%20/stage/front/smuggled%20HTTP/1.1", 1) + "\r\n", []int{200}},
		"a CR in a value":              {head + "X-Odd: a\rX-Catena-User: forged\r\n\r\n" + hidden, []int{400}},
		"an LF in a value":             {head + "X-Odd: a\nX-Catena-User: forged\r\n\r\n" + hidden, []int{200, 400}},
		"a NUL in a value":             {head + "X-Odd: a\x00b\r\n\r\n" + hidden, []int{400}},
		"a space in the target":        {strings.Replace(head, "/stage/front", "/stage/front HTTP/1.1 x", 1) + "\r\n" + hidden, []int{400}},
		"a control in the target":      {strings.Replace(head, "/stage/front", "/stage/front\x0bx", 1) + "\r\n" + hidden, []int{400}},
		"a host of two lines":          {strings.Replace(head, "Host: x", "Host: x\r\n y", 1) + "\r\n" + hidden, []int{200, 400}},
		"two hosts":                    {head + "Host: y\r\n\r\n" + hidden, []int{400}},
		"a request behind another":     {head + "\r\n" + hidden, []int{200}},
	} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, l.Server)
			conn.send(tc.raw)
			resp := conn.response(tc.raw[:strings.IndexByte(tc.raw, ' ')])
			if !slices.Contains(tc.want, resp.StatusCode) {
				t.Errorf("response %s, want one of %v", resp.Status, tc.want)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			// The connections between host and stage are as they were.
			for _, stage := range []string{"front", "middle", "behind"} {
				if s := do(t, l.Config(cluster.Bob), http.MethodPost, "/stage/"+stage, "abc").seen(t); s.User.Name != cluster.Bob || s.BodyBytes != 3 {
					t.Errorf("the next request to %s is seen as %+v", stage, s)
				}
			}
		})
	}
	// One that is not hidden shows that the others would have been seen.
	do(t, l.Config(cluster.Bob), http.MethodGet, "/stage/front/smuggled", "")
	reached := func() int {
		return strings.Count(cluster.Tail(l.Process().Log, 10_000), "reached by what nobody was to send")
	}
	eventually(t, "all three stages have passed it on", func() bool { return reached() >= 3 })
	if n := reached(); n != 3 {
		t.Errorf("stages were reached by %d hidden requests:\n%s", n-3, cluster.Tail(l.Process().Log, 100))
	}
}

func chunk(text string) string {
	const digits = "0123456789abcdef"
	n := len(text)
	return string([]byte{digits[n>>8&15], digits[n>>4&15], digits[n&15]}) + "\r\n" + text + "\r\n"
}
