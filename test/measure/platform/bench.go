package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/internal/operator"
	"github.com/bergctf/berg-operator/test/lib/gatewaytest"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/launch"
	"github.com/bergctf/berg-operator/test/measure/machine"
)

const (
	// arena is the namespace of everything that is created here: config/berg/api gives its rights there.
	arena = "berg"
	// challenge has a port that needs no connection before an instance counts as running: addresses of simulated nodes
	// cannot be dialled.
	challenge = "measured"
	token     = "token-of-the-measurement-0123456789"
	account   = "berg-api"
	// maxWait is how long anything may take before a run is given up.
	maxWait = 30 * time.Minute
)

// bench is the cluster with everything that measures.
type bench struct {
	options
	config   *rest.Config
	client   client.Client
	live     *live
	audit    string // the API server's own record of requests
	folder   string // of kubeconfigs and logs
	operator *launch.Process
	http     *http.Client
	replicas []*replica
	stop     context.CancelFunc
}

// prepare installs what the operator and berg-api need, and starts the operator.
func prepare(ctx context.Context, o options) (b *bench, err error) {
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard)))
	kubeconfig := os.Getenv("KUBECONFIG")
	b = &bench{
		options: o, audit: filepath.Join(filepath.Dir(filepath.Dir(kubeconfig)), "logs", "audit.log"),
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}, stop: func() {},
	}
	if _, err := os.Stat(b.audit); err != nil && o.scenarios != "strangers" {
		return nil, fmt.Errorf("KUBECONFIG must be that of a cluster of test/cluster that was made with --audit: %w", err)
	}
	if b.config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return nil, err
	}
	b.config.QPS = -1
	scheme, err := operator.NewScheme(families.All()...)
	if err != nil {
		return nil, err
	}
	if b.client, err = client.New(b.config, client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	if err := b.install(ctx); err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = stop
	if err := gatewaytest.Serve(running, b.config); err != nil {
		return nil, errors.Join(err, b.close())
	}
	if b.live, err = follow(running, b.config, cache.Options{Scheme: scheme}); err != nil {
		return nil, errors.Join(err, b.close())
	}
	if b.folder, err = os.MkdirTemp("", "berg-platform-"); err != nil {
		return nil, errors.Join(err, b.close())
	}
	if err := b.startOperator(ctx); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bench) close() error {
	b.stop()
	for _, r := range b.replicas {
		r.Kill()
	}
	if b.operator != nil {
		b.operator.Kill()
	}
	if b.folder == "" {
		return nil
	}
	return os.RemoveAll(b.folder)
}

