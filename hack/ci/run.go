package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// maxParallel is how many stages run in parallel, in addition to one that computes; maxOnNodes is how many of them
	// have real pods. With more, two processors are busy all the time: everything takes as long, and specs wait longer.
	maxParallel, maxOnNodes = 4, 2
	// grace is how long a stage that was asked to end may take to remove its clusters.
	grace = 2 * time.Minute
	// niceness is that of stages that compute: suites measure time, and go first.
	niceness = "5"
)

// outcome is how far a stage has come, and the last column of the table.
type outcome string

const (
	waiting    outcome = ""
	running    outcome = "running"
	passed     outcome = "passed"
	failed     outcome = "FAILED"
	ended      outcome = "ended" // since another one failed, or a signal came
	notReached outcome = "not reached"
	notRun     outcome = "NOT RUN"
)

// runner runs stages until all have passed, or one has failed.
type runner struct {
	list      []stage
	bare      bool // the budget may leave out stages; otherwise reaching it is a failure
	budget    time.Duration
	keepGoing bool
	logs      string // folder
	out       io.Writer
	begun     time.Time
	state     map[string]outcome
	took      map[string]time.Duration
	started   map[string]time.Time
}

func newRunner(list []stage, isBare bool, budget time.Duration, logs string, out io.Writer) *runner {
	return &runner{
		list: list, bare: isBare, budget: budget, logs: logs, out: out, begun: time.Now(),
		state: map[string]outcome{}, took: map[string]time.Duration{}, started: map[string]time.Time{},
	}
}

type result struct {
	stage stage
	err   error
}

// run returns an error if a stage failed, or did not end in time.
func (r *runner) run(ctx context.Context) error {
	if err := errors.Join(os.RemoveAll(r.logs), os.MkdirAll(r.logs, 0o750)); err != nil {
		return err
	}
	bounded, cancel := context.WithDeadline(ctx, r.begun.Add(r.budget))
	defer cancel()
	minute := time.NewTicker(time.Minute)
	defer minute.Stop()

	results := make(chan result)
	var failure error
	for active := 0; ; {
		if bounded.Err() == nil {
			for _, s := range r.startable() {
				r.state[s.name], r.started[s.name] = running, time.Now()
				fmt.Fprintf(r.out, "=== %s  %s: %s\n", clock(time.Since(r.begun)), s.name, strings.Join(s.command, " "))
				active++
				go func() { results <- result{s, r.execute(bounded, s)} }()
			}
		}
		if active == 0 {
			break
		}
		select {
		case done := <-results:
			active--
			if err := r.finish(done); err != nil {
				failure = errors.Join(failure, err)
				if !r.keepGoing {
					cancel()
				}
			}
		case <-minute.C:
			r.printRunning()
		}
	}
	for _, s := range r.list {
		if r.state[s.name] != waiting {
			continue
		}
		r.state[s.name] = notReached
		if failure == nil && ctx.Err() == nil {
			r.state[s.name] = notRun
			if !r.bare || s.always {
				failure = fmt.Errorf("%s: no time was left", s.name)
			}
		}
	}
	return failure
}

// startable returns those that may start now: what they need has passed, and the running stages leave room. On a bare
// machine, one that would not end in time is not started.
//
// Stages with real pods take longest together: while some are to come, their slots stay free for them, unless the
// builds that they need take half an hour.
func (r *runner) startable() []stage {
	cpu, nodes, others, reserved := 0, 0, 0, 0
	count := func(s stage) {
		switch {
		case s.cpu:
			cpu++
		case s.node:
			nodes++
		default:
			others++
		}
	}
	for _, s := range r.list {
		state := r.state[s.name]
		if state == running {
			count(s)
		}
		if s.node && (state == running || state == waiting && !r.bare) {
			reserved = min(maxOnNodes, reserved+1)
		}
	}
	var found []stage
	for _, s := range r.list {
		blocked := slices.ContainsFunc(s.after, func(need string) bool { return r.state[need] != passed })
		late := r.bare && !s.always && time.Since(r.begun)+s.usual > r.budget
		full := others >= maxParallel-reserved
		switch {
		case s.cpu:
			full = cpu == 1
		case s.node:
			full = nodes == maxOnNodes || nodes+others == maxParallel
		}
		if r.state[s.name] != waiting || blocked || late || full {
			continue
		}
		count(s)
		found = append(found, s)
	}
	return found
}

func (r *runner) log(s stage) string {
	return filepath.Join(r.logs, strings.NewReplacer(" ", "-", ":", "", "/", "-").Replace(s.name)+".log")
}

// execute runs the command of a stage as the leader of a process group, which it ends as a whole when ctx ends.
func (r *runner) execute(ctx context.Context, s stage) error {
	log, err := os.Create(r.log(s))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	command := s.command
	if s.cpu {
		command = append([]string{"nice", "-n", niceness}, command...)
	}
	// Not CommandContext, which kills: clusters must be removed.
	cmd := exec.Command(command[0], command[1:]...) //nolint:noctx // ended below, by signals to the whole group
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, append(os.Environ(), environment()...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		// What a stage leaves running would take time from the next one.
		return errors.Join(err, endGroup(cmd.Process.Pid, time.Second))
	case <-ctx.Done():
		err := endGroup(cmd.Process.Pid, grace)
		<-done
		return errors.Join(ctx.Err(), err)
	}
}

