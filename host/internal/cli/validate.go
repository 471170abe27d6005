package cli

import (
	"context"
	"slices"

	"github.com/catena-dev/catena/host/internal/declared"
	"github.com/catena-dev/catena/host/internal/problems"
)

// validate returns everything that is wrong, one error for each line to print.
func validate(ctx context.Context, flags *configFlags, attach declared.Attachments, withStages bool) []error {
	cfg, err := flags.inspect()
	if cfg == nil {
		return problems.Split(err)
	}
	parsed, flagsErr := declared.CheckFlags(ctx, cfg)
	all := slices.Concat(problems.Split(err), problems.Split(declared.CheckBinaries(cfg, attach)),
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
