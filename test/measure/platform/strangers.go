package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/tunnel/control"
	"github.com/bergctf/berg-operator/internal/tunnel/pki"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/launch"
	"github.com/bergctf/berg-operator/test/lib/strangers"
)

const (
	// asks is how many requests of a client with proof are timed, each on a new connection.
	asks = 1000
	// refill is how many strangers come back in a second, in so many waves, in place of those whose connection was ended.
	refill, waves = 500, 5
	// maxRatio is how much more a port may take with strangers than without.
	maxRatio = 2
)

// port is one port of a program.
type port struct {
	name   string
	pid    int
	secure bool // its clients make a handshake
	crowd  *strangers.Crowd
	// ask is a request of a client that proves who it is, on a new connection.
	ask asking
}

type asking = func(context.Context) error

// strangersEverywhere compares every port of every program with itself: without strangers, and while strangers hold all
// connections that they get, from a hundred addresses. Strangers take CPUs from the clients, too: how much is measured at a program that
// no stranger asks, and does not count.
func strangersEverywhere(ctx context.Context, b *bench) (all []figure, err error) {
	ports, stop, err := b.ports(ctx)
	defer stop()
	if err != nil {
		return nil, err
	}
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	plain, secure := httptest.NewServer(nothing), httptest.NewTLSServer(nothing)
	defer plain.Close()
	defer secure.Close()
	for _, p := range ports {
		apart := plain
		if p.secure {
			apart = secure
		}
		figures, err := p.measure(ctx, b.strangers, get(apart.URL, "", ""))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		all = append(all, figures...)
	}
	return all, nil
}

func (p port) measure(ctx context.Context, count int, apart asking) ([]figure, error) {
	quiet, err := p99(ctx, p.ask, apart)
	if err != nil {
		return nil, fmt.Errorf("without strangers: %w", err)
	}
	before, _ := memory(p.pid)
	leave, err := p.invite(count)
	if err != nil {
		return nil, fmt.Errorf("start the strangers: %w", err)
	}
	busy, err := p99(ctx, p.ask, apart)
	after, _ := memory(p.pid)
	held, failed := leave()
	if err := errors.Join(err, failed); err != nil {
		return nil, fmt.Errorf("with strangers: %w", err)
	}
	machine := max(0, busy[1]-quiet[1])
	return []figure{
		{What: p.name + ": connections that strangers hold", API: float64(held)},
		{What: p.name + ": a program that they do not ask, p99", Unit: "ms", API: busy[1], Direct: quiet[1]},
		{What: p.name + ": an answer, p99; the ratio without what they add to that program", Unit: "ms", API: busy[0], Direct: quiet[0], Ratio: (busy[0] - machine) / quiet[0], Limit: maxRatio},
		{What: p.name + ": memory", Unit: "MB", API: after, Direct: before, Ratio: after / before, Limit: maxRatio},
	}, nil
}

// p99 asks each alternately, and returns what one request in a hundred takes at least.
func p99(ctx context.Context, all ...asking) (slow []float64, err error) {
	took := make([][]time.Duration, len(all))
	for range asks {
		for n, ask := range all {
			began := time.Now()
			if err := ask(ctx); err != nil {
				return nil, err
			}
			took[n] = append(took[n], time.Since(began))
		}
	}
	for _, times := range took {
		slow = append(slow, rank(times, 99))
	}
	return slow, nil
}

// invite starts a process of strangers, and returns when all have come. leave ends them, and returns how many connections they had.
func (p port) invite(count int) (leave func() (held int, err error), err error) {
	process, err := strangers.Command("strangers", p.crowd.Address, strconv.FormatBool(p.crowd.TLS), p.crowd.Request, strconv.Itoa(count))
	if err != nil {
		return nil, err
	}
	said, err := process.StdoutPipe()
	if err == nil {
		err = process.Start()
	}
	if err != nil {
		return nil, err
	}
	leave = func() (held int, err error) {
		err = process.Process.Signal(syscall.SIGTERM)
		_, failed := fmt.Fscan(said, &held)
		return held, errors.Join(err, failed, process.Wait())
	}
	var came int
	if _, err := fmt.Fscan(said, &came); err != nil {
		_, failed := leave()
		return nil, errors.Join(err, failed)
	}
	return leave, nil
}

