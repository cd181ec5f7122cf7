package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// script is a stage that runs a line of shell.
func script(name, line string, after ...string) stage {
	return stage{name: name, command: []string{"bash", "-c", line}, after: after}
}

// carryOut runs stages and returns the states, the output with the table, and the error.
func carryOut(t *testing.T, budget time.Duration, isBare bool, list ...stage) (map[string]outcome, string, error) {
	t.Helper()
	var out bytes.Buffer
	r := newRunner(list, isBare, budget, filepath.Join(t.TempDir(), "logs"), &out)
	err := r.run(t.Context())
	r.table(list, nil, err)
	return r.state, out.String(), err
}

func expect(t *testing.T, state map[string]outcome, expected map[string]outcome) {
	t.Helper()
	for name, how := range expected {
		if state[name] != how {
			t.Errorf("%s is %q, want %q", name, state[name], how)
		}
	}
}

func TestStagesPassInOrder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	check := script("niced", "nice")
	check.cpu = true
	state, out, err := carryOut(t, time.Minute, false,
		script("reader", "cat "+file, "writer"), script("writer", "echo 'ok  	x' >"+file), check)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, state, map[string]outcome{"reader": passed, "writer": passed, "niced": passed})
	for _, line := range []string{"    ok  \tx\n", "reader                               0:00  passed\n", "\n3 passed, 0 failed\n"} {
		if !strings.Contains(out, line) {
			t.Errorf("no %q in\n%s", line, out)
		}
	}
}

// TestAFailureEndsTheOthers wants those that run to be asked, and to be waited for.
func TestAFailureEndsTheOthers(t *testing.T) {
	dir := t.TempDir()
	state, out, err := carryOut(t, time.Minute, false,
		script("bad", "while [[ ! -e "+dir+"/up ]]; do read -rt 0.05 <> <(:) || true; done; echo what went wrong; exit 3"),
		script("long", "trap 'echo >"+dir+"/gone; exit 1' TERM; echo >"+dir+"/up; while :; do read -rt 0.05 <> <(:) || true; done"),
		script("next", "true", "bad"))
	if err == nil || !strings.Contains(err.Error(), "bad: exit status 3") {
		t.Errorf("error: %v", err)
	}
	expect(t, state, map[string]outcome{"bad": failed, "long": ended, "next": notReached})
	if _, err := os.Stat(dir + "/gone"); err != nil {
		t.Errorf("the long one was not asked to end: %v", err)
	}
	if !strings.Contains(out, "what went wrong") || !strings.Contains(out, "FAILED: bad") || !strings.HasSuffix(out, "\n0 passed, 1 failed, 2 skipped\n") {
		t.Errorf("the failure is not in\n%s", out)
	}
}

// TestKeepGoing wants all stages to run that do not need a failed one, and the error to name all failures.
func TestKeepGoing(t *testing.T) {
	var out bytes.Buffer
	r := newRunner([]stage{script("bad", "exit 3"), script("next", "true", "bad"), script("worse", "exit 4"), script("good", "true")},
		false, time.Minute, filepath.Join(t.TempDir(), "logs"), &out)
	r.keepGoing = true
	err := r.run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "bad: exit status 3") || !strings.Contains(err.Error(), "worse: exit status 4") {
		t.Errorf("error: %v", err)
	}
	expect(t, r.state, map[string]outcome{"bad": failed, "next": notReached, "worse": failed, "good": passed})
}

// TestNothingOfAStageStays wants the children that a stage forgets to end with it.
func TestNothingOfAStageStays(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	state, _, err := carryOut(t, time.Minute, false, script("careless", "sleep 600 & echo $! >"+file))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, state, map[string]outcome{"careless": passed})
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(content)) + "/stat"); err == nil && !strings.Contains(string(stat), ") Z ") {
		t.Errorf("its child still runs: %s", stat)
	}
}

func TestTheBudget(t *testing.T) {
	long := script("long", "exec sleep 600")
	dear := script("dear", "true")
	dear.usual = time.Hour
	list := []stage{long, dear, script("follows", "true", "dear")}

	t.Run("leaves out what it does not reach while something is built", func(t *testing.T) {
		state, out, err := carryOut(t, 300*time.Millisecond, true, list...)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, state, map[string]outcome{"long": notRun, "dear": notRun, "follows": notRun})
		if !strings.Contains(out, "NOT RUN: no time was left; bash -c exec sleep 600\n") || !strings.Contains(out, "\n0 passed, 0 failed, 3 skipped\n") {
			t.Errorf("it does not tell what to run:\n%s", out)
		}
	})
	t.Run("is a limit where everything is built", func(t *testing.T) {
		state, _, err := carryOut(t, 300*time.Millisecond, false, long, script("next", "true", "long"))
		if err == nil {
			t.Error("no error")
		}
		expect(t, state, map[string]outcome{"long": failed, "next": notReached})
	})
	t.Run("is one for the checks", func(t *testing.T) {
		check := long
		check.always = true
		state, _, err := carryOut(t, 100*time.Millisecond, true, check)
		if err == nil {
			t.Error("no error")
		}
		expect(t, state, map[string]outcome{"long": failed})
	})
}

func TestASignalEndsAll(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	r := newRunner([]stage{script("long", "exec sleep 600"), script("next", "true", "long")}, false, time.Minute, filepath.Join(t.TempDir(), "logs"), &out)
	done := make(chan error, 1)
	go func() { done <- r.run(ctx) }()
	cancel()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it continues")
	}
	expect(t, r.state, map[string]outcome{"next": notReached})
	if r.state["long"] == passed {
		t.Error("what was ended has passed")
	}
}

// TestEndGroup wants who does not listen to be killed.
func TestEndGroup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "up")
	r := newRunner(nil, false, time.Minute, t.TempDir(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- r.execute(ctx, script("deaf", "trap '' TERM; echo $$ >"+file+"; while :; do read -rt 0.05 <> <(:) || true; done"))
	}()
	var leader int
	for deadline := time.Now().Add(time.Minute); leader == 0; {
		if time.Now().After(deadline) {
			t.Fatal("it does not start")
		}
		content, _ := os.ReadFile(file)
		for _, digit := range strings.TrimSpace(string(content)) {
			leader = leader*10 + int(digit-'0')
		}
	}
	if err := endGroup(leader, 200*time.Millisecond); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("a killed stage has passed")
	}
	cancel()
	if err := syscall.Kill(-leader, 0); err == nil {
		t.Error("its group is still there")
	}
}

func TestStartable(t *testing.T) {
	r := &runner{state: map[string]outcome{}, list: []stage{
		{name: "first", cpu: true},
		{name: "second", cpu: true},
		{name: "later", after: []string{"first"}},
		{name: "pods", node: true},
		{name: "more pods", node: true},
		{name: "other pods", node: true},
		{name: "a"},
		{name: "b"},
	}}
	names := func() (all []string) {
		for _, s := range r.startable() {
			all = append(all, s.name)
		}
		return all
	}
	if got, want := strings.Join(names(), ", "), "first, pods, more pods, a, b"; got != want {
		t.Errorf("at first %s, want %s", got, want)
	}
	r.state = map[string]outcome{"first": passed, "pods": running, "more pods": failed, "a": running}
	if got, want := strings.Join(names(), ", "), "second, later, other pods"; got != want {
		t.Errorf("then %s, want %s", got, want)
	}
	r.state["other pods"], r.state["later"] = passed, passed
	if got, want := strings.Join(names(), ", "), "second, b"; got != want {
		t.Errorf("in the end %s, want %s", got, want)
	}
}
