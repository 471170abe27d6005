package fuzz

import (
	"bytes"
	"fmt"
	"math"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// largestMessage is more than the host takes.
const largestMessage = 33 << 20

// message is one message as it is on the wire.
type message []byte

// verbatim is the codec that leaves messages as they are.
type verbatim struct{}

func (verbatim) Name() string { return "proto" }

func (verbatim) Marshal(v any) ([]byte, error) { return *v.(*message), nil }

func (verbatim) Unmarshal(data []byte, v any) error {
	*v.(*message) = bytes.Clone(data)
	return nil
}

// serveControl serves the control socket.
func (s *stage) serveControl(l net.Listener) {
	s.server = grpc.NewServer(grpc.ForceServerCodec(verbatim{}), grpc.UnknownServiceHandler(s.call), grpc.MaxRecvMsgSize(64<<20))
	go func() { _ = s.server.Serve(noisyListener{l, s}) }()
}

// noisyListener makes connections that write what is no HTTP/2, at times.
type noisyListener struct {
	net.Listener
	stage *stage
}

func (l noisyListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &noisyConn{Conn: c, source: l.stage.choices.of("control connection")}, nil
}

type noisyConn struct {
	net.Conn
	source *source // of the one goroutine that writes
}

func (c *noisyConn) Write(b []byte) (int, error) {
	switch {
	case c.source.fault(3000, "frames: noise"):
		_, _ = c.Conn.Write(c.source.bytes(c.source.size(1 << 16)))
	case c.source.fault(3000, "frames: flipped"):
		b = c.source.flip(b)
	case c.source.fault(3000, "frames: break"):
		_, _ = c.Conn.Write(b[:len(b)/2])
		_ = c.Conn.Close()
	}
	return c.Conn.Write(b)
}

const service = "/catena.stage.v1.Stage/"

// call responds to any call.
func (s *stage) call(_ any, stream grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(stream)
	method, ok := strings.CutPrefix(full, service)
	if !ok {
		return s.callPlugin(full, stream)
	}
	var request message
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	response, known := s.response(method, request)
	if !known {
		return status.Error(codes.Unimplemented, method)
	}
	if method == "Watch" || method == "GatherMetrics" || method == "GetDebugPage" {
		return s.stream(method, stream, response)
	}
	return s.unary(method, stream, response)
}

// callPlugin responds to a call of a service of go-plugin.
func (s *stage) callPlugin(full string, stream grpc.ServerStream) error {
	r := s.choices.of(full)
	if strings.HasSuffix(full, "/Shutdown") && r.pick("shutdown: ends", "shutdown: ends", "shutdown: ignored") != "shutdown: ignored" {
		s.exit(0)
	}
	switch r.pick("plugin: nothing", "plugin: nothing", "plugin: noise", "plugin: hang") {
	case "plugin: noise":
		for range r.size(10000) {
			m := message(r.bytes(r.size(1 << 16)))
			if err := stream.SendMsg(&m); err != nil {
				return err
			}
		}
	case "plugin: hang":
		<-stream.Context().Done()
	}
	return status.Error(codes.Unimplemented, full)
}

// response returns what a stage should respond with.
func (s *stage) response(method string, request message) (proto.Message, bool) {
	switch method {
	case "Describe":
		return &stagev1.DescribeResponse{Name: s.name, Version: "v1", Sdk: "none"}, true
	case "Configure":
		var r stagev1.ConfigureRequest
		if err := proto.Unmarshal(request, &r); err == nil {
			s.callHost(r.GetHost())
		}
		return &stagev1.ConfigureResponse{Claims: s.claims(), ListedPaths: []string{"/fuzz/" + s.name}}, true
	case "PrepareRun":
		s.serveData()
		return &stagev1.PrepareRunResponse{
			Claims: s.claims(), ListedPaths: []string{"/fuzz/" + s.name}, PostStartHooks: []string{"start"}, PreShutdownHooks: []string{"end"},
			HealthChecks: []*stagev1.HealthCheck{{Name: "check", Livez: true, Readyz: true, Healthz: true}}, MuxAndDiscoverySignals: []string{"ready"},
		}, true
	case "Watch":
		return &stagev1.Event{ClaimsChanged: &stagev1.ClaimsChanged{Claims: s.claims(), ListedPaths: []string{"/fuzz/" + s.name}}, Signaled: []string{"ready"}}, true
	case "CheckHealth":
		var r stagev1.CheckHealthRequest
		_ = proto.Unmarshal(request, &r)
		response := &stagev1.CheckHealthResponse{}
		for _, name := range r.GetNames() {
			response.Results = append(response.Results, &stagev1.HealthResult{Name: name, CheckedAt: timestamppb.Now()})
		}
		return response, true
	case "GatherMetrics":
		return &stagev1.GatherMetricsResponse{Text: []byte("# TYPE fuzz_things gauge\nfuzz_things{a=\"b\"} 1\n")}, true
	case "GetDebugPage":
		return &stagev1.GetDebugPageResponse{Code: 200, ContentType: "text/plain", Body: []byte("page")}, true
	case "ValidateConfig":
		return &stagev1.ValidateConfigResponse{}, true
	case "Notify", "SetLogLevel", "RunPostStartHook", "RunPreShutdownHook", "Activate", "Drain", "Stop":
		return &stagev1.StopResponse{}, true // they are all empty, or may be
	}
	return nil, false
}

func (s *stage) claims() []*stagev1.Claim {
	return []*stagev1.Claim{{Path: "/fuzz/" + s.name, Match: stagev1.Claim_PREFIX}}
}

// unary responds to a call, as it should or not.
func (s *stage) unary(method string, stream grpc.ServerStream, response proto.Message) error {
	r := s.choices.of(method)
	if !s.errs(r, method) {
		return send(stream, marshal(response))
	}
	kind, _, _ := strings.Cut(r.pick(kinds(method, "error", "error", "silence", "late", "twice", "none", "exit", "metadata", "fields", "fields", "fields", "flipped", "bytes", "cut", "unknown", "deep", "giant")...), " ")
	switch kind {
	case "error":
		return s.anError(r)
	case "silence":
		<-stream.Context().Done()
		time.Sleep(r.upTo(2 * time.Second))
		return nil
	case "late":
		time.Sleep(r.upTo(5 * time.Second))
	case "twice":
		if err := send(stream, marshal(response)); err != nil {
			return err
		}
	case "none":
		return nil
	case "exit":
		s.exit(r.IntN(256))
	case "metadata":
		s.metadata(r, stream)
	}
	return send(stream, r.message(kind, response))
}

// kinds are the names of the faults of a method.
func kinds(method string, kinds ...string) []string {
	for i := range kinds {
		kinds[i] += " " + method
	}
	return kinds
}

// stream sends a stream of messages, as it should or not.
func (s *stage) stream(method string, stream grpc.ServerStream, response proto.Message) error {
	r := s.choices.of(method)
	faulty := s.errs(r, method)
	if !faulty || !r.one(3) {
		if err := send(stream, marshal(response)); err != nil {
			return err
		}
	}
	if !faulty && method != "Watch" {
		return nil
	}
	for n := r.size(200); faulty && n > 0; n-- {
		kind, _, _ := strings.Cut(r.pick(kinds(method, "error", "silence", "late", "none", "metadata", "fields", "fields", "fields", "fields", "flipped", "bytes", "cut", "unknown", "deep", "giant", "flood")...), " ")
		switch kind {
		case "error":
			return s.anError(r)
		case "silence":
			<-stream.Context().Done()
			return nil
		case "late":
			time.Sleep(r.upTo(2 * time.Second))
		case "none":
			return nil
		case "metadata":
			s.metadata(r, stream)
		case "flood":
			m := r.message("fields", response)
			for end := time.Now().Add(r.upTo(5 * time.Second)); time.Now().Before(end); {
				if err := send(stream, m); err != nil {
					return err
				}
			}
		}
		if err := send(stream, r.message(kind, response)); err != nil {
			return err
		}
	}
	if method == "Watch" && !r.one(10) {
		<-stream.Context().Done()
	}
	return nil
}

// errs reports whether the response to a call is one that it should not be. A process that is to come up first does not err before.
func (s *stage) errs(r *source, method string) bool {
	switch method {
	case "Describe", "ValidateConfig", "Configure", "PrepareRun":
		if s.tame && !(method == "Describe" && s.described.Add(1) > 3) {
			return false
		}
	case "Watch", "RunPostStartHook", "CheckHealth", "Activate":
		if s.tame && s.calls.Add(1) < 6 {
			return false
		}
	}
	return r.IntN(100) < s.rate
}

func send(stream grpc.ServerStream, m message) error { return stream.SendMsg(&m) }

func marshal(m proto.Message) message {
	b, err := proto.Marshal(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return b
}

func (s *stage) anError(r *source) error {
	return status.Error(codes.Code(r.IntN(20)), r.text(1<<20))
}

// metadata sends headers and trailers of the call.
func (s *stage) metadata(r *source, stream grpc.ServerStream) {
	md := metadata.MD{}
	for range r.size(1000) {
		name := fmt.Sprintf("x-%d", r.IntN(1000))
		if r.one(3) {
			name += "-bin"
		}
		md.Append(name, strings.Map(func(c rune) rune { return max(c%0x7f, ' ') }, r.text(1<<14)))
	}
	if r.one(2) {
		_ = stream.SendHeader(md)
	}
	stream.SetTrailer(md)
}

// message returns a message that differs from a proper one in the given way.
func (s *source) message(kind string, proper proto.Message) message {
	switch kind {
	case "fields":
		m := proto.Clone(proper).ProtoReflect()
		s.fill(m, 0, 1<<16)
		return marshal(m.Interface())
	case "giant":
		m := proto.Clone(proper).ProtoReflect()
		s.fill(m, 0, 1<<22)
		b := marshal(m.Interface())
		if s.one(2) { // one field that is, often a known one
			b = protowire.AppendTag(b, protowire.Number(1+s.IntN(6)), protowire.BytesType)
			b = protowire.AppendBytes(b, bytes.Repeat([]byte("x"), s.IntN(largestMessage)))
		}
		return b[:min(len(b), largestMessage)]
	case "flipped":
		return s.flip(marshal(proper))
	case "bytes":
		return s.bytes(s.size(1 << 20))
	case "cut":
		b := marshal(proper)
		return b[:s.IntN(len(b)+1)]
	case "unknown":
		b := marshal(proper)
		for range s.size(10000) {
			b = protowire.AppendTag(b, protowire.Number(100+s.IntN(1<<20)), protowire.BytesType)
			b = protowire.AppendBytes(b, s.bytes(s.size(1000)))
		}
		return b
	case "deep":
		b, n := marshal(proper), s.size(1000000)
		for range n {
			b = protowire.AppendTag(b, 100, protowire.StartGroupType)
		}
		for range n {
			b = protowire.AppendTag(b, 100, protowire.EndGroupType)
		}
		return b
	}
	return marshal(proper)
}

// flip changes some bytes.
func (s *source) flip(b []byte) []byte {
	b = bytes.Clone(b)
	for range 1 + s.size(20) {
		if len(b) > 0 {
			b[s.IntN(len(b))] = byte(s.Uint32())
		}
	}
	return b
}

// fill gives random values to fields of a message.
func (s *source) fill(m protoreflect.Message, depth, largest int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case s.one(2) || depth > 4:
		case f.IsList():
			list := m.Mutable(f).List()
			if s.one(3) {
				list.Truncate(0)
			}
			value := s.value(m, f, depth, 100)
			for n := range s.size(largest) {
				if n < 1000 { // making each is slow
					value = s.value(m, f, depth, 100)
				}
				list.Append(value)
			}
		default:
			m.Set(f, s.value(m, f, depth, largest))
		}
	}
}