// crowdAround is what the process of strangers does: they come, and come back until it is interrupted. It prints how many came, and how
// many have a connection in the end.
func crowdAround(ctx context.Context, address, secure, request, count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	c := strangers.Crowd{Address: address, TLS: secure == "true", Request: request}
	if err := c.Join(ctx, n); err != nil {
		return err
	}
	fmt.Println(n)
	ticker := time.NewTicker(time.Second / waves)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticker.C:
			if err := c.Join(ctx, min(refill/waves, n-c.Open())); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
	fmt.Println(c.Open())
	return nil
}

// ports starts every program, and returns its ports.
func (b *bench) ports(ctx context.Context) (all []port, stop func(), err error) {
	var started []func()
	stop = func() {
		for _, end := range started {
			end()
		}
	}
	api, err := b.startReplica(ctx)
	if err != nil {
		return nil, stop, err
	}
	started = append(started, api.Kill)
	all = append(all,
		port{"platform API", api.PID(), false, &strangers.Crowd{Address: api.address, Request: strangers.Unfinished}, get("http://"+api.address+"/healthcheck", "measured", token)},
		port{"platform API: the token in the body", api.PID(), false, &strangers.Crowd{Address: api.address, Request: "PUT /v1/instances/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"}, get("http://"+api.address+"/healthcheck", "measured", token)},
		port{"platform API: metrics", api.PID(), false, &strangers.Crowd{Address: api.probes, Request: strangers.Unfinished}, get("http://"+api.probes+"/metrics", "", "")},
	)
	operator, err := b.operatorPorts(ctx)
	if err != nil {
		return nil, stop, err
	}
	started = append(started, operator.stop)
	tunnel, err := b.tunnelPorts(ctx)
	if err != nil {
		return nil, stop, err
	}
	started = append(started, tunnel.stop)
	return append(append(all, operator.ports...), tunnel.ports...), stop, nil
}

// program is a process with its ports.
type program struct {
	ports []port
	stop  func()
}

// operatorPorts starts a second replica of the operator, whose ports have TLS and tokens as in a cluster.
func (b *bench) operatorPorts(ctx context.Context) (p program, err error) {
	scraper, err := b.scraper(ctx)
	if err != nil {
		return p, err
	}
	kubeconfig, err := b.as(ctx, installed.Account)
	if err != nil {
		return p, err
	}
	webhooks, err := launch.FreeAddress()
	if err != nil {
		return p, err
	}
	certificates := filepath.Join(b.folder, "certificates")
	certificate, key, err := certutil.GenerateSelfSignedCertKeyWithFixtures("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil, "")
	if err == nil {
		err = errors.Join(os.MkdirAll(certificates, 0o700), os.WriteFile(filepath.Join(certificates, "tls.crt"), certificate, 0o600),
			os.WriteFile(filepath.Join(certificates, "tls.key"), key, 0o600))
	}
	if err != nil {
		return p, err
	}
	o, err := launch.New(launch.Settings{
		Program: b.options.operator, Kubeconfig: kubeconfig, Namespace: installed.Namespace, Log: filepath.Join(b.folder, "standby.log"),
		Env: []string{"ENABLED_APIS=berg.norelect.ch", "WEBHOOK_BIND_ADDRESS=" + webhooks, "WEBHOOK_CERT_DIR=" + certificates},
	})
	if err != nil {
		return p, err
	}
	process, err := o.Start()
	if err != nil {
		return p, err
	}
	p.stop = process.Kill
	ready, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := process.Ready(ready); err != nil {
		p.stop()
		return program{stop: func() {}}, err
	}
	at := func(address string, secure bool) *strangers.Crowd {
		return &strangers.Crowd{Address: address, TLS: secure, Request: strangers.Unfinished}
	}
	p.ports = []port{
		{"operator: metrics", process.PID(), true, at(o.Metrics, true), get("https://"+o.Metrics+"/metrics", "", scraper)},
		{"operator: probes", process.PID(), false, at(o.Probes, false), get("http://"+o.Probes+"/readyz", "", "")},
		{"operator: webhooks", process.PID(), true, at(webhooks, true), review("https://" + webhooks + "/")},
	}
	return p, nil
}

// scraper returns a token that may read metrics.
func (b *bench) scraper(ctx context.Context) (string, error) {
	const name = "measured-scraper"
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: arena, Name: name}},
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: arena, Name: name}},
		},
	} {
		if err := client.IgnoreAlreadyExists(b.client.Create(ctx, o)); err != nil {
			return "", err
		}
	}
	return launch.Token(ctx, b.config, arena, name)
}

