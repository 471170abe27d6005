package shadow

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"
)

// nameSuffix is added to the name of an object that is created as a dry run.
const nameSuffix = "-shadow"

// asNew returns a write as it would be if what the client has written were not there yet: an object is created under
// another name, and updated whatever its version is. It is the request itself if that cannot be done.
func (q Request) asNew() Request {
	if q.Resource.Verb == "patch" {
		return q
	}
	suffix := ""
	if q.Resource.Verb == "create" && q.Resource.Subresource == "" {
		suffix = nameSuffix
	}
	var body []byte
	var err error
	switch mediaType, _, _ := strings.Cut(q.Header.Get("Content-Type"), ";"); mediaType {
	case "application/json":
		body, err = renameJSON(q.Body, suffix)
	case "application/vnd.kubernetes.protobuf":
		body, err = renameProtobuf(q.Body, suffix)
	default:
		return q
	}
	if err == nil {
		q.Body = body
	}
	return q
}

var errNoMetadata = errors.New("the object has no metadata")

// renameJSON adds a suffix to the name of an object, if it has a name, and removes its version.
func renameJSON(body []byte, suffix string) ([]byte, error) {
	var object map[string]any
	if err := decode(body, &object); err != nil {
		return nil, err
	}
	metadata, ok := object["metadata"].(map[string]any)
	if !ok {
		return nil, errNoMetadata
	}
	delete(metadata, "resourceVersion")
	if name, _ := metadata["name"].(string); name != "" {
		metadata["name"] = name + suffix
	}
	return json.Marshal(object)
}

// The numbers of fields that all of Kubernetes' types have in common: their metadata, and in it the name and the version.
const (
	metadataField        = 1
	nameField            = 1
	resourceVersionField = 6
)

// protobufPrefix begins an object in protobuf, which is in an envelope of type runtime.Unknown.
var protobufPrefix = []byte("k8s\x00")

// renameProtobuf does in protobuf what renameJSON does.
func renameProtobuf(body []byte, suffix string) ([]byte, error) {
	rest, ok := bytes.CutPrefix(body, protobufPrefix)
	if !ok {
		return nil, errNoMetadata
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(rest); err != nil {
		return nil, err
	}
	found := false
	raw, err := mapFields(envelope.Raw, func(number protowire.Number, value []byte) ([]byte, error) {
		if number != metadataField {
			return value, nil
		}
		found = true
		return mapFields(value, func(number protowire.Number, value []byte) ([]byte, error) {
			switch {
			case number == resourceVersionField:
				return nil, nil
			case number == nameField && len(value) > 0:
				return append(bytes.Clone(value), suffix...), nil
			}
			return value, nil
		})
	})
	if err == nil && !found {
		err = errNoMetadata
	}
	if err != nil {
		return nil, err
	}
	envelope.Raw = raw
	encoded, err := envelope.Marshal()
	return append(bytes.Clone(protobufPrefix), encoded...), err
}

// mapFields returns a message with each field that is a string or a message replaced by what change makes of it, and without those of which
// that is nil.
func mapFields(message []byte, change func(protowire.Number, []byte) ([]byte, error)) ([]byte, error) {
	var out []byte
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		m := protowire.ConsumeFieldValue(number, kind, message[n:])
		if m < 0 {
			return nil, protowire.ParseError(m)
		}
		if kind != protowire.BytesType {
			out = append(out, message[:n+m]...)
		} else {
			value, _ := protowire.ConsumeBytes(message[n:])
			changed, err := change(number, value)
			if err != nil {
				return nil, err
			}
			if changed != nil {
				out = protowire.AppendBytes(append(out, message[:n]...), changed)
			}
		}
		message = message[n+m:]
	}
	return out, nil
}
