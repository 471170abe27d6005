package cli

import (
	"context"
	"slices"

	"github.com/catena-dev/catena/host/internal/problems"
	"github.com/catena-dev/catena/host/internal/server"
)

// validate returns everything that is wrong, one error for each line to print.
func validate(ctx context.Context, flags *configFlags, attach server.Attachments, withStages bool) []error {
	cfg, err := flags.inspect()
	if cfg == nil {
		return problems.Split(err)
	}
	parsed, flagsErr := server.CheckFlags(ctx, cfg)
	all := slices.Concat(problems.Split(err), problems.Split(server.CheckBinaries(cfg, attach)),
		problems.Split(problems.Locate(cfg, flagsErr)))
	if withStages && parsed != nil && cfg.Order != nil {
		for _, err := range problems.Split(problems.Locate(cfg, validateWithStages(ctx, cfg, parsed.List()))) {
			// The lock file may have told of it already.
			if !slices.ContainsFunc(all, func(other error) bool { return other.Error() == err.Error() }) {
				all = append(all, err)
			}
		}
	}
	return all
}
