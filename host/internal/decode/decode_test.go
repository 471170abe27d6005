package decode

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// responses calls visit with each method of a stage and what it responds.
func responses(visit func(method protoreflect.MethodDescriptor)) {
	methods := stagev1.File_sdk_stagev1_stage_proto.Services().ByName("Stage").Methods()
	for i := range methods.Len() {
		visit(methods.Get(i))
	}
}

// Every text and every list that a stage can send has a bound, and no list is of a kind that is not counted.
func TestEveryFieldHasBounds(t *testing.T) {
	t.Parallel()
	seen := map[protoreflect.FullName]bool{}
	var visit func(m protoreflect.MessageDescriptor)
	visit = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			bound, text := fieldBounds(f.FullName()), f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.BytesKind
			if f.IsMap() || f.IsList() && !text && f.Kind() != protoreflect.MessageKind {
				t.Errorf("%s is a list of a kind that check does not count", f.FullName())
			}
			if (bound.bytes > 0) != text || (bound.count > 0) != f.IsList() {
				t.Errorf("%s has the bounds %+v", f.FullName(), bound)
			}
			if f.Kind() == protoreflect.MessageKind {
				visit(f.Message())
			}
		}
	}
	responses(func(m protoreflect.MethodDescriptor) { visit(m.Output()) })
}

// What a message can have in it fits in it: no bound of a field is there in vain.
func TestMaxMessage(t *testing.T) {
	t.Parallel()
	service := "/" + stagev1.Stage_ServiceDesc.ServiceName + "/"
	responses(func(m protoreflect.MethodDescriptor) {
		most := MaxMessage(service + string(m.Name()))
		if fields := m.Output().Fields().Len(); (most == bounds.OtherMessage) != (fields == 0 || m.Name() == "Drain") {
			t.Errorf("%s has %d fields, and at most %d bytes", m.Name(), fields, most)
		}
		for i := range m.Output().Fields().Len() {
			if f := m.Output().Fields().Get(i); fieldBounds(f.FullName()).bytes > most {
				t.Errorf("%s can be longer than the response to %s", f.FullName(), m.Name())
			}
		}
	})
	if got := MaxMessage("/plugin.GRPCController/Shutdown"); got != bounds.OtherMessage {
		t.Errorf("%d", got)
	}
}

func TestUnmarshal(t *testing.T) {
	t.Parallel()
	claims := func(n int) []*stagev1.Claim {
		all := make([]*stagev1.Claim, n)
		for i := range all {
			all[i] = &stagev1.Claim{Path: "/a", Match: stagev1.Claim_EXACT}
		}
		return all
	}
	for name, test := range map[string]struct {
		message proto.Message
		want    string
	}{
		"most claims":      {&stagev1.Event{ClaimsChanged: &stagev1.ClaimsChanged{Claims: claims(bounds.Claims)}}, ""},
		"too many claims":  {&stagev1.Event{ClaimsChanged: &stagev1.ClaimsChanged{Claims: claims(bounds.Claims + 1)}}, "ClaimsChanged.claims: more than 100000"},
		"longest schema":   {&stagev1.DescribeResponse{Name: "a", ConfigSchema: strings.Repeat("x", bounds.Schema)}, ""},
		"too long schema":  {&stagev1.DescribeResponse{Name: "a", ConfigSchema: strings.Repeat("x", bounds.Schema+1)}, "DescribeResponse.config_schema: 65537 bytes, and 65536"},
		"too many needs":   {&stagev1.DescribeResponse{Needs: &stagev1.Needs{Claims: claims(bounds.Needs + 1)}}, "Needs.claims: more than 1000"},
		"too long a hook":  {&stagev1.PrepareRunResponse{PostStartHooks: []string{strings.Repeat("x", 254)}}, "PrepareRunResponse.post_start_hooks: 254 bytes"},
		"too many results": {&stagev1.CheckHealthResponse{Results: make([]*stagev1.HealthResult, bounds.Hooks+1)}, "CheckHealthResponse.results: more than 1000"},
		// In all kinds together: a list in a list is no way around.
		"too many versions": {&stagev1.DescribeResponse{Kubernetes: &stagev1.Kubernetes{Kinds: []*stagev1.Kubernetes_Kind{
			{Versions: make([]string, bounds.KindVersions)}, {Versions: []string{"v1"}}}}}, "Kind.versions: more than 20000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if results, ok := test.message.(*stagev1.CheckHealthResponse); ok {
				for i := range results.Results {
					results.Results[i] = &stagev1.HealthResult{}
				}
			}
			b, err := proto.Marshal(test.message)
			if err != nil {
				t.Fatal(err)
			}
			got := test.message.ProtoReflect().New().Interface()
			err = NewCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, got)
			switch {
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %q", err, test.want)
			case test.want == "" && (err != nil || !proto.Equal(got, test.message)):
				t.Errorf("got %v", err)
			}
		})
	}
}

