package launch

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// role in the environment makes this program an operator that does as it is told.
const role = "LAUNCH_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "fails":
		fmt.Println("no such setting")
		os.Exit(3)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	}
	stop := make(chan os.Signal, 1)
	if os.Getenv(role) == "serves" {
		signal.Notify(stop, syscall.SIGTERM)
	}
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, strings.Join(os.Environ(), "\n"))
	})
	go func() { panic(http.ListenAndServe(os.Getenv("HEALTH_PROBE_BIND_ADDRESS"), serve)) }()
	fmt.Println("serving")
	<-stop
}

// operator returns one whose program is this test.
func operator(t *testing.T, what string, env ...string) *Operator {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o, err := New(Settings{
		Program: program, Kubeconfig: "the-kubeconfig", Namespace: "here",
		Env: append(env, role+"="+what), Log: filepath.Join(t.TempDir(), "log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func start(t *testing.T, o *Operator) *Process {
	t.Helper()
	p, err := o.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func TestProcessFromStartToStop(t *testing.T) {
	o := operator(t, "serves", "METRICS_BIND_ADDRESS=0")
	for run := range 2 { // with the same addresses and one log
		p := start(t, o)
		if err := p.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		status, text := o.Probe(t.Context(), "/readyz")
		if status != http.StatusOK {
			t.Errorf("got status %d", status)
		}
		for _, want := range []string{"KUBECONFIG=the-kubeconfig", "POD_NAMESPACE=here", "METRICS_BIND_ADDRESS=0"} {
			if !strings.Contains(text, want) {
				t.Errorf("its environment lacks %s:\n%s", want, text)
			}
		}
		if strings.Contains(text, "PATH=") {
			t.Errorf("it inherited its environment:\n%s", text)
		}
		if status, _ := o.Probe(t.Context(), "/metrics"); status != http.StatusNotFound {
			t.Errorf("got status %d of another page", status)
		}
		if err := p.Stop(time.Minute); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(o.Text(), "serving"); got != run+1 {
			t.Errorf("the log has %d lines after %d runs", got, run+1)
		}
		if status, _ := o.Probe(t.Context(), "/readyz"); status != 0 {
			t.Errorf("got status %d of a process that has ended", status)
		}
	}
}

func TestInheritedEnvironmentComesFirst(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "elsewhere")
	t.Setenv("LAUNCH_TEST_OTHER", "inherited")
	o := operator(t, "serves")
	o.Inherit = true
	p := start(t, o)
	if err := p.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, text := o.Probe(t.Context(), "/readyz")
	if !strings.Contains(text, "LAUNCH_TEST_OTHER=inherited") || !strings.Contains(text, "POD_NAMESPACE=here") || strings.Contains(text, "elsewhere") {
		t.Errorf("its environment is\n%s", text)
	}
}

func TestProcessThatEndsBeforeItIsReady(t *testing.T) {
	p := start(t, operator(t, "fails"))
	err := p.Ready(t.Context())
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no such setting") {
		t.Errorf("got %v", err)
	}
	if err := p.Stop(time.Minute); err == nil || p.ExitCode() != 3 {
		t.Errorf("got %v and exit code %d", err, p.ExitCode())
	}
}

func TestReadyEndsWithItsContext(t *testing.T) {
	o := operator(t, "serves")
	free, err := FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, o)
	o.Probes = free // where nothing listens
	ctx, cancel := context.WithTimeout(t.Context(), 3*pollInterval)
	defer cancel()
	if err := p.Ready(ctx); err == nil {
		t.Error("there is no error")
	}
}

func TestPausedProcess(t *testing.T) {
	o := operator(t, "serves")
	p := start(t, o)
	if err := p.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*pollInterval)
	defer cancel()
	if status, _ := o.Probe(ctx, "/readyz"); status != 0 {
		t.Errorf("a paused process answers %d", status)
	}
	if err := p.Continue(); err != nil {
		t.Fatal(err)
	}
	if err := p.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	p.Kill()
	if p.State() != "signal: killed" || p.ExitCode() != -1 {
		t.Errorf("it ended with %s", p.State())
	}
}

func TestProcessThatDoesNotStop(t *testing.T) {
	o := operator(t, "stubborn")
	p := start(t, o)
	if err := p.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(3 * pollInterval); err == nil || !strings.Contains(err.Error(), "does not end") {
		t.Errorf("got %v", err)
	}
	select {
	case <-p.Exited():
	default:
		t.Error("it was left running")
	}
}

func TestProcessThatOutlives(t *testing.T) {
	o := operator(t, "serves")
	o.Outlive, o.Dir = true, t.TempDir()
	p := start(t, o)
	if err := p.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if group, err := syscall.Getpgid(p.PID()); err != nil || group != p.PID() {
		t.Errorf("it is in the process group %d, %v: what ends this one ends it too", group, err)
	}
	if dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", p.PID())); err != nil || dir != o.Dir {
		t.Errorf("it runs in %s, %v", dir, err)
	}
}
