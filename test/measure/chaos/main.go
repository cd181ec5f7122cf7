// Command chaos lets many instances live while everything around the operator fails,
// and checks that none of them, and nothing foreign, comes to harm.
//
// It runs two operators as processes on the cluster of KUBECONFIG, which must be one
// that test/cluster made with the profile simulated, and does to them, to their line
// to the API server and to the API server itself what a bad day does. Lives and
// disruptions follow from the seed alone. "make chaos-berg" does all of that;
// docs/faults.md tells what is done and what must hold.
package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// options are what the command line can say.
type options struct {
	seed    uint64        // 0 for one by chance
	lives   int           // how many instances are created
	storm   time.Duration // how long the faults last; the lives begin during that time
	program string        // the operator's program
	logs    string        // folder for the logs of the operators
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process immediately
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "chaos: %v\n", err)
		os.Exit(1)
	}
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Uint64Var(&o.seed, "seed", 0, "what lives and faults follow from; 0 takes one by chance")
	flags.IntVar(&o.lives, "lives", 60, "how many instances are created")
	flags.DurationVar(&o.storm, "storm", 75*time.Second, "how long the faults last; the lives begin during that time")
	flags.StringVar(&o.program, "program", "bin/manager", "the operator's program")
	flags.StringVar(&o.logs, "logs", "dist/chaos", "folder for the logs of the operators")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	if o.lives < 1 || o.storm < shortestStorm {
		return o, fmt.Errorf("--lives %d, --storm %s: use at least 1 and %s", o.lives, o.storm, shortestStorm)
	}
	if o.seed == 0 {
		var chance [8]byte
		_, _ = rand.Read(chance[:]) // it never fails
		o.seed = binary.LittleEndian.Uint64(chance[:])>>1 | 1
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	replay := fmt.Sprintf("make chaos-berg SEED=%d LIVES=%d STORM=%s", o.seed, o.lives, o.storm)
	fmt.Fprintf(stdout, "%d lives in a storm of %s, seed %d\n", o.lives, o.storm, o.seed)
	w, err := prepare(ctx, o, stdout)
	if err != nil {
		return err
	}
	err = w.run(ctx)
	w.close(context.WithoutCancel(ctx))
	w.report(stdout)
	if err != nil {
		return fmt.Errorf("%w\nthe operators' logs are in %s; the same again: %s", err, o.logs, replay)
	}
	fmt.Fprintln(stdout, "everything held")
	return nil
}
