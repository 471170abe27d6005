package system

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// odd is a request over HTTP/2 that no client should send.
type odd struct {
	// want is kube-apiserver's status, and that of Catena unless it differs: the body of
	// a request that cannot be read is its client's fault.
	want, differs int
	// fields are added to the header, before the others if they are pseudo headers. Without
	// is the beginning of those that are left out.
	fields  []string
	without string
	// trailer follows the body.
	trailer []string
	// body is sent instead of what the path wants, in one frame for each element.
	body []string
	// pieces splits the header into frames of a byte.
	pieces bool
}

// nothing stands for a stream or a connection that ends without a response.
const nothing = 0

// hiddenRequest is one that must not get anywhere.
const hiddenRequest = "GET /stage/front/" + smuggledFrames + " HTTP/1.1\r\nHost: x\r\nX-Catena-User: {\"name\":\"forged\"}\r\n\r\n"

// smuggledFrames tells them from those of the tests over HTTP/1.
const smuggledFrames = smuggled + "-in-frames"

// send sends the request for a path as bob, with a body.
func (o odd) send(f *frames, path, body string) {
	const stream = 1
	all := []string{":method: POST", ":scheme: https", ":authority: x", ":path: " + path, "authorization: Bearer bob-token", "content-type: application/json"}
	var header []string
	for _, field := range append(slices.Clone(o.fields), all...) {
		if strings.HasPrefix(field, ":") && !o.drops(field) {
			header = append(header, strings.ReplaceAll(field, "PATH", path))
		}
	}
	for _, field := range append(all, o.fields...) {
		if !strings.HasPrefix(field, ":") && !o.drops(field) {
			header = append(header, strings.ReplaceAll(field, "LENGTH", itoa(len(body))))
		}
	}
	head := f.head
	if o.pieces {
		head = f.pieces
	}
	head(stream, false, header...)
	parts := o.body
	if parts == nil {
		parts = []string{body}
	}
	for i, part := range parts {
		f.data(stream, i == len(parts)-1 && o.trailer == nil, part)
	}
	if o.trailer != nil {
		f.head(stream, true, o.trailer...)
	}
	_ = f.out.Flush()
}

// drops reports whether a field of the ordinary request is left out.
func (o odd) drops(field string) bool {
	return o.without != "" && strings.HasPrefix(field, o.without) && !slices.Contains(o.fields, field)
}

