package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// grace is how long a stage that was asked to end may take to remove its clusters.
	grace = 2 * time.Minute
	// sign is how often a line tells what is running.
	sign = time.Minute
	// courtesy is the niceness of work: suites measure time, and go first.
	courtesy = "5"
)

// runner runs stages, several at once where they allow it, until all have passed or one has not, or all have had their turn.
type runner struct {
	list   []stage
	logs   string // folder of their output
	out    io.Writer
	budget time.Duration
	// missing are the parts of test/cluster that were not built when it began. Only with some the budget leaves out
	// stages; without, reaching it is a failure.
	missing []string
	// keepGoing runs what does not need the stages that have failed.
	keepGoing bool
	env       []string
	begun     time.Time
	state     map[string]outcome
	took      map[string]time.Duration
	started   map[string]time.Time
}

func newRunner(list []stage, missing []string, budget time.Duration, logs string, out io.Writer) *runner {
	return &runner{
		list: list, missing: missing, budget: budget, logs: logs, out: out, env: append(os.Environ(), environment()...), begun: time.Now(),
		state: map[string]outcome{}, took: map[string]time.Duration{}, started: map[string]time.Time{},
	}
}

type result struct {
	stage stage
	err   error
}

// run returns an error if a stage failed, or did not end in time. The state of each is then known.
func (r *runner) run(ctx context.Context) error {
	if err := os.RemoveAll(r.logs); err != nil {
		return err
	}
	if err := os.MkdirAll(r.logs, 0o750); err != nil {
		return err
	}
	bounded, cancel := context.WithDeadline(ctx, r.begun.Add(r.budget))
	defer cancel()
	signs := time.NewTicker(sign)
	defer signs.Stop()

	results := make(chan result)
	under := 0
	var failure error
	for {
		if bounded.Err() == nil {
			under += r.start(bounded, results)
		}
		if under == 0 {
			break
		}
		select {
		case done := <-results:
			under--
			if err := r.finish(done); err != nil {
				failure = errors.Join(failure, err)
				if !r.keepGoing {
					cancel()
				}
			}
		case <-signs.C:
			r.sayRunning()
		}
	}
	// What nothing ended, and nothing could begin: the budget did not allow it, or what it needs was left out.
	for _, s := range r.list {
		if r.state[s.name] == waiting {
			r.state[s.name] = notTried
			if failure == nil && ctx.Err() == nil {
				r.state[s.name] = notRun
				if len(r.missing) == 0 || !s.optional {
					failure = fmt.Errorf("%s: no time was left", s.name)
				}
			}
		}
	}
	return failure
}

// start begins what may begin, and returns how many that are.
func (r *runner) start(ctx context.Context, results chan<- result) int {
	count := 0
	for _, s := range startable(r.list, r.state) {
		if s.optional && len(r.missing) > 0 && time.Since(r.begun)+s.cost(r.missing) > r.budget {
			r.state[s.name] = notRun
			continue
		}
		r.state[s.name], r.started[s.name] = running, time.Now()
		fmt.Fprintf(r.out, "=== %s  %s: %s\n", clock(time.Since(r.begun)), s.name, strings.Join(s.command, " "))
		count++
		go func() { results <- result{s, r.execute(ctx, s)} }()
	}
	return count
}

func (r *runner) log(s stage) string {
	return filepath.Join(r.logs, strings.NewReplacer(" ", "-", ":", "").Replace(s.name)+".log")
}

// execute runs the command of a stage as the leader of a process group, which it ends whole when ctx does.
func (r *runner) execute(ctx context.Context, s stage) error {
	log, err := os.Create(r.log(s))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	command := s.command
	if s.class == work {
		command = append([]string{"nice", "-n", courtesy}, command...)
	}
	// Not CommandContext, which kills: clusters are to be removed.
	cmd := exec.Command(command[0], command[1:]...) //nolint:noctx // ended below, by signals to the whole group
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, r.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		// Whatever a stage leaves running would run beside the next one.
		return errors.Join(err, endGroup(cmd.Process.Pid, time.Second))
	case <-ctx.Done():
		err := endGroup(cmd.Process.Pid, grace)
		<-ended
		return errors.Join(ctx.Err(), err)
	}
}

