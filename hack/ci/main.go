// Command ci runs everything that a change must pass: make test calls it, and .ci/run calls make test.
//
// make -j alone cannot leave out what a change does not reach, nor limit how many stages have real pods. By the usual times
// a change of an API group takes at most 20 minutes instead of 40, of Berg 28 (TestAChangeOfOneFamilyTakesTwenty).
//
// A stage is a make target. Those whose result the change cannot alter do not run; the table at the end names
// them as NOT RUN, with the reason and the command. reach.go decides it, stages.go lists the stages.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// defaultBudget leaves five of ninety minutes to end stages and to remove clusters.
const defaultBudget = 85 * time.Minute

const usage = `Usage: make test [ARGS='OPTION...'], or .ci/run [OPTION...]

  --since COMMIT  run only what the change since COMMIT can reach; auto is the commit
                  where the branch left its upstream, or else the one before HEAD.
                  make test runs everything without it; .ci/run has --since auto
  --all           run everything, also with --since
  --without-e2e   run nothing that needs root: no journey on real pods
  --keep-going    when a stage has failed, run the others nevertheless
  --plan          print what would run, and run nothing

Environment
  CI_BASE         the commit that auto stands for
  CI_BUDGET       how long a run may take (85m)
`

func main() {
	flags := flag.NewFlagSet("ci", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	since := flags.String("since", "", "")
	all := flags.Bool("all", false, "")
	withoutE2E := flags.Bool("without-e2e", false, "")
	keepGoing := flags.Bool("keep-going", false, "")
	onlyPlan := flags.Bool("plan", false, "")
	if err := flags.Parse(os.Args[1:]); err != nil || flags.NArg() > 0 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	budget := defaultBudget
	if text := os.Getenv("CI_BUDGET"); text != "" {
		var err error
		if budget, err = time.ParseDuration(text); err != nil {
			exit(fmt.Errorf("CI_BUDGET: %w", err))
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()

	suites, err := integrationSuites(".")
	exit(err)
	isBare, err := bare(ctx)
	exit(err)
	list := stages(suites, isBare)
	why := map[string]string{}
	if *since != "" && !*all {
		change, err := changeSince(ctx, *since)
		exit(err)
		packages, err := load(ctx)
		exit(err)
		why = unreached(packages, list, change.paths)
		fmt.Printf("Compared with %s, %d files have changed.\n", change.base, len(change.paths))
	}
	switch {
	case *withoutE2E:
		leaveOut(list, why, "it needs root, and --without-e2e leaves it out", func(s stage) bool { return s.root })
	case os.Geteuid() != 0 && !*onlyPlan:
		leaveOut(list, why, `it needs root: sudo env "PATH=$PATH" make test`, func(s stage) bool { return s.root })
	}
	if *onlyPlan {
		printPlan(list, why)
		return
	}
	chosen := merge(slices.DeleteFunc(slices.Clone(list), func(s stage) bool { return why[s.name] != "" }))
	r := newRunner(chosen, isBare, budget, filepath.Join("dist", "ci"), os.Stdout)
	r.keepGoing = *keepGoing
	failure := r.run(ctx)
	if ctx.Err() != nil && failure == nil {
		failure = context.Cause(ctx)
	}
	if err := r.removeClusters(ctx); err != nil && failure == nil {
		failure = err
	}
	r.table(list, why, failure) // which ends with the counts, and names the failure
	if failure != nil {
		os.Exit(1)
	}
}

func exit(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "ci: %v\n", err)
		os.Exit(1)
	}
}

// leaveOut notes a reason for the stages that match, and for those that need them.
func leaveOut(list []stage, why map[string]string, reason string, match func(stage) bool) {
	for _, s := range list { // what a stage needs stands before it
		lost := slices.ContainsFunc(s.after, func(need string) bool { return why[need] == reason })
		if why[s.name] == "" && (match(s) || lost) {
			why[s.name] = reason
		}
	}
}

func printPlan(list []stage, why map[string]string) {
	for _, s := range list {
		reason := clock(s.usual)
		if why[s.name] != "" {
			reason = "NOT RUN: " + why[s.name]
		}
		fmt.Printf("%-28s %s\n%28s %s\n", s.name, reason, "", s.alone())
	}
}
