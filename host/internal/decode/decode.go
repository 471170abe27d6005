// Package decode decodes what stages send on their control sockets. A message with a field that is too long, or that
// occurs too often, is refused before anything is made of it: two bytes can be an element of a list, which takes a
// hundred in memory.
package decode

import (
	"fmt"
	"path"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// MaxMessage returns how long a message may be that comes in response to a method, in bytes. The method is that of
// gRPC, as /SERVICE/METHOD.
func MaxMessage(method string) int {
	if path.Dir(method) == "/"+stagev1.Stage_ServiceDesc.ServiceName {
		switch path.Base(method) {
		case "Describe":
			return bounds.DescribeMessage
		case "ValidateConfig":
			return bounds.ProblemsMessage
		case "Configure", "PrepareRun", "Watch":
			return bounds.ReportMessage
		case "CheckHealth":
			return bounds.HealthMessage
		case "GetDebugPage":
			return bounds.PagePiece
		case "GatherMetrics":
			return bounds.MetricsPiece + 16 // what is around the text
		}
	}
	return bounds.OtherMessage
}

// Codec is the codec of a connection to a stage.
type Codec struct{ encoding.CodecV2 }

// NewCodec returns a codec.
func NewCodec() Codec { return Codec{encoding.GetCodecV2(grpcproto.Name)} }

// Name returns nothing, so that the content type stays that of gRPC itself.
func (Codec) Name() string { return "" }

// Unmarshal implements encoding.CodecV2.
func (Codec) Unmarshal(data mem.BufferSlice, into any) error {
	m, ok := into.(proto.Message)
	if !ok {
		return fmt.Errorf("a %T is no message", into)
	}
	b := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	return Unmarshal(b.ReadOnlyData(), m)
}

// Unmarshal decodes a message that a stage has sent. Fields that the host does not know are dropped. The error names
// the field that is beyond its bounds.
func Unmarshal(b []byte, into proto.Message) error {
	// others are go-plugin's
	if m := into.ProtoReflect().Descriptor(); m.ParentFile().Package() == stagev1.File_sdk_stagev1_stage_proto.Package() {
		if err := (counts{}).check(m, b); err != nil {
			return err
		}
	}
	return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, into)
}

// counts is how often the fields of a message that are lists have occurred, those of messages in it included.
type counts map[protoreflect.FullName]int

// check goes through an encoded message, without taking any of it apart but the messages in it.
func (n counts) check(m protoreflect.MessageDescriptor, b []byte) error {
	for len(b) > 0 {
		number, kind, length := protowire.ConsumeTag(b)
		if length < 0 {
			return protowire.ParseError(length)
		}
		b = b[length:]
		if length = protowire.ConsumeFieldValue(number, kind, b); length < 0 {
			return protowire.ParseError(length)
		}
		value := b[:length]
		b = b[length:]
		field := m.Fields().ByNumber(number)
		if field == nil || kind != protowire.BytesType {
			continue
		}
		value, _ = protowire.ConsumeBytes(value)
		if err := n.checkField(field, value); err != nil {
			return err
		}
	}
	return nil
}

func (n counts) checkField(field protoreflect.FieldDescriptor, value []byte) error {
	bound := fieldBounds(field.FullName())
	if field.IsList() {
		if n[field.FullName()]++; n[field.FullName()] > bound.count {
			return fmt.Errorf("%s: more than %d, which are the most that a stage can have", inWords(field), bound.count)
		}
	}
	switch field.Kind() {
	case protoreflect.MessageKind:
		return n.check(field.Message(), value)
	case protoreflect.StringKind, protoreflect.BytesKind:
		if len(value) > bound.bytes {
			return fmt.Errorf("%s: %d bytes, and %d are the most that it can have", inWords(field), len(value), bound.bytes)
		}
	}
	return nil
}

// inWords is the name of a field with that of its message, without the package.
func inWords(field protoreflect.FieldDescriptor) string {
	return string(field.Parent().Name()) + "." + string(field.Name())
}
