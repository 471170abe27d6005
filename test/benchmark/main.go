// Command benchmark compares Catena with kube-apiserver and its etcd: the same requests, from the same
// clients. It prints a table of ratios, Catena over kube-apiserver.
//
// Both systems run at the same time, and each round of each row is measured on one, then on the
// other, which is idle meanwhile; the next round is in the reverse order. So what the machine does
// besides affects both. The ratio is the median of the rounds' ratios; where the range of these has 1.00
// in it, the difference is within the noise. Absolute figures depend on the machine, whose processors
// the clients share with the servers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/catena-dev/catena/test/benchmark/internal/figure"
)

func main() {
	if runStage() {
		return
	}
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		os.Exit(2) // parse has said why
	}
	klog.SetLogger(logr.Discard()) // client-go's complaints about requests that are cancelled
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "benchmark:", err)
		os.Exit(1)
	}
}

// run measures and prints. An error does not lose what has been measured before it.
func run(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "catena-benchmark-")
	if err != nil {
		return err
	}
	c := &comparison{options: o, dir: dir, figures: new(figure.Set)}
	err = c.measure(ctx)
	if err != nil {
		err = fmt.Errorf("%w (logs of the servers are in %s)", err, dir)
	} else {
		err = os.RemoveAll(dir)
	}
	return errors.Join(c.print(os.Stdout), err)
}