// Nothing is made of a message that is refused: two bytes are a claim, which takes a hundred in memory.
func TestRefusedBeforeItIsDecoded(t *testing.T) {
	claims := bytes.Repeat(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), nil), bounds.ReportMessage/2)
	event := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), claims)
	allocated := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := Unmarshal(event, &stagev1.Event{}); err == nil {
				b.Fatal("is decoded")
			}
		}
	}).AllocedBytesPerOp()
	if allocated > 16<<10 {
		t.Errorf("%d bytes are allocated for an event of %d", allocated, len(event))
	}
}

// Fields that the host does not know take no memory.
func TestUnknownFieldsAreDropped(t *testing.T) {
	t.Parallel()
	b := protowire.AppendBytes(protowire.AppendTag(nil, 1000, protowire.BytesType), make([]byte, 1<<20))
	var e stagev1.Event
	if err := Unmarshal(b, &e); err != nil || len(e.ProtoReflect().GetUnknown()) > 0 {
		t.Errorf("%v, %d bytes are kept", err, len(e.ProtoReflect().GetUnknown()))
	}
}

// What is decoded is within the bounds, however it was encoded, and is what protobuf makes of it.
func FuzzUnmarshal(f *testing.F) {
	for _, m := range []proto.Message{
		&stagev1.Event{ClaimsChanged: &stagev1.ClaimsChanged{Claims: []*stagev1.Claim{{Path: "/a"}}, ListedPaths: []string{"/a"}}, Signaled: []string{"x"}},
		&stagev1.DescribeResponse{Name: "x", Needs: &stagev1.Needs{Files: []string{"/a"}}, Kubernetes: &stagev1.Kubernetes{Kinds: []*stagev1.Kubernetes_Kind{{Versions: []string{"v1"}}}}},
		&stagev1.PrepareRunResponse{HealthChecks: []*stagev1.HealthCheck{{Name: "x"}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, into := range []proto.Message{&stagev1.Event{}, &stagev1.DescribeResponse{}, &stagev1.PrepareRunResponse{}, &stagev1.CheckHealthResponse{}} {
			want := into.ProtoReflect().New().Interface()
			wantErr := proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, want)
			err := Unmarshal(b, into)
			if err == nil && (wantErr != nil || !proto.Equal(into, want) || !withinBounds(want.ProtoReflect(), counts{})) {
				t.Fatalf("%T: %v, protobuf: %v, %v", into, into, want, wantErr)
			}
			if err != nil && wantErr == nil && len(b) <= bounds.Name {
				t.Fatalf("%T: %v of %v", into, err, want)
			}
		}
	})
}

// withinBounds is the second implementation of check, for messages that are decoded.
func withinBounds(m protoreflect.Message, n counts) (within bool) {
	within = true
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		bound, values := fieldBounds(f.FullName()), []protoreflect.Value{v}
		if f.IsList() {
			values = values[:0]
			for i := range v.List().Len() {
				values = append(values, v.List().Get(i))
			}
			n[f.FullName()] += len(values)
			within = within && n[f.FullName()] <= bound.count
		}
		for _, v := range values {
			switch f.Kind() {
			case protoreflect.MessageKind:
				within = within && withinBounds(v.Message(), n)
			case protoreflect.StringKind:
				within = within && len(v.String()) <= bound.bytes
			}
		}
		return within
	})
	return within
}
