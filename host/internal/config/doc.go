// Package config reads the configuration of the host: koanf in, one strict, typed
// and immutable Config out, or every error at once.
//
// # Layers
//
// Later ones win: defaults, shipped.yaml, the files of --config in order, the files of conf.d
// beside the last of them in order of their names, variables CATENA_… of the
// environment, flags (--set and those that stand for a key). Mappings are merged,
// other values replaced. Null undoes earlier layers: it removes a stage or a
// flag and restores a default. Inside of a stage's own config, null
// is a value like others.
//
// Relative paths are relative to the working directory of the process.
//
// The keys are in docs/config.md, which is made from Keys.
package config
