package frames

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	mathrand "math/rand"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/meta"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

// encoders are Kubernetes' own, by Content-Type of what they write.
func encoders(t testing.TB) (scheme *runtime.Scheme, all map[string]runtime.SerializerInfo) {
	t.Helper()
	scheme = runtime.NewScheme()
	utilruntime.Must(clientscheme.AddToScheme(scheme))
	utilruntime.Must(metav1.AddMetaToScheme(scheme))
	all = map[string]runtime.SerializerInfo{}
	for _, info := range serializer.NewCodecFactory(scheme, serializer.WithSerializer(cbor.NewSerializerInfo)).SupportedMediaTypes() {
		contentType := info.MediaType
		switch {
		case info.StreamSerializer == nil:
			continue
		case contentType == runtime.ContentTypeCBOR:
			contentType = runtime.ContentTypeCBORSequence
		case contentType != runtime.ContentTypeJSON:
			contentType += ";stream=watch"
		}
		all[contentType] = info
	}
	return scheme, all
}

// frame encodes an event as Kubernetes does; nil if the encoding does not have the object.
func frame(t testing.TB, info runtime.SerializerInfo, kind string, object runtime.Object) []byte {
	t.Helper()
	var raw, out bytes.Buffer
	if err := info.Serializer.Encode(object, &raw); err != nil {
		if strings.Contains(err.Error(), "does not implement the protobuf marshalling interface") {
			return nil
		}
		t.Fatal(err)
	}
	event := &metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: raw.Bytes()}}
	if err := info.StreamSerializer.Serializer.Encode(event, info.StreamSerializer.Framer.NewFrameWriter(&out)); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

var kindNames = slices.Sorted(func(yield func(string) bool) {
	for name := range kinds {
		if !yield(name) {
			return
		}
	}
})

// All types of Kubernetes, tables and metadata alone, with values at random, in all encodings.
func TestLook(t *testing.T) {
	t.Parallel()
	scheme, all := encoders(t)
	if len(all) != 3 {
		t.Fatalf("Kubernetes has %d encodings of streams", len(all))
	}
	seed := rand.Int64()
	t.Log("seed", seed)
	fill := fuzzer.FuzzerFor(metafuzzer.Funcs, mathrand.NewSource(seed), serializer.NewCodecFactory(scheme))
	looked := map[string]int{}
	for kind := range scheme.AllKnownTypes() {
		for range 5 {
			object, err := scheme.New(kind)
			if err != nil {
				t.Fatal(err)
			}
			m, err := meta.Accessor(object)
			if err != nil {
				break
			}
			fill.Fill(object)
			m.SetResourceVersion(strconv.Itoa(1 + rand.IntN(1<<40)))
			if rand.IntN(2) == 0 {
				m.SetAnnotations(map[string]string{"a": "b", initialEnd: []string{"true", "false"}[rand.IntN(2)], "z": initialEnd})
			}
			object.GetObjectKind().SetGroupVersionKind(kind)
			look(t, all, object, looked)
		}
	}
	for contentType := range all {
		if looked[contentType] < 500 {
			t.Errorf("%d objects in %s", looked[contentType], contentType)
		}
	}
}

// look compares what Look says with what the object has, in all encodings that have it.
func look(t *testing.T, all map[string]runtime.SerializerInfo, object runtime.Object, looked map[string]int) {
	t.Helper()
	for contentType, info := range all {
		name := kindNames[rand.IntN(len(kindNames))]
		b := frame(t, info, name, object)
		if b == nil {
			continue
		}
		looked[contentType]++
		want := Event{Kind: kinds[name]}
		if m, err := meta.CommonAccessor(object); err == nil && want.Kind != Error {
			want.Revision, _ = strconv.ParseUint(m.GetResourceVersion(), 10, 64)
		}
		if m, err := meta.Accessor(object); err == nil {
			want.InitialEnd = want.Kind == Bookmark && m.GetAnnotations()[initialEnd] == "true"
		}
		if got := EncodingOf(contentType).Look(b); got != want {
			t.Errorf("%s, %s of %T: %+v, want %+v\n%q", contentType, name, object, got, want, b)
		}
	}
}

