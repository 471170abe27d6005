package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/dashboard"
	"github.com/catena-dev/catena/host/internal/printable"
)

func uiCommand() *cobra.Command {
	var flags configFlags
	var port uint16
	var noBrowser bool
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Show the chain of a running host in a browser",
		Long: `Serve the page about the chain on a port of this machine's loopback address, and open it
in a browser. Its address has a random token, without which nothing is served; who has
the address can see the page until the command ends. The page is read-only.

The server itself has the same page at /debug/catena/, for users who may get that path:
kubectl proxy makes it http://127.0.0.1:8001/debug/catena/.`,
		Example: `  catena ui
  catena ui --no-browser --port 9000`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := flags.client()
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if _, err := client.Status(ctx); err != nil {
				return err
			}
			l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
			if err != nil {
				return fmt.Errorf("--port: %w", err)
			}
			token := "/" + rand.Text()
			address := "http://" + l.Addr().String() + token + "/"
			printable.Fprintf(cmd.OutOrStdout(), "%s\n", address)
			if !noBrowser {
				closeBrowser, err := openBrowser(address)
				if err != nil {
					printable.Fprintf(cmd.ErrOrStderr(), "no browser could be opened (%v): open the address above\n", err)
				}
				defer closeBrowser()
			}
			page := dashboard.New(runningHost{client})
			srv := &http.Server{Handler: http.StripPrefix(token, page)}
			defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
			if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		},
	}
	flags.registerHost(cmd)
	cmd.Flags().Uint16Var(&port, "port", 0, "`port` on the loopback address; 0 for any free one")
	cmd.Flags().BoolVar(&noBrowser, "no-browser", false, "only print the address")
	return cmd
}

// runningHost is a host that the page asks over its admin socket.
type runningHost struct{ *admin.Client }

// Changed implements dashboard.Source.
func (runningHost) Changed() <-chan struct{} { return nil }

// openBrowser opens an address. It is not in the arguments of a process, which all users can see, but in a file.
func openBrowser(address string) (closeBrowser func(), err error) {
	program := "xdg-open"
	switch {
	case runtime.GOOS == "darwin":
		program = "open"
	case os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "":
		return func() {}, errors.New("there is no display")
	}
	dir, err := os.MkdirTemp("", "catena-ui-")
	if err != nil {
		return func() {}, err
	}
	remove := func() { _ = os.RemoveAll(dir) }
	file := filepath.Join(dir, "open.html")
	err = os.WriteFile(file, []byte(`<!DOCTYPE html><title>Catena</title><meta http-equiv="refresh" content="0; url=`+address+`">`), 0o600)
	if err != nil {
		return remove, err
	}
	if out, err := exec.Command(program, file).CombinedOutput(); err != nil {
		return remove, fmt.Errorf("%s: %w %s", program, err, strings.TrimSpace(string(out)))
	}
	return remove, nil
}
