package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/bergctf/berg-operator/test/lib/installed"
)

// operatorProcess is the operator as a process of its own, with the rights and the
// settings of the deployed one.
type operatorProcess struct {
	*exec.Cmd
	dir              string
	probes, metrics  string
	pprof            string
	exited           chan struct{}
	launched, served time.Time
}

// startOperator starts the operator unless it runs, and waits until it is ready.
func (b *bench) startOperator(ctx context.Context) error {
	if b.operator != nil {
		return nil
	}
	p := &operatorProcess{exited: make(chan struct{})}
	for _, address := range []*string{&p.probes, &p.metrics, &p.pprof} {
		var err error
		if *address, err = installed.FreeAddress(); err != nil {
			return err
		}
	}
	var err error
	if p.dir, err = os.MkdirTemp("", "berg-load-"); err != nil {
		return err
	}
	kubeconfig := filepath.Join(p.dir, "kubeconfig")
	if err := writeKubeconfig(b, kubeconfig); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(p.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	p.Cmd = exec.Command(b.program)
	p.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir,
		"KUBECONFIG=" + kubeconfig, "POD_NAMESPACE=" + installed.Namespace,
		"HEALTH_PROBE_BIND_ADDRESS=" + p.probes,
		"METRICS_BIND_ADDRESS=" + p.metrics, "METRICS_SECURE=false",
		"MAX_CONCURRENT_RECONCILES=" + strconv.Itoa(b.workers),
	}
	if b.profiles != "" {
		p.Env = append(p.Env, "PPROF_BIND_ADDRESS="+p.pprof)
	}
	p.Stdout, p.Stderr = log, log
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.launched = time.Now()
	if err := p.Start(); err != nil {
		return err
	}
	go func() {
		defer close(p.exited)
		_ = p.Wait() // its log says why
	}()
	b.operator = p
	b.ours.add("operator", p.Process.Pid)
	if err := p.ready(ctx); err != nil {
		return errors.Join(fmt.Errorf("the operator does not become ready: %w\n%s", err, p.tail()), b.stopOperator())
	}
	p.served = time.Now()
	return nil
}

// stopOperator ends the operator as Kubernetes would.
func (b *bench) stopOperator() error {
	p := b.operator
	if p == nil {
		return nil
	}
	b.operator = nil
	defer os.RemoveAll(p.dir)
	if err := p.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.exited:
	case <-time.After(30 * time.Second):
		return errors.Join(errors.New("the operator does not end"), p.Process.Kill())
	}
	if code := p.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("the operator ended with exit code %d\n%s", code, p.tail())
	}
	return nil
}

func (p *operatorProcess) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		if body, err := fetch(ctx, "http://"+p.probes+"/readyz"); err == nil {
			return body.Close()
		}
		select {
		case <-p.exited:
			return errors.New("it has ended")
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// metric returns the sum of the series whose line begins with a prefix.
func (p *operatorProcess) metric(ctx context.Context, prefix string) (float64, error) {
	body, err := fetch(ctx, "http://"+p.metrics+"/metrics")
	if err != nil {
		return 0, err
	}
	defer body.Close()
	sum := 0.0
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		if text := lines.Text(); strings.HasPrefix(text, prefix) {
			if value, err := strconv.ParseFloat(text[strings.LastIndexByte(text, ' ')+1:], 64); err == nil {
				sum += value
			}
		}
	}
	return sum, lines.Err()
}

const (
	// queueDepth is that of all queues: of starts, expiries and deletions.
	queueDepth = `workqueue_depth{controller="challengeinstance`
	reconciled = `controller_runtime_reconcile_total{controller="challengeinstance",`
)

// save writes a profile of the operator into the folder for profiles.
func (b *bench) saveProfile(ctx context.Context, kind, name string) error {
	body, err := fetch(ctx, "http://"+b.operator.pprof+"/debug/pprof/"+kind)
	if err != nil {
		return fmt.Errorf("take a profile: %w", err)
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(b.profiles, 0o750); err != nil {
		return err
	}
	return writeFile(filepath.Join(b.profiles, name), data)
}

func fetch(ctx context.Context, url string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	// To compress the answer would be work that only the measurement causes.
	request.Header.Set("Accept-Encoding", "identity")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, errors.New(response.Status)
	}
	return response.Body, nil
}

func (p *operatorProcess) tail() string {
	text, err := os.ReadFile(filepath.Join(p.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text[max(len(text)-2000, 0):])
}

func writeKubeconfig(b *bench, path string) error {
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"load": {
			Server: b.account.Host, CertificateAuthorityData: b.account.CAData, CertificateAuthority: b.account.CAFile,
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"load": {Token: b.account.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"load": {Cluster: "load", AuthInfo: "load"}},
		CurrentContext: "load",
	}, path)
}
