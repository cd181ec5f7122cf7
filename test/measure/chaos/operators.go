package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/launch"
	"github.com/bergctf/berg-operator/test/lib/scrape"
)

// replica is one of the operators. Whenever its process ends, another is started,
// as Kubernetes would.
type replica struct {
	name     string
	proxy    *proxy
	operator *launch.Operator

	mu      sync.Mutex
	process *launch.Process
	starts  int
	// hit is whether the present process was killed or told to end by us.
	hit bool
	// gaveUp counts processes that ended by themselves.
	gaveUp int
}

func newReplica(name string, account *rest.Config, o options, settings []string) (*replica, error) {
	proxy, err := newProxy(account, o.seed)
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(o.logs, name+".kubeconfig")
	if err := launch.WriteKubeconfig(kubeconfig, proxy.gate.Config()); err != nil {
		return nil, err
	}
	operator, err := launch.New(launch.Settings{
		Program: o.program, Kubeconfig: kubeconfig, Namespace: installed.Namespace,
		Env: append(slices.Clone(settings),
			"METRICS_SECURE=false", "PULL_SECRET_NAME="+pullSecret,
			"TERMINATION_LOG="+filepath.Join(o.logs, name+".end"),
		),
		Log: filepath.Join(o.logs, name+".log"),
	})
	if err != nil {
		return nil, err
	}
	return &replica{name: name, proxy: proxy, operator: operator}, os.RemoveAll(operator.Log)
}

// keep keeps a process running until ctx ends, then ends it.
func (r *replica) keep(ctx context.Context) error {
	log, err := os.OpenFile(r.operator.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	for {
		fmt.Fprintf(log, "--- %s start %d\n", time.Now().UTC().Format(time.RFC3339Nano), r.starts+1)
		process, err := r.operator.Start()
		if err != nil {
			return err
		}
		r.mu.Lock()
		r.process, r.hit = process, false
		r.starts++
		r.mu.Unlock()
		stop := context.AfterFunc(ctx, func() { r.signal(syscall.SIGCONT); r.signal(syscall.SIGTERM) })
		state := process.State()
		stop()
		fmt.Fprintf(log, "--- %s end: %s\n", time.Now().UTC().Format(time.RFC3339Nano), state)
		r.mu.Lock()
		r.process = nil
		if !r.hit {
			r.gaveUp++
		}
		r.mu.Unlock()
		if pause(ctx, 200*time.Millisecond) != nil {
			return nil
		}
	}
}

// signal sends one to the process, if there is one. The signals that end it are
// noted as our doing.
func (r *replica) signal(s syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process == nil {
		return
	}
	if s == syscall.SIGKILL || s == syscall.SIGTERM {
		r.hit = true
	}
	_ = r.process.Signal(s) // it may have ended a moment ago
}

// figures are how often a process was started, and how often one gave up by itself.
func (r *replica) figures() (starts, gaveUp int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.starts, r.gaveUp
}

// scrape returns the metrics, by name and labels.
func (r *replica) scrape(ctx context.Context) (map[string]float64, error) {
	metrics, err := scrape.Fetch(ctx, "http://"+r.operator.Metrics+"/metrics", "")
	return metrics.Series(), err
}

// violations returns what must not be in a log: a panic, or a flag.
func (r *replica) violations() ([]string, error) {
	text, err := os.ReadFile(r.operator.Log)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, bad := range []string{"panic", "fatal error:", "DATA RACE", flagPrefix} {
		for line := range bytes.Lines(text) {
			if bytes.Contains(line, []byte(bad)) {
				found = append(found, fmt.Sprintf("the log of %s has %q: %.300s", r.name, bad, line))
				break
			}
		}
	}
	return found, nil
}
