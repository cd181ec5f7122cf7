package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/launch"
	"github.com/bergctf/berg-operator/test/lib/scrape"
)

const (
	// startLimit is how long the operator may take to become ready.
	startLimit = 2 * time.Minute
	// stopLimit is how long it may take to end: Kubernetes gives as much by itself.
	stopLimit = 30 * time.Second
)

// operatorProcess is the operator as a process of its own, with the rights and the
// settings of the deployed one.
type operatorProcess struct {
	*launch.Operator
	*launch.Process

	dir    string
	pprof  string // the address of its profiles
	served time.Time
}

// startOperator starts the operator unless it runs, and waits until it is ready.
func (b *bench) startOperator(ctx context.Context) error {
	if b.operator != nil {
		return nil
	}
	p, err := b.newOperator()
	if err != nil {
		return err
	}
	if p.Process, err = p.Start(); err != nil {
		return err
	}
	b.operator = p
	b.ours.add("operator", p.PID())
	ready, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := p.Ready(ready); err != nil {
		return errors.Join(err, b.stopOperator())
	}
	p.served = time.Now()
	return nil
}

// newOperator is an operator that can be started, with the settings of the deployed one and of the bench.
func (b *bench) newOperator() (*operatorProcess, error) {
	dir, err := os.MkdirTemp("", "berg-load-")
	if err != nil {
		return nil, err
	}
	p := &operatorProcess{dir: dir}
	if p.pprof, err = launch.FreeAddress(); err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := launch.WriteKubeconfig(kubeconfig, b.account); err != nil {
		return nil, err
	}
	env := append(slices.Clone(b.settings), "METRICS_SECURE=false", "MAX_CONCURRENT_RECONCILES="+strconv.Itoa(b.workers))
	if b.profiles != "" {
		env = append(env, "PPROF_BIND_ADDRESS="+p.pprof)
	}
	p.Operator, err = launch.New(launch.Settings{
		Program: b.program, Kubeconfig: kubeconfig, Namespace: installed.Namespace, Env: env, Log: filepath.Join(dir, "log"),
	})
	return p, err
}

// stopOperator ends the operator as Kubernetes would.
func (b *bench) stopOperator() error {
	p := b.operator
	if p == nil {
		return nil
	}
	b.operator = nil
	defer os.RemoveAll(p.dir)
	return p.Stop(stopLimit)
}

func (p *operatorProcess) metrics(ctx context.Context) (scrape.Metrics, error) {
	return scrape.Fetch(ctx, "http://"+p.Metrics+"/metrics", "")
}

// queueDepth is that of all queues of instances: of starts, expiries and deletions.
func queueDepth(metrics scrape.Metrics) float64 {
	return metrics.Sum("workqueue_depth", func(labels model.Metric) bool {
		return strings.HasPrefix(string(labels["controller"]), "challengeinstance")
	})
}

// reconciled is how often the operator has looked at an instance.
func reconciled(metrics scrape.Metrics) float64 {
	return metrics.Sum("controller_runtime_reconcile_total", func(labels model.Metric) bool {
		return labels["controller"] == "challengeinstance"
	})
}

// saveProfile writes a profile of the operator into the folder for profiles.
func (b *bench) saveProfile(ctx context.Context, kind, name string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.operator.pprof+"/debug/pprof/"+kind, nil)
	if err != nil {
		return err
	}
	// To compress the answer would be work that only the measurement causes.
	request.Header.Set("Accept-Encoding", "identity")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("take a profile: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("take a profile: %s", response.Status)
	}
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(b.profiles, 0o750); err != nil {
		return err
	}
	return writeFile(filepath.Join(b.profiles, name), data)
}
