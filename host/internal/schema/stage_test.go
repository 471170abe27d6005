package schema

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// fakeStage describes a schema and responds to ValidateConfig.
type fakeStage struct {
	stagev1.StageClient
	schema   string
	problems []*stagev1.ConfigProblem
	err      error
	asked    *stagev1.ValidateConfigRequest
}

func (f *fakeStage) Description() *stagev1.DescribeResponse {
	return &stagev1.DescribeResponse{ConfigSchema: f.schema}
}

func (f *fakeStage) Client() stagev1.StageClient { return f }

func (f *fakeStage) ValidateConfig(_ context.Context, r *stagev1.ValidateConfigRequest, _ ...grpc.CallOption) (*stagev1.ValidateConfigResponse, error) {
	f.asked = r
	return &stagev1.ValidateConfigResponse{Problems: f.problems}, f.err
}

func TestCheckStage(t *testing.T) {
	t.Parallel()
	const object = `{"type":"object","properties":{"greeting":{"type":"string"}},"additionalProperties":false}`
	for name, c := range map[string]struct {
		stage  fakeStage
		config map[string]any
		want   string
		asked  bool
	}{
		"good":                   {fakeStage{schema: object}, map[string]any{"greeting": "hi"}, "", true},
		"without ValidateConfig": {fakeStage{err: status.Error(codes.Unimplemented, "")}, nil, "", true},
		"against the schema": {fakeStage{schema: object}, map[string]any{"greting": "hi"},
			`stages.core.config.greting: unknown key (did you mean "greeting"?) (says stage "core")`, false},
		"against the stage": {fakeStage{problems: []*stagev1.ConfigProblem{{Key: "greeting", Message: "is rude"}, {Message: "is empty"}}}, nil,
			"stages.core.config.greeting: is rude (says stage \"core\")\nstages.core.config: is empty (says stage \"core\")", true},
		"stage that fails": {fakeStage{err: errors.New("broken")}, nil, "broken", true},
		"no schema":        {fakeStage{schema: "[]"}, nil, `stage "core": its configuration's schema is no JSON schema: `, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := CheckStage(t.Context(), "core", &c.stage, c.config, []string{"v=2"})
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != c.want && (name != "no schema" || len(got) < len(c.want) || got[:len(c.want)] != c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if (c.stage.asked != nil) != c.asked || c.asked && c.stage.asked.GetFlags()[0] != "v=2" {
				t.Errorf("asked for %v", c.stage.asked)
			}
		})
	}
}