// endGroup asks what is left of a process group to end, kills it when that takes longer than patience, and returns
// when nothing of it is left.
func endGroup(leader int, patience time.Duration) error {
	for _, step := range []struct {
		signal   syscall.Signal
		patience time.Duration
	}{{syscall.SIGTERM, patience}, {syscall.SIGKILL, 10 * time.Second}} {
		if err := syscall.Kill(-leader, step.signal); errors.Is(err, syscall.ESRCH) {
			return nil
		} else if err != nil {
			return err
		}
		if gone(leader, step.patience) {
			return nil
		}
	}
	return fmt.Errorf("process group %d does not end", leader)
}

// gone waits for the end of a process group.
func gone(leader int, patience time.Duration) bool {
	late := time.NewTimer(patience)
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

// finish notes how a stage went, and prints what it had to say. The error tells that all others must end.
func (r *runner) finish(done result) error {
	s := done.stage
	r.took[s.name] = time.Since(r.started[s.name])
	var failure error
	switch {
	case done.err == nil:
		r.state[s.name] = passed
	case errors.Is(done.err, context.Canceled):
		r.state[s.name] = ended
	case errors.Is(done.err, context.DeadlineExceeded) && s.optional && len(r.missing) > 0:
		r.state[s.name] = notRun
	case errors.Is(done.err, context.DeadlineExceeded):
		r.state[s.name] = failed
		failure = fmt.Errorf("%s: not done when the budget of %s was used up", s.name, r.budget)
	default:
		r.state[s.name] = failed
		failure = fmt.Errorf("%s: %w", s.name, done.err)
	}
	how := string(r.state[s.name])
	switch {
	case failure != nil:
		how += " (" + failure.Error() + ")"
	case r.state[s.name] == ended:
		// Its output would only hide that of the one that failed.
		how += ", output in " + r.log(s)
	}
	if r.state[s.name] != ended {
		fmt.Fprintf(r.out, "\n=== output of %s\n", s.name)
		if file, err := os.Open(r.log(s)); err == nil {
			_, _ = io.Copy(r.out, file)
			_ = file.Close()
		}
	}
	fmt.Fprintf(r.out, "=== %s  %s: %s after %s\n\n", clock(time.Since(r.begun)), s.name, how, clock(r.took[s.name]))
	return failure
}

func (r *runner) sayRunning() {
	var names []string
	for _, s := range r.list {
		if r.state[s.name] == running {
			names = append(names, fmt.Sprintf("%s (%s)", s.name, clock(time.Since(r.started[s.name]))))
		}
	}
	fmt.Fprintf(r.out, "=== %s  running: %s\n", clock(time.Since(r.begun)), strings.Join(names, ", "))
}

// table prints a row for each stage; those of left were not even planned. The order is that in which they ended.
func (r *runner) table(left []stage, failure error) {
	const row = "%-28s %8s  %s\n"
	fmt.Fprintf(r.out, "\n"+row, "stage", "time", "result")
	list := slices.Clone(r.list)
	for _, s := range left {
		r.state[s.name] = notRun
	}
	list = append(list, left...)
	missed := 0
	for _, s := range list {
		switch how := r.state[s.name]; how {
		case notRun:
			missed++
			fmt.Fprintf(r.out, row, s.name, "", fmt.Sprintf("%s: %s", how, strings.Join(s.command, " ")))
		case notTried:
			fmt.Fprintf(r.out, row, s.name, "", how)
		default:
			fmt.Fprintf(r.out, row, s.name, clock(r.took[s.name]), how)
		}
	}
	how := "passed"
	switch {
	case failure != nil:
		how = "FAILED: " + strings.ReplaceAll(failure.Error(), "\n", ", ")
	case missed > 0:
		how = fmt.Sprintf("passed as far as it went: %d stages were NOT RUN, since the budget of %s went into building; run it again", missed, r.budget)
	}
	fmt.Fprintf(r.out, row, "total", clock(time.Since(r.begun)), how)
}

// clock is a duration as minutes and seconds.
func clock(d time.Duration) string {
	d = d.Round(time.Second)
	return fmt.Sprintf("%d:%02d", d/time.Minute, d%time.Minute/time.Second)
}
