package cli

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/catena-dev/catena/host/internal/config"
)

const onlyThese = cobra.ShellCompDirectiveNoFileComp

// completeNothingElse keeps the shell from offering files for the arguments and flags of cmd, and
// of the commands below it, that neither complete by themselves nor take files.
func completeNothingElse(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		completeNothingElse(sub)
	}
	if cmd.ValidArgsFunction == nil && cmd.Annotations[takesFiles] == "" {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if _, ok := cmd.GetFlagCompletionFunc(f.Name); !ok && f.NoOptDefVal == "" && len(f.Annotations) == 0 {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.NoFileCompletions)
		}
	})
}

// takesFiles is the annotation of a command whose arguments are files.
const takesFiles = "catena_takes_files"

// stages returns the names of the stages: those of the running host or, without one,
// of the configuration.
func (f *configFlags) stages(cmd *cobra.Command) []string {
	var names []string
	if client, err := f.client(); err == nil {
		if all, err := client.Status(cmd.Context()); err == nil {
			for _, st := range all.Stages {
				names = append(names, st.Stage)
			}
			return names
		}
	}
	cfg, _ := config.Inspect(f.options()) // what is right of it will do
	switch {
	case cfg == nil:
		return nil
	case cfg.Order != nil:
		return cfg.Order
	}
	return slices.Sorted(maps.Keys(cfg.Stages))
}

// completeStages offers the stages that the arguments do not name yet, and no more than most.
func (f *configFlags) completeStages(most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, onlyThese
		}
		return slices.DeleteFunc(f.stages(cmd), func(name string) bool { return slices.Contains(args, name) }), onlyThese
	}
}

// completeSet offers the keys that the flag --set takes.
func (f *configFlags) completeSet(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	stages := f.stages(cmd)
	var all []string
	for _, k := range config.Keys() {
		if !f.takes(k.Path) {
			continue
		}
		key, open := strings.CutSuffix(k.Path, "*") // apiserver.NAME, stages.NAME.env.NAME
		if !open {
			key += "="
		}
		if own, ok := strings.CutPrefix(key, "stages.*."); ok {
			for _, name := range stages {
				all = append(all, "stages."+name+"."+own)
			}
		} else {
			all = append(all, key)
		}
	}
	return all, onlyThese | cobra.ShellCompDirectiveNoSpace
}
