// Command ci runs everything that a change must pass: .ci/run calls it.
//
// Stages that mostly wait run side by side, each on a cluster of its own, beside one at a time that needs the
// processors. The first that fails ends all others, unless all failures are asked for. On a machine that has built nothing yet, where all would take
// longer than a run may, those are left out that the change concerns least and that cost most: they are printed as NOT
// RUN, with their commands. Where Kubernetes and its company are built, everything runs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// defaultBudget leaves five of ninety minutes to end and to clean up.
const defaultBudget = 85 * time.Minute

const usage = `Usage: .ci/run [--without-e2e] [--keep-going] [--plan]

  --without-e2e   without the real node; needs no root
  --keep-going    when a stage has failed, run the others all the same
  --plan          print what would run, and how long that should take

Environment
  CI_BUDGET   how long a run may take                                   (85m)
  CI_BASE     commit that the change is compared with   (where it left its
              upstream branch, or the commit before it)
`

func main() {
	flags := flag.NewFlagSet("ci", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	withoutE2E := flags.Bool("without-e2e", false, "")
	keepGoing := flags.Bool("keep-going", false, "")
	onlyPlan := flags.Bool("plan", false, "")
	if err := flags.Parse(os.Args[1:]); err != nil || flags.NArg() > 0 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if !*withoutE2E && !*onlyPlan && os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "ci: the journeys need root: run it with sudo, or with --without-e2e")
		os.Exit(2)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, !*withoutE2E, *keepGoing, *onlyPlan); err != nil {
		fmt.Fprintf(os.Stderr, "ci: %v\n", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, withE2E, keepGoing, onlyPlan bool) error {
	budget := defaultBudget
	if set := os.Getenv("CI_BUDGET"); set != "" {
		parsed, err := time.ParseDuration(set)
		if err != nil {
			return fmt.Errorf("CI_BUDGET: %w", err)
		}
		budget = parsed
	}
	suites, err := integrationSuites(".")
	if err != nil {
		return err
	}
	profiles := []string{"simulated"}
	if withE2E {
		profiles = append(profiles, profilesOnNodes...)
	}
	missing, err := missingParts(ctx, profiles...)
	if err != nil {
		return err
	}
	changed, base := changes(ctx)
	chosen, left := within(budget, stages(withE2E, suites, missing), changed, missing)
	fmt.Printf("Compared with %s, %d files have changed. ", base, len(changed))
	if len(missing) > 0 {
		fmt.Printf("Not built yet: %s. ", strings.Join(missing, ", "))
	}
	fmt.Printf("It should take some %s of %s.\n", clock(makespan(chosen, missing)), clock(budget))
	for _, s := range left {
		fmt.Printf("Will NOT RUN, for lack of time: %s\n", s.name)
	}
	if onlyPlan {
		printPlan(chosen, left, missing)
		return nil
	}

	r := newRunner(chosen, missing, budget, filepath.Join("dist", "ci"), os.Stdout)
	r.keepGoing = keepGoing
	failure := r.run(ctx)
	if failure == nil && ctx.Err() != nil {
		failure = context.Cause(ctx)
	}
	if err := r.removeClusters(ctx); err != nil && failure == nil {
		failure = err
	}
	r.table(left, failure)
	return failure
}

func printPlan(chosen, left []stage, missing []string) {
	for _, s := range chosen {
		fmt.Printf("%-30s %7s  %s\n", s.name, clock(s.cost(missing)), strings.Join(s.command, " "))
	}
	for _, s := range left {
		fmt.Printf("%-30s %7s  NOT RUN: %s\n", s.name, clock(s.cost(missing)), strings.Join(s.command, " "))
	}
}

// removeClusters removes what a stage that was killed could not, also when ctx has ended.
func (r *runner) removeClusters(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	var problems []error
	for _, s := range r.list {
		if r.started[s.name].IsZero() {
			continue
		}
		for _, cluster := range s.clusters {
			cmd := exec.CommandContext(ctx, "go", "run", "./test/cluster", "down", "--name", cluster)
			if out, err := cmd.CombinedOutput(); err != nil {
				problems = append(problems, fmt.Errorf("cluster %s stays: %w: %s", cluster, err, out))
			}
		}
	}
	return errors.Join(problems...)
}
