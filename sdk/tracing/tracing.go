// Package tracing exports the spans of a stage to where the server exports its own:
//
//	sdk.Main(sdk.Stage{Name: "mine", New: New, Tracing: tracing.FromHost})
//
// It is a package of its own because the exporter is larger than the SDK.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.yaml.in/yaml/v3"

	"github.com/catena-dev/catena/sdk"
)

// flag is kube-apiserver's for the file with the configuration of tracing.
const flag = "tracing-config-file="

// flushTimeout bounds the export of what is left when the stage stops.
const flushTimeout = time.Second

// configuration is what we need of a TracingConfiguration of apiserver.config.k8s.io.
type configuration struct {
	Endpoint               string `yaml:"endpoint"`
	SamplingRatePerMillion int    `yaml:"samplingRatePerMillion"`
}

// FromHost returns a provider for sdk.Stage.Tracing that exports by OTLP as the server
// does, which has it from the flag tracing-config-file: to the same endpoint, and the
// same part of the traces that do not begin with a client. It is nil if the server exports
// nothing. Spans that are left are exported when the stage stops.
func FromHost(env *sdk.Env) (trace.TracerProvider, error) {
	file := ""
	for _, f := range env.Flags() {
		if name, ok := strings.CutPrefix(f, flag); ok {
			file = name
		}
	}
	if file == "" {
		return nil, nil
	}
	config, err := read(file)
	if err != nil {
		return nil, err
	}
	exporter, err := otlptracegrpc.New(env.Context(), otlptracegrpc.WithEndpoint(config.Endpoint), otlptracegrpc.WithInsecure())
	if err != nil {
		return nil, fmt.Errorf("exporter: %w", err)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(float64(config.SamplingRatePerMillion)/1e6))),
		sdktrace.WithBatcher(exporter),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "catena-stage-"+env.Name), attribute.String("service.instance.id", env.Generation()))),
	)
	env.OnDestroy(func() {
		ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			env.Log.Warn("spans could not be exported", "error", err)
		}
	})
	return provider, nil
}

// read reads the file as the server does. The server has checked it.
func read(file string) (configuration, error) {
	config := configuration{Endpoint: "localhost:4317"}
	text, err := os.ReadFile(file)
	if err != nil {
		return config, err
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return config, fmt.Errorf("%s: %w", file, err)
	}
	return config, nil
}
