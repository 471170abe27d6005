package schema

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// Stage is a running process of a stage.
type Stage interface {
	Description() *stagev1.DescribeResponse
	Client() stagev1.StageClient
}

// CheckStage checks a stage's own configuration against the schema that the stage
// describes and, if that finds nothing, has the stage check it, together with the flags of
// the API server. The error joins the problems, each with its key in the host's
// configuration. It returns when ctx ends at the latest.
func CheckStage(ctx context.Context, name string, stage Stage, config map[string]any, flags []string) error {
	problems, err := Check(ctx, stage.Description().GetConfigSchema(), config)
	if err != nil {
		return fmt.Errorf("stage %q: %w", name, err)
	}
	if len(problems) > 0 {
		return Errors(name, problems)
	}
	encoded, err := json.Marshal(config)
	if err != nil {
		return fmt.Errorf("encode stages.%s.config: %w", name, err)
	}
	resp, err := stage.Client().ValidateConfig(ctx, &stagev1.ValidateConfigRequest{Config: encoded, Flags: flags})
	if status.Code(err) == codes.Unimplemented {
		return nil
	}
	if err != nil {
		return err
	}
	for _, p := range resp.GetProblems() {
		problems = append(problems, Problem{Key: p.GetKey(), Message: p.GetMessage()})
	}
	return Errors(name, problems)
}
