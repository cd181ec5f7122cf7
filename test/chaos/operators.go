package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/bergctf/berg-operator/test/lib/installed"
)

// replica is one of the operators. Whenever its process ends, another is started,
// as Kubernetes would.
type replica struct {
	name    string
	proxy   *proxy
	metrics string
	log     string
	program string
	env     []string

	mu      sync.Mutex
	process *exec.Cmd
	starts  int
	// hit is whether the present process was killed or told to end by us.
	hit bool
	// gaveUp counts processes that ended by themselves.
	gaveUp int
}

func newReplica(name string, account *rest.Config, o options) (*replica, error) {
	proxy, err := newProxy(account, o.seed)
	if err != nil {
		return nil, err
	}
	r := &replica{name: name, proxy: proxy, log: filepath.Join(o.logs, name+".log"), program: o.program}
	probes, err := installed.FreeAddress()
	if err != nil {
		return nil, err
	}
	if r.metrics, err = installed.FreeAddress(); err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(o.logs, name+".kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"proxy": {Server: proxy.server.URL}},
		Contexts:       map[string]*clientcmdapi.Context{"proxy": {Cluster: "proxy"}},
		CurrentContext: "proxy",
	}, kubeconfig); err != nil {
		return nil, err
	}
	r.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + o.logs,
		"KUBECONFIG=" + kubeconfig, "POD_NAMESPACE=" + installed.Namespace,
		"HEALTH_PROBE_BIND_ADDRESS=" + probes, "METRICS_BIND_ADDRESS=" + r.metrics, "METRICS_SECURE=false",
		"PULL_SECRET_NAME=" + pullSecret, "TERMINATION_LOG=" + filepath.Join(o.logs, name+".end"),
	}
	return r, os.RemoveAll(r.log)
}

// keep keeps a process running until ctx ends, then ends it.
func (r *replica) keep(ctx context.Context) error {
	log, err := os.OpenFile(r.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	for {
		process := exec.Command(r.program)
		process.Env, process.Stdout, process.Stderr = r.env, log, log
		process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		fmt.Fprintf(log, "--- %s start %d\n", time.Now().UTC().Format(time.RFC3339Nano), r.starts+1)
		if err := process.Start(); err != nil {
			return err
		}
		r.mu.Lock()
		r.process, r.hit = process, false
		r.starts++
		r.mu.Unlock()
		stop := context.AfterFunc(ctx, func() { r.signal(syscall.SIGCONT); r.signal(syscall.SIGTERM) })
		err := process.Wait()
		stop()
		fmt.Fprintf(log, "--- %s end: %v\n", time.Now().UTC().Format(time.RFC3339Nano), err)
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
	_ = r.process.Process.Signal(s) // it may have ended a moment ago
}

// figures are how often a process was started, and how often one gave up by itself.
func (r *replica) figures() (starts, gaveUp int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.starts, r.gaveUp
}

// scrape returns the metrics, by name and labels.
func (r *replica) scrape(ctx context.Context) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.metrics+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(response.Status)
	}
	all := map[string]float64{}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		text := lines.Text()
		at := strings.LastIndexByte(text, ' ')
		if at < 0 || text[0] == '#' {
			continue
		}
		if value, err := strconv.ParseFloat(text[at+1:], 64); err == nil {
			all[text[:at]] = value
		}
	}
	return all, lines.Err()
}

// defects returns what must not be in a log: a panic, or a flag.
func (r *replica) defects() ([]string, error) {
	text, err := os.ReadFile(r.log)
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