// Objects that are no types of Kubernetes, a table, and errors, which have the metadata of a list.
func TestLookAtOthers(t *testing.T) {
	t.Parallel()
	_, all := encoders(t)
	looked := map[string]int{}
	row := metav1.TableRow{Cells: []any{`"resourceVersion":"3"`}}
	row.Object.Raw = []byte(`{"metadata":{"resourceVersion":"4"}}`)
	for range 50 {
		look(t, all, &metav1.Table{ListMeta: metav1.ListMeta{ResourceVersion: "1234"}, Rows: []metav1.TableRow{row}}, looked)
		look(t, all, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Odd", "a": "resourceVersion", "data": map[string]any{"metadata": map[string]any{"resourceVersion": "1"}, "resourceVersion": "2"},
			"escaped": "\\\"}],\"metadata\":{\"resourceVersion\":\"3\"}", "list": []any{map[string]any{"resourceVersion": "4"}, int64(5), nil, true, 1.5, "\\"},
			"metadata": map[string]any{
				"annotations": map[string]any{"resourceVersion": "6", "metadata": "7", initialEnd: "true", "quote": "\"", "backslash": "\\"},
				"name":        "odd", "resourceVersion": "8", "labels": map[string]any{initialEnd: "false"},
			},
			"spec": map[string]any{"metadata": map[string]any{"resourceVersion": "9"}},
		}}, looked)
	}
	for contentType, info := range all {
		status := &metav1.Status{ListMeta: metav1.ListMeta{ResourceVersion: "5"}, Code: 410}
		status.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("Status"))
		if got := EncodingOf(contentType).Look(frame(t, info, "ERROR", status)); got != (Event{Kind: Error}) {
			t.Errorf("%s: an error is %+v", contentType, got)
		}
	}
}

// What is no event has no revision, and no end of what is read is beyond the frame.
func TestLookAtRemains(t *testing.T) {
	t.Parallel()
	scheme, all := encoders(t)
	o, _ := scheme.New(clientscheme.Scheme.PrioritizedVersionsForGroup("")[0].WithKind("ConfigMap"))
	m, _ := meta.Accessor(o)
	m.SetResourceVersion("1234")
	m.SetAnnotations(map[string]string{initialEnd: "true"})
	for contentType, info := range all {
		whole := frame(t, info, "BOOKMARK", o)
		if got, want := EncodingOf(contentType).Look(whole), (Event{Bookmark, 1234, true}); got != want {
			t.Fatalf("%s: %+v, want %+v", contentType, got, want)
		}
		for n := range whole {
			if e := EncodingOf(contentType).Look(slices.Clip(whole[:n])); e.Revision != 0 && e.Revision != 1234 {
				t.Errorf("%s: %d of %d bytes are of revision %d", contentType, n, len(whole), e.Revision)
			}
			for range 20 {
				broken := slices.Clone(whole)
				broken[n] = byte(rand.IntN(256))
				_ = EncodingOf(contentType).Look(broken) // does not panic
			}
		}
	}
	for _, text := range []string{
		"", "\n", "{}", `{"type":"ADDED"}`, `{"type":"ADDED","object":[]}`, `{"type":"ADDED","object":{"metadata":7}}`, `{"type":7,"object":{"metadata":{"resourceVersion":"7"}}}`,
		`{"type":"ADDED","object":{"metadata":{"resourceVersion":7}}}`, `{"type":"ADDED","object":{"metadata":{"resourceVersion":"07"}}}`,
		`{"type":"ADDED","object":{"metadata":{"resourceVersion":"7x"}}}`, `{"type":"ADDED","object":{"metadata":{"resourceVersion":"99999999999999999999"}}}`,
		`{"type":"OTHER","object":{"metadata":{"resourceVersion":"7"}}}`, `[{"type":"ADDED"}]`, `{"type":"ADDED","object":{"metadata":{"labels":{"resourceVersion":"7"}}}}`,
	} {
		if e := JSON.Look([]byte(text)); e.Revision != 0 {
			t.Errorf("%s is of revision %d", text, e.Revision)
		}
	}
	if e := JSON.Look([]byte(` { "object" : { "spec" : [ ] , "metadata" : { "resourceVersion" : "7" } } , "type" : "ADDED" } `)); e != (Event{Kind: Added, Revision: 7}) {
		t.Errorf("spaces and another order: %+v", e)
	}
	if e := None.Look([]byte(`{"type":"ADDED","object":{"metadata":{"resourceVersion":"7"}}}`)); e != (Event{}) {
		t.Errorf("without an encoding: %+v", e)
	}
}

// A body that is cut anywhere has the frames that it had.
func TestSplitter(t *testing.T) {
	t.Parallel()
	_, all := encoders(t)
	for contentType, info := range all {
		var body []byte
		var want []string
		for range 30 {
			o := &metav1.PartialObjectMetadata{}
			o.Name, o.ResourceVersion = strings.Repeat("\n\"\\", rand.IntN(30)), strconv.Itoa(1+rand.IntN(1000))
			b := frame(t, info, "MODIFIED", o)
			body, want = append(body, b...), append(want, string(b))
		}
		if contentType == "application/vnd.kubernetes.protobuf;stream=watch" {
			body, want = append(body, 0, 0, 0, 0), append(want, "\x00\x00\x00\x00")
		}
		tail := body[:len(want[0])-1]
		body = append(body, tail...)
		for _, most := range []int{1, 2, 3, 7, 100, 5000, len(body)} {
			s := &Splitter{Encoding: EncodingOf(contentType), Max: 1 << 20}
			var got []string
			for rest := body; len(rest) > 0; {
				n := min(1+rand.IntN(most), len(rest))
				piece := slices.Clone(rest[:n])
				for f := range s.Add(piece) {
					got = append(got, string(f))
				}
				rest = rest[n:]
			}
			if !slices.Equal(got, want) || s.Err() != nil || !bytes.Equal(s.Rest(), tail) {
				t.Errorf("%s in pieces of %d: %d frames, want %d, %d bytes are left, want %d: %v",
					contentType, most, len(got), len(want), len(s.Rest()), len(tail), s.Err())
			}
		}
	}
}