// value returns a random value of a field, or of an element of it.
func (s *source) value(m protoreflect.Message, f protoreflect.FieldDescriptor, depth, largest int) protoreflect.Value {
	numbers := []int64{0, 1, -1, 2, 200, 500, 1000, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64, s.Int64()}
	n := numbers[s.IntN(len(numbers))]
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(strings.ToValidUTF8(s.text(largest), "?"))
	case protoreflect.BytesKind:
		if s.one(2) {
			return protoreflect.ValueOfBytes([]byte(s.metrics(largest)))
		}
		return protoreflect.ValueOfBytes(s.bytes(s.size(largest)))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(s.one(2))
	case protoreflect.EnumKind:
		if s.one(2) {
			n = int64(s.IntN(4))
		}
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(n))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(n)
	case protoreflect.MessageKind:
		var v protoreflect.Value
		if f.IsList() {
			v = m.NewField(f).List().NewElement()
		} else {
			v = m.NewField(f)
		}
		s.fill(v.Message(), depth+1, largest)
		return v
	}
	return f.Default()
}

// metrics returns what may be metrics.
func (s *source) metrics(largest int) string {
	var b strings.Builder
	for range s.size(max(largest/30, 10)) {
		name := []string{"fuzz_things", "catena_stages", "apiserver_request_total", "go_goroutines", "x_bucket", "x_count", "1x", ""}[s.IntN(8)]
		if s.one(5) {
			fmt.Fprintf(&b, "# TYPE %s %s\n", name, []string{"counter", "gauge", "histogram", "summary", "untyped", "x"}[s.IntN(6)])
		}
		fmt.Fprintf(&b, "%s{a=\"%d\",stage=%q,le=%q} %s\n", name, s.IntN(1<<20), words[s.IntN(len(words))], words[s.IntN(len(words))], []string{"1", "-1", "NaN", "+Inf", "1e400", "x", ""}[s.IntN(7)])
	}
	return b.String()
}
