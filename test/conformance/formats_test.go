package conformance

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	cborframes "k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	cbor "k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// known has all built-in kinds, and those of the meta group.
var known = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := scheme.AddToScheme(s); err != nil {
		panic(err)
	}
	if err := metav1.AddMetaToScheme(s); err != nil {
		panic(err)
	}
	return s
}()

var codecs = serializer.NewCodecFactory(known).UniversalDeserializer()

// body returns the body that the case sends, nil if there is none.
func (c *testCase) body() ([]byte, error) {
	body := append([]byte(c.Body), c.Base64...)
	if c.Object != nil {
		var err error
		if body, err = encode(c.Object, c.Headers["Content-Type"]); err != nil {
			return nil, err
		}
	}
	if len(body)+c.Padding == 0 {
		return nil, nil
	}
	return append(body, bytes.Repeat([]byte(" "), c.Padding)...), nil
}

// encode returns an object in the format of a content type.
func encode(object any, contentType string) ([]byte, error) {
	switch {
	case strings.HasSuffix(contentType, "cbor"):
		return cbor.Marshal(object)
	case strings.HasPrefix(contentType, runtime.ContentTypeProtobuf):
		text, err := json.Marshal(object)
		if err != nil {
			return nil, err
		}
		typed, _, err := codecs.Decode(text, nil, nil)
		if err != nil {
			return nil, err
		}
		return runtime.Encode(protobuf.NewSerializer(known, known), typed)
	default:
		return json.Marshal(object)
	}
}

// stream is a format in which the events of a watch follow each other as bytes.
type stream struct {
	framer runtime.Framer
	decode func(frame []byte) (any, error)
}

// streamOf returns nil for bodies of other formats.
func streamOf(header http.Header) *stream {
	kind, params, _ := mime.ParseMediaType(header.Get("Content-Type"))
	switch {
	case kind == runtime.ContentTypeCBORSequence:
		return &stream{cborframes.NewFramer(), decodeCBOR}
	case kind == runtime.ContentTypeProtobuf && params["stream"] == "watch":
		return &stream{protobuf.LengthDelimitedFramer, decodeProtobufEvent}
	default:
		return nil
	}
}

// readEvents reads the first events of a watch. They may be followed by a part of the next one.
func readEvents(resp *http.Response, events int) ([]byte, error) {
	var body bytes.Buffer
	if s := streamOf(resp.Header); s != nil {
		_, err := s.frames(io.TeeReader(resp.Body, &body), events)
		return body.Bytes(), err
	}
	lines := bufio.NewReader(resp.Body)
	for range events {
		line, err := lines.ReadBytes('\n')
		body.Write(line)
		if err != nil {
			return body.Bytes(), err
		}
	}
	return body.Bytes(), nil
}

// frames reads that many frames, or all if it is 0.
func (s *stream) frames(in io.Reader, count int) (frames [][]byte, err error) {
	const longest = 1 << 20
	r := s.framer.NewFrameReader(io.NopCloser(in))
	for count == 0 || len(frames) < count {
		frame := make([]byte, longest)
		n, err := r.Read(frame)
		if err == io.EOF && count == 0 {
			return frames, nil
		}
		if err != nil {
			return frames, err
		}
		frames = append(frames, frame[:n])
	}
	return frames, nil
}

// values returns as many events as there are, up to a number.
func (s *stream) values(body []byte, events int) ([]any, error) {
	frames, err := s.frames(bytes.NewReader(body), events)
	if err != nil && err != io.EOF {
		return nil, err
	}
	values := make([]any, len(frames))
	for i, frame := range frames {
		if values[i], err = s.decode(frame); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// decode returns the values of a body in one of the formats of the Kubernetes API, at
// most the given number of events of a binary stream.
func decode(header http.Header, body []byte, events int) ([]any, error) {
	kind, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil {
		return nil, err
	}
	if s := streamOf(header); s != nil {
		return s.values(body, events)
	}
	var value any
	switch {
	case strings.HasPrefix(kind, runtime.ContentTypeProtobuf):
		value, err = decodeProtobuf(body)
	case kind == runtime.ContentTypeCBOR:
		value, err = decodeCBOR(body)
	case kind == "application/yaml":
		err = yaml.Unmarshal(body, &value)
	case kind == "application/json" || strings.HasSuffix(kind, "+json"):
		return decodeJSON(body)
	case bytes.HasPrefix(body, []byte("{")):
		return decodeJSON(body) // the index of OpenAPI v3 has a text type
	default:
		err = fmt.Errorf("no decoder for %s", kind)
	}
	return []any{value}, err
}

func decodeCBOR(body []byte) (value any, err error) {
	err = cbor.Unmarshal(body, &value)
	return value, err
}

func decodeProtobufEvent(frame []byte) (any, error) {
	var event metav1.WatchEvent
	if err := event.Unmarshal(frame); err != nil {
		return nil, err
	}
	object, err := decodeProtobuf(event.Object.Raw)
	return map[string]any{"type": event.Type, "object": object}, err
}

func decodeProtobuf(body []byte) (any, error) {
	object, _, err := codecs.Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	docs, err := decodeJSON(text)
	if err != nil {
		return nil, err
	}
	return docs[0], nil
}

func decodeJSON(body []byte) ([]any, error) {
	var docs []any
	for d := json.NewDecoder(bytes.NewReader(body)); ; {
		var doc any
		err := d.Decode(&doc)
		if err == io.EOF {
			return docs, nil
		}
		if err != nil {
			return nil, err
		}
		docs = append(docs, doc)
	}
}