// A frame that is too long, or none, ends that, and nothing of the body is lost.
func TestSplitterGivesUp(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100)
	for name, tc := range map[string]struct {
		encoding Encoding
		body     string
		want     error
	}{
		"JSON": {JSON, long + "\n", ErrTooLong}, "JSON that does not end": {JSON, long, ErrTooLong},
		"protobuf": {Protobuf, string(binary.BigEndian.AppendUint32(nil, 100)) + long, ErrTooLong},
		"CBOR":     {CBOR, "\x78\x64" + long, ErrTooLong}, "no CBOR": {CBOR, "\xff", ErrFormat},
		"deep CBOR": {CBOR, strings.Repeat("\x81", 300), ErrFormat},
		"none":      {None, "x", ErrFormat},
	} {
		for _, size := range []int{1, 1000} {
			s := &Splitter{Encoding: tc.encoding, Max: 50}
			if name == "deep CBOR" {
				s.Max = 1000
			}
			var passed strings.Builder
			rest := tc.body
			for len(rest) > 0 && s.Err() == nil {
				n := min(size, len(rest))
				for f := range s.Add([]byte(rest[:n])) {
					passed.Write(f)
				}
				rest = rest[n:]
			}
			if !errors.Is(s.Err(), tc.want) || passed.String()+string(s.Rest())+rest != tc.body {
				t.Errorf("%s in pieces of %d: %v, want %v; %q are left", name, size, s.Err(), tc.want, s.Rest())
			}
		}
	}
}

// Who stops between frames loses none.
func TestSplitterStops(t *testing.T) {
	t.Parallel()
	s := &Splitter{Encoding: JSON, Max: 100}
	var got []string
	for piece := []byte("a\nb\nc\nd"); len(got) < 3; piece = nil {
		for f := range s.Add(piece) {
			got = append(got, string(f))
			break
		}
		if piece == nil {
			break
		}
	}
	for f := range s.Add([]byte("\n")) {
		got = append(got, string(f))
	}
	if want := []string{"a\n", "b\n", "c\n", "d\n"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func BenchmarkLook(b *testing.B) {
	_, all := encoders(b)
	fields := map[string]any{}
	for i := range 20 {
		fields[fmt.Sprint("field", i)] = strings.Repeat("text ", 9)
	}
	object := map[string]runtime.Object{
		"unstructured": &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Odd", "data": fields, "metadata": map[string]any{"name": "odd", "resourceVersion": "1234567"},
		}},
		"typed": &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{Kind: "Thing", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{
				Name: "thing", Namespace: "default", UID: "9cde1938-9cde-1938-9cde-19389cde1938", ResourceVersion: "1234567",
				Annotations: map[string]string{"text": strings.Repeat("text ", 150)},
			},
		},
	}
	for name, o := range object {
		for contentType, info := range all {
			f := frame(b, info, "MODIFIED", o)
			if f == nil {
				continue
			}
			b.Run(name+"/"+strings.TrimPrefix(contentType, "application/"), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(f)))
				for b.Loop() {
					if EncodingOf(contentType).Look(f).Revision != 1234567 {
						b.Fatal("no revision")
					}
				}
			})
		}
	}
}

// FuzzSplitter and Look: nothing panics, and what has been passed on and what is left is the body.
func FuzzSplitter(f *testing.F) {
	for encoding := range 4 {
		f.Add(encoding, []byte("{\"type\":\"ADDED\"}\n"), []byte{1, 2, 3})
		f.Add(encoding, []byte{0, 0, 0, 2, 10, 0, 0xbf, 0x41, 'a', 1, 0xff, 0xa1, 0x41}, []byte{4})
	}
	f.Fuzz(func(t *testing.T, encoding int, body, cuts []byte) {
		s := &Splitter{Encoding: Encoding(encoding & 3), Max: 1000}
		var passed []byte
		rest := body
		for i := 0; len(rest) > 0 && s.Err() == nil; i++ {
			n := len(rest)
			if i < len(cuts) {
				n = min(int(cuts[i])+1, n)
			}
			for frame := range s.Add(rest[:n]) {
				_ = s.Encoding.Look(frame)
				passed = append(passed, frame...)
			}
			rest = rest[n:]
		}
		if got := slices.Concat(passed, s.Rest(), rest); !bytes.Equal(got, body) {
			t.Errorf("%q became %q", body, got)
		}
	})
}