func (b *bench) install(ctx context.Context) error {
	if err := installed.Definitions(ctx, b.client, "platform"); err != nil {
		return err
	}
	if err := client.IgnoreAlreadyExists(b.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: arena}})); err != nil {
		return err
	}
	if err := installed.Folder(ctx, b.client, "config/berg/api", "platform"); err != nil {
		return err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: installed.Namespace, Name: "berg-api-tokens"},
		StringData: map[string]string{"measured": "endpoint: chall-manager\ntoken: " + token + "\n"},
	}
	if err := client.IgnoreAlreadyExists(b.client.Create(ctx, secret)); err != nil {
		return err
	}
	c := &bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: arena, Name: challenge}}
	c.Spec.Flag = "flag{measured}"
	c.Spec.Containers = []bergv1.Container{{
		Hostname: "web", Image: "registry.example.com/measured:1",
		Ports:       []bergv1.Port{{Name: "web", Port: 8080, Type: bergv1.PublicPort, Protocol: "UDP"}},
		DynamicFlag: &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: "FLAG"}},
	}}
	deadline, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	// The API server takes a moment before it serves a new kind.
	for {
		err := client.IgnoreAlreadyExists(b.client.Create(ctx, c))
		if err == nil || deadline.Err() != nil {
			return err
		}
		select {
		case <-deadline.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// as returns a kubeconfig of a ServiceAccount.
func (b *bench) as(ctx context.Context, name string) (file string, err error) {
	rc, err := launch.Account(ctx, b.config, installed.Namespace, name)
	if err != nil {
		return "", err
	}
	file = filepath.Join(b.folder, name)
	return file, launch.WriteKubeconfig(file, rc)
}

func (b *bench) startOperator(ctx context.Context) error {
	kubeconfig, err := b.as(ctx, installed.Account)
	if err != nil {
		return err
	}
	o, err := launch.New(launch.Settings{
		Program: b.options.operator, Kubeconfig: kubeconfig, Namespace: installed.Namespace,
		Env: []string{"METRICS_SECURE=false", "ENABLED_APIS=berg.norelect.ch", "MAX_CONCURRENT_RECONCILES=32"},
		Log: filepath.Join(b.folder, "operator.log"),
	})
	if err != nil {
		return err
	}
	if b.operator, err = o.Start(); err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return b.operator.Ready(ready)
}

// replica is one process of berg-api.
type replica struct {
	*launch.Process

	// url of the API is at address; Probes is the address of metrics and health.
	url, address, probes string
}

// startReplica starts berg-api, and waits until it is ready.
func (b *bench) startReplica(ctx context.Context, env ...string) (*replica, error) {
	kubeconfig, err := b.as(ctx, account)
	if err != nil {
		return nil, err
	}
	o, err := launch.New(launch.Settings{
		Program: b.api, Kubeconfig: kubeconfig, Namespace: installed.Namespace, Log: filepath.Join(b.folder, "api.log"),
	})
	if err != nil {
		return nil, err
	}
	// It serves health and metrics at one address. Its limit of memory is as in the deployed container, which has 256Mi.
	o.Env = append([]string{
		"PLATFORM_API=true", "PLATFORM_NAMESPACE=" + arena, "BIND_ADDRESS=" + o.Metrics, "METRICS_BIND_ADDRESS=" + o.Probes, "SOURCE_RATE=1000", "RATE=100000",
		"GOMEMLIMIT=230MiB",
	}, env...)
	r := &replica{url: "http://" + o.Metrics, address: o.Metrics, probes: o.Probes}
	if r.Process, err = o.Start(); err != nil {
		return nil, err
	}
	b.replicas = append(b.replicas, r)
	deadline, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return r, r.Ready(deadline)
}

// call sends a request of CTFd's plugin.
func (b *bench) call(ctx context.Context, method, url, body string) (status int, answer string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.SetBasicAuth("measured", token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	got, err := b.http.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer got.Body.Close()
	data, err := io.ReadAll(got.Body)
	return got.StatusCode, string(data), err
}

// do is call, and an error unless the answer is 200.
func (b *bench) do(ctx context.Context, method, url, body string) (string, error) {
	status, answer, err := b.call(ctx, method, url, body)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s %s: %d %s", method, url, status, answer)
	}
	return answer, err
}

func (b *bench) register(ctx context.Context, at, id string) error {
	_, err := b.do(ctx, http.MethodPost, at+"/api/v1/challenge",
		fmt.Sprintf(`{"id":%q,"scenario":%q,"timeout":"36000s","until":null,"additional":{},"min":0,"max":0}`, id, challenge))
	return err
}

func (b *bench) bootOne(ctx context.Context, at, id, source string) error {
	_, err := b.do(ctx, http.MethodPost, at+"/api/v1/instance", fmt.Sprintf(`{"challengeId":%q,"sourceId":%q}`, id, source))
	return err
}

func (b *bench) stopOne(ctx context.Context, at, id, source string) error {
	_, err := b.do(ctx, http.MethodDelete, at+"/api/v1/instance/"+id+"/"+source, "")
	return err
}

// memory returns how many MB of a process are resident: now, and at most.
func memory(pid int) (now, peak float64) {
	m, _ := machine.ReadMemory(pid) // 0 for one that has ended
	return float64(m.Resident) / 1e6, float64(m.Peak) / 1e6
}

// requested counts the requests of berg-api in the API server's record from an offset on, watches left out.
func (b *bench) requested(from int64) (n float64, err error) {
	f, err := os.Open(b.audit)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<22)
	user := []byte(`"username":"system:serviceaccount:` + installed.Namespace + ":" + account + `"`)
	for lines.Scan() {
		if bytes.Contains(lines.Bytes(), user) && bytes.Contains(lines.Bytes(), []byte(`"stage":"ResponseComplete"`)) &&
			!bytes.Contains(lines.Bytes(), []byte(`"verb":"watch"`)) {
			n++
		}
	}
	return n, lines.Err()
}

// recorded is where the API server's record ends.
func (b *bench) recorded() int64 {
	info, err := os.Stat(b.audit)
	if err != nil {
		return 0
	}
	return info.Size()
}
