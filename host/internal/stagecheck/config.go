package stagecheck

import (
	"context"
	"encoding/json"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/host/internal/schema"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// nonsense is a configuration that no stage with a schema takes.
const nonsense = `"a text where an object should be"`

// checkConfig needs a process for each configuration that Configure is called with, since
// it is called once.
func checkConfig(ctx context.Context, s *suite) error {
	st, err := s.launched(ctx)
	if err != nil {
		return err
	}
	defer st.close()
	validates, err := s.validates(ctx, st)
	if err != nil {
		return err
	}
	text := st.process.Description().GetConfigSchema()
	if text == "" && !validates {
		return skip("the stage publishes no schema, and takes any configuration")
	}
	if err := refuses(ctx, st, validates, nonsense); err != nil {
		return err
	}
	odd := withUnknownKey(ctx, text, s.opts.Config)
	if odd == nil {
		return nil
	}
	another, err := s.launch(ctx)
	if err != nil {
		return err
	}
	defer another.close()
	return refuses(ctx, another, validates, string(odd))
}

// validates reports whether the stage implements ValidateConfig, and whether that has nothing
// against the configuration that is used here.
func (s *suite) validates(ctx context.Context, st *stage) (bool, error) {
	good, err := st.rpc.ValidateConfig(ctx, &stagev1.ValidateConfigRequest{Config: s.opts.Config})
	if unimplemented(err) {
		return false, nil
	}
	if err != nil || len(good.GetProblems()) > 0 {
		return true, want("no problem with the configuration that is used here", "%v %v", good.GetProblems(), err)
	}
	return true, nil
}

// wordy checks that problems have a message.
func wordy(problems []*stagev1.ConfigProblem) error {
	for _, p := range problems {
		if p.GetMessage() == "" {
			return want("a message in each problem of a configuration", "none for the key %q", p.GetKey())
		}
	}
	return nil
}

// refuses checks that what makes no sense is not taken: by ValidateConfig, which the host
// calls before, or by Configure.
func refuses(ctx context.Context, st *stage, validates bool, config string) error {
	if validates {
		bad, err := st.rpc.ValidateConfig(ctx, &stagev1.ValidateConfigRequest{Config: []byte(config)})
		if err != nil {
			return want("problems as the response of ValidateConfig to "+config, "the error %s", reason(err))
		}
		if problems := bad.GetProblems(); len(problems) > 0 {
			return wordy(problems)
		}
	}
	expected := "a problem of ValidateConfig, or an error of Configure, with a message for the configuration " + config
	err := st.configure(ctx, json.RawMessage(config), false)
	switch code := status.Code(err); {
	case err == nil:
		return want(expected, "no error for %s, though the stage publishes a schema or checks configurations", config)
	case code == codes.Unavailable || code == codes.DeadlineExceeded || code == codes.Unimplemented:
		return want(expected, "%s", reason(err))
	case status.Convert(err).Message() == "":
		return want(expected, "an error without a message")
	}
	return nil
}

// unknownKey is a key that no schema names.
const unknownKey = "aKeyThatNobodyKnows"

// withUnknownKey is the configuration that is used here with one more key; nil if the
// schema allows that, or is of no use.
func withUnknownKey(ctx context.Context, text string, config json.RawMessage) json.RawMessage {
	own := map[string]any{}
	if json.Unmarshal(config, &own) != nil {
		return nil
	}
	if problems, err := schema.Check(ctx, text, own); err != nil || len(problems) > 0 {
		return nil
	}
	if own == nil { // it was null
		own = map[string]any{}
	}
	own[unknownKey] = "x"
	if problems, err := schema.Check(ctx, text, own); err != nil || len(problems) == 0 {
		return nil
	}
	odd, err := json.Marshal(own)
	if err != nil {
		return nil
	}
	return odd
}