// oddRequests are tried one by one.
var oddRequests = map[string]odd{
	"an ordinary request":         {want: 201},
	"a length":                    {want: 201, fields: []string{"content-length: LENGTH"}},
	"a length too small":          {want: nothing, fields: []string{"content-length: 1"}},
	"a length too big":            {want: 500, differs: 400, fields: []string{"content-length: 1000"}},
	"a length twice":              {want: 201, fields: []string{"content-length: LENGTH", "content-length: LENGTH"}},
	"two lengths":                 {want: 201, fields: []string{"content-length: LENGTH", "content-length: 0"}},
	"two lengths in one":          {want: nothing, fields: []string{"content-length: LENGTH, LENGTH"}},
	"a signed length":             {want: nothing, fields: []string{"content-length: +LENGTH"}},
	"chunks":                      {want: 400, fields: []string{"transfer-encoding: chunked"}, body: []string{"0\r\n\r\n" + hiddenRequest}},
	"chunks and a length":         {want: 400, fields: []string{"transfer-encoding: chunked", "content-length: " + itoa(5+len(hiddenRequest))}, body: []string{"0\r\n\r\n" + hiddenRequest}},
	"te":                          {want: 201, fields: []string{"te: trailers"}},
	"te of another kind":          {want: 400, fields: []string{"te: chunked"}},
	"a connection":                {want: 400, fields: []string{"connection: close"}},
	"a connection with a name":    {want: 400, fields: []string{"connection: x-catena-user"}},
	"keep-alive":                  {want: 400, fields: []string{"keep-alive: timeout=5"}},
	"a proxy's connection":        {want: 400, fields: []string{"proxy-connection: keep-alive"}},
	"an upgrade":                  {want: 400, fields: []string{"upgrade: shout"}},
	"an upgrade and a connection": {want: 400, fields: []string{"connection: upgrade", "upgrade: shout"}},
	"expect":                      {want: 201, fields: []string{"expect: 100-continue"}},
	"expect of something else":    {want: 201, fields: []string{"expect: nothing"}},
	"a remote user":               {want: 201, fields: []string{"x-remote-user: forged", "x-remote-group: forged", "x-remote-extra-a: forged", "x-remote-uid: forged"}},
	"a remote user in capitals":   {want: nothing, fields: []string{"X-Remote-User: forged"}},
	"a remote user, underlined":   {want: 201, fields: []string{"x_remote_user: forged", "x_catena_user: forged"}},
	"a stage's user":              {want: 201, fields: []string{`x-catena-user: {"name":"forged"}`}},
	"a stage's user in capitals":  {want: nothing, fields: []string{`X-Catena-User: {"name":"forged"}`}},
	"a stage's user twice":        {want: 201, fields: []string{`x-catena-user: {"name":"forged"}`, `x-catena-user: {"name":"forged"}`}},
	"a stage's user with a space": {want: nothing, fields: []string{`x-catena-user : {"name":"forged"}`}},
	"a stage's user as a pseudo":  {want: nothing, fields: []string{`:x-catena-user: {"name":"forged"}`}},
	"a stage's user in pieces":    {want: 201, fields: []string{`x-catena-user: {"name":"forged"}`}, pieces: true},
	"a request of the host":       {want: 201, fields: []string{"x-catena-request: 1forged", "x-catena-next: 1forged", "x-catena-delegate: forged"}},
	"a deadline of the host":      {want: 201, fields: []string{"x-catena-timeout: 99999999forged", "x-catena-received: 1forged"}},
	"an unknown header":           {want: 201, fields: []string{"x-catena-anything-at-all: forged"}},
	"a line end in a name":        {want: nothing, fields: []string{"x-odd: a", "x-odd\r\nx-catena-user: forged"}},
	"a line end in a value":       {want: nothing, fields: []string{"x-odd: a\r\nX-Catena-User: forged\r\n\r\n" + hiddenRequest}},
	"an LF in a value":            {want: nothing, fields: []string{"x-odd: a\nX-Catena-User: forged"}},
	"a NUL in a value":            {want: nothing, fields: []string{"x-odd: a\x00b"}},
	"an empty name":               {want: nothing, fields: []string{": x-odd"}},
	"a host":                      {want: nothing, fields: []string{"host: y"}},
	"a host with a line end":      {want: nothing, fields: []string{":authority: x\r\nX-Catena-User: forged"}, without: ":authority"},
	"a host with a path":          {want: nothing, fields: []string{":authority: x/stage/front/" + smuggledFrames}, without: ":authority"},
	"a host with a user":          {want: nothing, fields: []string{":authority: forged@x"}, without: ":authority"},
	"two hosts":                   {want: nothing, fields: []string{":authority: y"}},
	"no host":                     {want: 201, without: ":authority"},
	"two paths":                   {want: nothing, fields: []string{":path: /stage/front/" + smuggledFrames}},
	"no path":                     {want: nothing, without: ":path"},
	"an empty path":               {want: nothing, fields: []string{":path: "}, without: ":path"},
	"a star":                      {want: 403, fields: []string{":path: *"}, without: ":path"},
	"a path without a slash":      {want: nothing, fields: []string{":path: stage/front"}, without: ":path"},
	"a path with a host":          {want: nothing, fields: []string{":path: https://x/PATH"}, without: ":path"},
	"a path with two slashes":     {want: 404, fields: []string{":path: /PATH"}, without: ":path"},
	"a path with a line end":      {want: nothing, fields: []string{":path: PATH HTTP/1.1\r\nX-Catena-User: forged\r\n\r\n" + hiddenRequest}, without: ":path"},
	"a path with an LF":           {want: nothing, fields: []string{":path: PATH\n"}, without: ":path"},
	"a path with a space":         {want: 403, fields: []string{":path: PATH HTTP/1.1"}, without: ":path"},
	"a path with a hash":          {want: 403, fields: []string{":path: PATH#a"}, without: ":path"},
	"an escaped line end":         {want: 201, fields: []string{":path: PATH?%0d%0a%0d%0aGET%20/stage/front/" + smuggledFrames}, without: ":path"},
	"a method with a line end":    {want: nothing, fields: []string{":method: GET /stage/front/" + smuggledFrames + " HTTP/1.1\r\nHost: x\r\n\r\nPOST"}, without: ":method"},
	"a method with a space":       {want: 403, fields: []string{":method: GET /stage/front/" + smuggledFrames}, without: ":method"},
	"no method":                   {want: nothing, without: ":method"},
	"connect":                     {want: nothing, fields: []string{":method: CONNECT"}, without: ":method"},
	"extended connect":            {want: nothing, fields: []string{":method: CONNECT", ":protocol: websocket"}, without: ":method"},
	"another scheme":              {want: 201, fields: []string{":scheme: http"}, without: ":scheme"},
	"a scheme with a URL":         {want: nothing, fields: []string{":scheme: https://x/stage/front/" + smuggledFrames + "?"}, without: ":scheme"},
	"no scheme":                   {want: nothing, without: ":scheme"},
	"two authorizations":          {want: 201, fields: []string{"authorization: Bearer admin-token"}},
	"a trailer":                   {want: 201, fields: []string{"trailer: x-catena-user, x-remote-user"}, trailer: []string{`x-catena-user: {"name":"forged"}`, "x-remote-user: forged"}},
	"a trailer that is not named": {want: 201, trailer: []string{`x-catena-user: {"name":"forged"}`, "x-remote-user: forged", "authorization: Bearer admin-token"}},
	"a trailer with a length":     {want: 201, fields: []string{"trailer: content-length"}, trailer: []string{"content-length: 0", "transfer-encoding: chunked"}},
	"a trailer with a path":       {want: nothing, trailer: []string{":path: /stage/front/" + smuggledFrames}},
	"a trailer with a line end":   {want: nothing, fields: []string{"trailer: x-odd"}, trailer: []string{"x-odd: a\r\n\r\n" + hiddenRequest}},
	"a body in pieces":            {want: 400, body: []string{"", "", hiddenRequest, ""}},
	"a body that goes on":         {want: 400, body: []string{"0\r\n\r\n", hiddenRequest, hiddenRequest}},
}

