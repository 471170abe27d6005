package front

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/util/keyutil"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// Validate checks the flags as a start would, without side effects: no port is
// bound, and files that the server creates at its first start need not exist yet.
// The error joins all problems, each with the flags that it is about as
// apiserver.FLAG.
func (f *Flags) Validate(ctx context.Context) error {
	// Completion takes one option for the default of another, and would refuse what it made of that the next time: it is done once
	// with each set.
	f, _ = parseFlags(f.asked, f.defaults) // the maker of f has the problems
	if f.options.SecureServing.BindPort == 0 {
		f.options.SecureServing.BindPort = 6443
		defer func() { f.options.SecureServing.BindPort = 0 }()
	}
	if signing := &f.options.ServiceAccountSigningKeyFile; f.needsThrowawayKey(*signing) {
		path, remove, err := throwawayKey()
		if err != nil {
			return err
		}
		defer remove()
		defer func(path string) { *signing = path }(*signing)
		*signing = path
	}
	_, err := f.complete(ctx)
	return err
}

// complete returns the options as kube-apiserver runs with them, validated.
func (f *Flags) complete(ctx context.Context) (options.CompletedOptions, error) {
	files, unusable := f.checkFiles(time.Now())
	completed, err := f.options.Complete(ctx)
	var problems []error
	if err != nil {
		problems = f.configErrors(err)
		problems = append(problems, f.beside(ctx, problems)...)
	} else {
		for _, err := range completed.Validate() {
			problems = append(problems, f.configErrors(err)...)
		}
	}
	problems = append(problems, f.checkTLS()...)
	// checkFiles has reported the files that cannot be used.
	problems = slices.DeleteFunc(problems, func(err error) bool {
		return slices.ContainsFunc(unusable, func(path string) bool { return hasWord(err.Error(), path) })
	})
	return completed, joinUnique(append(files, problems...))
}

// checkTLS checks the flags that Kubernetes' code reads only when it opens the secure port.
func (f *Flags) checkTLS() []error {
	if f.kubernetes {
		return nil
	}
	var problems []error
	serving := f.options.SecureServing
	if _, err := cliflag.TLSVersion(serving.MinTLSVersion); err != nil {
		problems = append(problems, fmt.Errorf("%s: %w: use one of %s", key("tls-min-version"), err,
			strings.Join(cliflag.TLSPossibleVersions(), ", ")))
	}
	if _, err := cliflag.TLSCipherSuites(serving.CipherSuites); err != nil {
		problems = append(problems, fmt.Errorf("%s: %w", key("tls-cipher-suites"), err))
	}
	return problems
}

// beside returns the problems of the flags that the given problems do not name: Kubernetes'
// code stops at the first when it cannot complete the options.
func (f *Flags) beside(ctx context.Context, problems []error) []error {
	rest := maps.Clone(f.asked)
	for _, err := range problems {
		for _, name := range keysIn(err) {
			delete(rest, name)
		}
	}
	if len(rest) == len(f.asked) {
		return nil // the same problems would come again
	}
	others, err := parseFlags(rest, f.defaults)
	return split(errors.Join(err, others.Validate(ctx)))
}

func isMissing(path string) bool {
	if path == "" {
		return false
	}
	_, err := os.Stat(path)
	return errors.Is(err, os.ErrNotExist)
}

// needsThrowawayKey reports whether there is no key that signs tokens: the server creates
// it at its first start, or it is one of the operator's that cannot be read, which
// checkFiles reports.
func (f *Flags) needsThrowawayKey(path string) bool {
	if !f.operator["service-account-signing-key-file"] {
		return isMissing(path)
	}
	return path != "" && holdsKey(path) != nil
}

// throwawayKey stands in for such a key.
func throwawayKey() (path string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "catena-validate-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	key, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err == nil {
		path = filepath.Join(dir, "sa.key")
		err = os.WriteFile(path, key, 0o600)
	}
	if err != nil {
		remove()
		return "", nil, err
	}
	return path, remove, nil
}
