package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/catena-dev/catena/sdk"
)

// envLife makes the test binary a stage that writes down what happens to it. It has the
// stage's name and the file to write to, NAME:FILE.
const envLife = "HOST_TEST_LIFE"

// lifeConfig says what goes wrong in the life of the stage.
type lifeConfig struct {
	// Hang is "new", "hook" or "end": what does not come back.
	Hang string `json:"hang"`
	// Fail is "hook" or "end": what fails.
	Fail string `json:"fail"`
	// Greeting is the response at the path /NAME.
	Greeting string `json:"greeting"`
	// Password is for no use.
	Password string `json:"password" secret:"true"`
}

func lifeStage(is string) sdk.Stage {
	name, transcript, _ := strings.Cut(is, ":")
	note := func(format string, args ...any) {
		f, err := os.OpenFile(transcript, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = fmt.Fprintf(f, format+"\n", args...)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	return sdk.Stage{Name: name, Config: lifeConfig{}, New: func(env *sdk.Env) (http.Handler, error) {
		var config lifeConfig
		if err := env.Config(&config); err != nil {
			return nil, err
		}
		note("configured")
		if err := os.WriteFile(transcript+"."+env.Generation()+".pid", []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
			return nil, err
		}
		if config.Hang == "new" {
			select {}
		}
		env.OnPrepareRun(func(context.Context) error { note("prepared"); return nil })
		env.OnDestroy(func() {
			note("destroyed")
			if config.Hang == "end" {
				select {}
			}
		})
		env.PostStartHook("begin", func(ctx context.Context) error {
			note("post-start hook")
			select {
			case <-env.Signal("MuxAndDiscoveryComplete"): // so that readiness and failure are later
			case <-ctx.Done():
			}
			if config.Hang == "hook" {
				<-ctx.Done()
			}
			if config.Fail == "hook" {
				return errors.New("broken")
			}
			return nil
		})
		env.PreShutdownHook("end", func(context.Context) error {
			note("pre-shutdown hook")
			if config.Fail == "end" {
				return errors.New("broken")
			}
			return nil
		})
		env.Claim("/" + name)
		return lifeHandler(config), nil
	}}
}

// lifeHandler responds with the greeting.
func lifeHandler(config lifeConfig) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, config.Greeting) })
}