// What HTTP/2 can say and HTTP/1.1 cannot, changes no identity, smuggles no second
// request, and gets the same response as from kube-apiserver.
func TestOddFrames(t *testing.T) {
	t.Parallel()
	reference, err := kubeAPIServer()
	if err != nil {
		t.Fatal(err)
	}
	l := theLong(t)
	letAsk(t, l)
	const path, review = "/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	for name, o := range oddRequests {
		t.Run(name, func(t *testing.T) {
			want, have := o.ask(t, reference.Server, path, review), o.ask(t, l.Server, path, review)
			switch {
			case want.code != o.want:
				t.Errorf("kube-apiserver says %+v", want)
			case o.differs != 0 && have.code != o.differs, o.differs == 0 && want != have:
				t.Errorf("Catena says %+v, and kube-apiserver %+v", have, want)
			}
			for _, stage := range []string{"front", "middle", "behind"} {
				o.askStage(t, l, stage)
			}
		})
	}
	if l.logged("reached by what nobody was to send", smuggledFrames) {
		t.Errorf("a hidden request has reached a stage:\n%s", cluster.Tail(l.Process().Log, 100))
	}
}

// said is what a server says to an odd request.
type said struct {
	code              int
	contentType, body string
}

// ask sends the request to core, and checks for whom core takes its sender.
func (o odd) ask(t *testing.T, s *cluster.Server, path, body string) said {
	t.Helper()
	f := dialFrames(t, s)
	o.send(f, path, body)
	a, err := f.response(1)
	if err != nil {
		return said{code: nothing}
	}
	if a.code == http.StatusCreated {
		checkReview(t, a)
		a.body = "" // has times in it
	}
	return said{a.code, a.header.Get("Content-Type"), a.body}
}

// askStage sends the request to a test stage. If it gets there, it is bob's. In any case
// the connections between host and stage are as they were.
func (o odd) askStage(t *testing.T, l *long, stage string) {
	t.Helper()
	f := dialFrames(t, l.Server)
	o.send(f, "/stage/"+stage, "abc")
	if a, err := f.response(1); err == nil && a.code == http.StatusOK && o.body == nil {
		checkSeen(t, stage, a.seen(t))
	}
	if s := do(t, l.Config(cluster.Bob), http.MethodPost, "/stage/"+stage, "abc").seen(t); s.User.Name != cluster.Bob || s.BodyBytes != 3 {
		t.Errorf("the next request to %s is seen as %+v", stage, s)
	}
}