// endGroup asks a process group to end, kills what is left of it after a time, and returns when nothing is left.
func endGroup(leader int, timeout time.Duration) error {
	for _, step := range []struct {
		signal  syscall.Signal
		timeout time.Duration
	}{{syscall.SIGTERM, timeout}, {syscall.SIGKILL, 10 * time.Second}} {
		if err := syscall.Kill(-leader, step.signal); errors.Is(err, syscall.ESRCH) {
			return nil
		} else if err != nil {
			return err
		}
		if gone(leader, step.timeout) {
			return nil
		}
	}
	return fmt.Errorf("process group %d does not end", leader)
}

// gone waits for the end of a process group.
func gone(leader int, timeout time.Duration) bool {
	late := time.NewTimer(timeout)
	defer late.Stop()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		if errors.Is(syscall.Kill(-leader, 0), syscall.ESRCH) {
			return true
		}
		select {
		case <-late.C:
			return false
		case <-again.C:
		}
	}
}

// summary are the lines of go test and Ginkgo that tell what a stage has tested.
var summary = regexp.MustCompile(`^(ok  |Ran \d+ of \d+ Specs|all \d+ granted rights)`)

// finish notes how a stage went, and prints what it ran, or the whole output if it failed.
func (r *runner) finish(done result) error {
	s := done.stage
	r.took[s.name] = time.Since(r.started[s.name])
	state, failure := failed, error(nil)
	switch {
	case done.err == nil:
		state = passed
	case errors.Is(done.err, context.Canceled):
		state = ended
	case errors.Is(done.err, context.DeadlineExceeded) && r.bare && !s.always:
		state = notRun
	case errors.Is(done.err, context.DeadlineExceeded):
		failure = fmt.Errorf("%s: did not end within the budget of %s", s.name, r.budget)
	default:
		failure = fmt.Errorf("%s: %w", s.name, done.err)
	}
	r.state[s.name] = state
	output, _ := os.ReadFile(r.log(s))
	if failure != nil {
		fmt.Fprintf(r.out, "\n=== output of %s\n%s\n", s.name, output)
	} else if state == passed {
		for line := range strings.Lines(string(output)) {
			if summary.MatchString(line) && !strings.Contains(line, "[no test") {
				fmt.Fprint(r.out, "    "+line)
			}
		}
	}
	fmt.Fprintf(r.out, "=== %s  %s: %s after %s, output in %s\n", clock(time.Since(r.begun)), s.name, state, clock(r.took[s.name]), r.log(s))
	return failure
}

func (r *runner) printRunning() {
	var names []string
	for _, s := range r.list {
		if r.state[s.name] == running {
			names = append(names, fmt.Sprintf("%s (%s)", s.name, clock(time.Since(r.started[s.name]))))
		}
	}
	fmt.Fprintf(r.out, "=== %s  running: %s\n", clock(time.Since(r.begun)), strings.Join(names, ", "))
}

// table prints a row for each stage, those that were not chosen with the reason and the command, and in the end a line
// with nothing but the counts.
func (r *runner) table(all []stage, why map[string]string, failure error) {
	const row = "%-32s %8s  %s\n"
	fmt.Fprintf(r.out, "\n"+row, "stage", "time", "result")
	counts := map[outcome]int{}
	for _, s := range r.list {
		state := r.state[s.name]
		counts[state]++
		switch state {
		case notRun:
			fmt.Fprintf(r.out, row, s.name, "", fmt.Sprintf("%s: no time was left; %s", state, s.alone()))
		case notReached:
			fmt.Fprintf(r.out, row, s.name, "", state)
		default:
			fmt.Fprintf(r.out, row, s.name, clock(r.took[s.name]), state)
		}
	}
	for _, s := range all {
		if why[s.name] != "" {
			fmt.Fprintf(r.out, row, s.name, "", fmt.Sprintf("%s: %s; %s", notRun, why[s.name], s.alone()))
		}
	}
	skipped := len(r.list) - counts[passed] - counts[failed]
	for _, reason := range why {
		if reason != "" {
			skipped++
		}
	}
	how := "passed"
	if failure != nil {
		how = "FAILED: " + strings.ReplaceAll(failure.Error(), "\n", ", ")
	}
	fmt.Fprintf(r.out, row, "total", clock(time.Since(r.begun)), how)
	line := fmt.Sprintf("%d passed, %d failed", counts[passed], counts[failed])
	if skipped > 0 {
		line += fmt.Sprintf(", %d skipped", skipped)
	}
	fmt.Fprintln(r.out, line)
}

// removeClusters removes what a stage that was killed could not remove, also when ctx has ended.
func (r *runner) removeClusters(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	var problems []error
	for _, s := range r.list {
		if state := r.state[s.name]; state != failed && state != ended && state != notRun || r.started[s.name].IsZero() {
			continue
		}
		for _, name := range s.clusters {
			if out, err := exec.CommandContext(ctx, "go", "run", "./"+cluster, "down", "--name", name).CombinedOutput(); err != nil {
				problems = append(problems, fmt.Errorf("remove cluster %s: %w: %s", name, err, out))
			}
		}
	}
	return errors.Join(problems...)
}

// clock is a duration as minutes and seconds.
func clock(d time.Duration) string {
	d = d.Round(time.Second)
	return fmt.Sprintf("%d:%02d", d/time.Minute, d%time.Minute/time.Second)
}
