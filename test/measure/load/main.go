// Command load measures how close the operator comes to what the API server can take.
//
// It drives the operator and, by turns, a bare client that makes the same requests with
// the same number of workers, on the cluster of KUBECONFIG, which must be one that
// test/cluster made with --audit and the profile simulated, or node for the scenario pods.
// "make load" and "make load-pods" do all of that. docs/performance.md tells what is measured and what came out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/measure/machine"
)

// options are what the command line can say.
type options struct {
	scenarios string        // names, separated by commas; "" for all
	out       string        // folder of load.json
	compare   string        // results to compare with; "" for none
	page      string        // page whose results are replaced; "" for none
	profiles  string        // folder for profiles of the operator; "" for none
	program   string        // the operator's program
	image     string        // of the Challenge's container, which serves HTTP at port 8080
	port      string        // type of that port
	workers   int           // of the operator and of the bare client, each
	rounds    int           // how often the turns of a burst are repeated
	rate      int           // instances per second in balance
	balance   time.Duration // how long the balance is kept
	lifetime  time.Duration // of an instance in balance
	expiring  int           // instances that expire in the same second
	live      int           // instances to grow to
	quiet     time.Duration // how long they are left alone
	claims    int           // prepared instances that are taken over while leaders change
	check     bool          // fail when a count misses its target
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process immediately
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "load: %v\n", err)
		os.Exit(1)
	}
}

func parse(args []string, stderr io.Writer) (options, []scenario, error) {
	var o options
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.scenarios, "scenarios", "", "which of "+strings.Join(scenarioNames(), ", ")+"; the default is all from "+firstUsual+", none only compares")
	flags.StringVar(&o.out, "out", "dist/load", "folder of load.json; scenarios that are not run keep their results there")
	flags.StringVar(&o.compare, "compare", "docs/performance/load.json", "results to compare with, empty for none")
	flags.StringVar(&o.page, "page", "", "Markdown page whose results are replaced, such as docs/performance.md; empty for none")
	flags.StringVar(&o.profiles, "profiles", "", "folder for CPU and allocation profiles of the operator, empty for none")
	flags.StringVar(&o.program, "program", "bin/manager", "the operator's program")
	flags.StringVar(&o.image, "image", "registry.example.com/load/web:1", "of the Challenge's container; real nodes must have it, and it must serve at port 8080")
	flags.StringVar(&o.port, "port", string(bergv1.PublicHTTPRoute), "type of that port: "+string(bergv1.PublicHTTPRoute)+", or "+string(bergv1.PublicPort)+", to which the operator connects before the instance is Running")
	flags.IntVar(&o.workers, "workers", 32, "workers of the operator, and of the bare client")
	flags.IntVar(&o.rounds, "rounds", 9, "how often the turns of a burst are repeated, and of real pods three times at most; the median counts")
	flags.IntVar(&o.rate, "rate", 10, "instances per second in balance")
	flags.DurationVar(&o.balance, "balance", 5*time.Minute, "how long the balance is kept")
	flags.DurationVar(&o.lifetime, "lifetime", time.Minute, "how long an instance lives in balance")
	flags.IntVar(&o.expiring, "expiring", 1000, "instances that expire in the same second")
	flags.IntVar(&o.live, "live", 10000, "instances to grow to")
	flags.DurationVar(&o.quiet, "quiet", 10*time.Minute, "how long they are left alone")
	flags.IntVar(&o.claims, "claims", 10000, "prepared instances that are taken over while leaders change")
	flags.BoolVar(&o.check, "check", false, "fail when a number of requests misses its target; times never fail")
	if err := flags.Parse(args); err != nil {
		return o, nil, err
	}
	if flags.NArg() > 0 {
		return o, nil, fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	chosen, err := choose(o.scenarios)
	return o, chosen, err
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, chosen, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o750); err != nil {
		return err
	}
	file := filepath.Join(o.out, "load.json")
	report, err := readReport(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if len(chosen) > 0 {
		if err := measure(ctx, o, chosen, &report, file, stdout, stderr); err != nil {
			return err
		}
	}
	if o.compare != "" {
		before, err := readReport(o.compare)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		printComparison(stdout, before, report, chosen)
	}
	if o.page != "" {
		changed, err := lastChange(ctx, filepath.Dir(o.page))
		if err != nil {
			return err
		}
		if err := writePage(o.page, report, changed); err != nil {
			return err
		}
	}
	fmt.Fprintf(stdout, "\nresults: %s\n", file)
	if missed := report.missedCounts(chosen); o.check && len(missed) > 0 {
		return fmt.Errorf("missed: %s", strings.Join(missed, "; "))
	}
	return nil
}

// measure runs scenarios and puts their results into a report, which it writes after
// each, so that an interruption costs no result.
func measure(ctx context.Context, o options, chosen []scenario, report *Report, file string, stdout, stderr io.Writer) (err error) {
	show := newProgress(stderr)
	b, err := prepare(ctx, o, show)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	here := machine.Describe()
	for _, s := range chosen {
		show.title("%s", s.title(o))
		result, err := s.run(ctx, b)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		result.Name, result.Title, result.Date = s.name, s.title(o), time.Now().UTC().Truncate(time.Second)
		result.Machine, result.Load = here, machine.LoadAverage()
		show.done()
		fmt.Fprint(stdout, results(Report{Scenarios: []Scenario{result}}, time.Time{}))
		report.put(result)
		if err := report.write(file); err != nil {
			return err
		}
	}
	return nil
}