// tunnelPorts starts a client proxy, whose control port serves server proxies.
func (b *bench) tunnelPorts(ctx context.Context) (p program, err error) {
	authority, err := pki.NewAuthority("measured", time.Now(), 24*time.Hour)
	if err != nil {
		return p, err
	}
	folders := map[pki.Role]string{pki.ClientProxy: "", pki.ServerProxy: ""}
	for role := range folders {
		pair, err := authority.Issue(role, time.Now(), 24*time.Hour)
		if err != nil {
			return p, err
		}
		folders[role] = filepath.Join(b.folder, string(role))
		if err := pki.WriteFiles(folders[role], authority.Certificate, pair); err != nil {
			return p, err
		}
	}
	identity, err := pki.Files(folders[pki.ServerProxy])
	if err != nil {
		return p, err
	}
	at, err := launch.FreeAddress()
	if err != nil {
		return p, err
	}
	address, err := net.ResolveTCPAddr("tcp", at)
	if err != nil {
		return p, err
	}
	proxy := exec.CommandContext(ctx, b.tunnel, "client", "--tls-dir", folders[pki.ClientProxy], "--client-control-address", "127.0.0.1",
		"--client-control-port", strconv.Itoa(address.Port), "--client-data-address", "127.0.0.1", "--client-data-port", "0")
	if err := proxy.Start(); err != nil {
		return p, err
	}
	p.stop = func() {
		_ = proxy.Process.Kill()
		_ = proxy.Wait()
	}
	ask := func(ctx context.Context) error {
		controller, err := control.Dial(at, identity, pki.ClientProxy)
		if err != nil {
			return err
		}
		_, err = controller.ListTunnels(ctx, &control.ListTunnelsRequest{})
		return errors.Join(err, controller.Close())
	}
	deadline := time.Now().Add(time.Minute)
	for err := ask(ctx); err != nil; err = ask(ctx) { // until it listens
		if time.Now().After(deadline) {
			return p, err
		}
	}
	p.ports = []port{{"tunnel: control", proxy.Process.Pid, true, &strangers.Crowd{Address: at}, ask}}
	return p, nil
}

// fresh opens a connection for each request.
var fresh = &http.Client{Timeout: time.Minute, Transport: &http.Transport{
	DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
}}

// get asks with a token: as the password of a user, or without a user as Bearer.
func get(url, user, token string) asking {
	return func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		switch {
		case user != "":
			r.SetBasicAuth(user, token)
		case token != "":
			r.Header.Set("Authorization", "Bearer "+token)
		}
		return succeeds(r)
	}
}

// review sends a webhook call as the API server does.
func review(url string) asking {
	return func(ctx context.Context) error {
		const body = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","kind":{"version":"v1","kind":"Any"},"operation":"CREATE","object":{}}}`
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewBufferString(body))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", "application/json")
		return succeeds(r)
	}
}

func succeeds(r *http.Request) error {
	answer, err := fresh.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", r.URL, answer.Status)
	}
	return nil
}
