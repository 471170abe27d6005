package front

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// Validate checks the flags as a start would, without side effects: no port is
// bound, and files that the server makes at its first start need not exist yet.
// The error joins all problems, each with the flags that it is about as
// apiserver.FLAG.
func (f *Flags) Validate(ctx context.Context) error {
	if f.options.SecureServing.BindPort == 0 {
		f.options.SecureServing.BindPort = 6443
		defer func() { f.options.SecureServing.BindPort = 0 }()
	}
	if signing := &f.options.ServiceAccountSigningKeyFile; !f.operator["service-account-signing-key-file"] && isMissing(*signing) {
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
	if err := f.checkFiles(time.Now()); err != nil {
		return options.CompletedOptions{}, err
	}
	completed, err := f.options.Complete(ctx)
	if err != nil {
		return options.CompletedOptions{}, f.inWordsOfConfig(err)
	}
	var problems []error
	for _, err := range completed.Validate() {
		problems = append(problems, f.inWordsOfConfig(err))
	}
	return completed, errors.Join(problems...)
}

var commandLineFlag = regexp.MustCompile(`--([a-z0-9][a-z0-9-]*[a-z0-9])`)

// inWordsOfConfig turns the names of command line flags in an error into keys of
// the configuration.
func (f *Flags) inWordsOfConfig(err error) error {
	found := false
	text := commandLineFlag.ReplaceAllStringFunc(err.Error(), func(flag string) string {
		if f.all.Lookup(flag[2:]) == nil {
			return flag
		}
		found = true
		return key(flag[2:])
	})
	if !found {
		return fmt.Errorf("apiserver: %w", err)
	}
	return errors.New(text)
}

func isMissing(path string) bool {
	if path == "" {
		return false
	}
	_, err := os.Stat(path)
	return errors.Is(err, os.ErrNotExist)
}

// throwawayKey stands in for the service account key before the first start.
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
