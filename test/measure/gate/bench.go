package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/gateprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/launch"
)

const (
	arena   = "gate-measured"
	domain  = "measured.example"
	workers = 32
	// loopback is where the gate and Traefik serve.
	loopback = "127.0.0.1"
)

// side is one of the Gateways that are compared.
type side struct {
	name, class, controller string
	plain, secure, raw      int32 // ports of its listeners
	process                 *exec.Cmd
}

// bench is the cluster with everything that measures.
type bench struct {
	options
	config        *rest.Config
	client        client.WithWatch
	folder        string
	address       string // of this machine: EndpointSlices must not name the loopback
	gate, traefik *side
	pod           string // address of a pod that a process of its own plays
	processes     []*exec.Cmd
}

// prepare installs what both Gateways need, and starts them.
func prepare(ctx context.Context, o options) (b *bench, err error) {
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard)))
	b = &bench{
		options: o, gate: &side{"gate", gateprocess.Class, gateprocess.Controller, 18080, 18443, 18444, nil},
		traefik: &side{"traefik", "traefik", "traefik.io/gateway-controller", 28080, 28443, 28444, nil},
	}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if b.config, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG")); err != nil {
		return nil, err
	}
	b.config.QPS = -1
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), gatewayv1.Install(scheme), bergv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	if b.client, err = client.NewWithWatch(b.config, client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	if b.folder, err = os.MkdirTemp("", "berg-gate-"); err != nil {
		return nil, err
	}
	if b.address, err = gateprocess.OwnAddress(); err != nil {
		return nil, err
	}
	if err := b.install(ctx); err != nil {
		return nil, err
	}
	free, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(b.address, "0"))
	if err != nil {
		return nil, err
	}
	b.pod = free.Addr().String()
	_ = free.Close()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if _, err := b.start("pod", self, nil, "serve", b.pod); err != nil {
		return nil, err
	}
	if err := b.setPod(ctx, "pod", b.pod, "pod"); err != nil {
		return nil, err
	}
	if err := b.startGate(ctx); err != nil {
		return nil, err
	}
	if o.traefik == "" {
		b.traefik = nil
		return b, nil
	}
	return b, b.startTraefik(ctx)
}

func (b *bench) close() {
	for _, process := range b.processes {
		_ = process.Process.Kill()
		_ = process.Wait()
	}
	_ = os.RemoveAll(b.folder)
}

// start starts a program that ends with this one. Its log is in the folder.
func (b *bench) start(name, program string, env []string, args ...string) (*exec.Cmd, error) {
	log, err := os.OpenFile(filepath.Join(b.folder, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command := exec.Command(program, args...)
	command.Env, command.Stdout, command.Stderr = append(os.Environ(), env...), log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return nil, err
	}
	b.processes = append(b.processes, command)
	return command, nil
}

func (b *bench) install(ctx context.Context) error {
	if err := gateprocess.Install(ctx, b.client, arena, domain); err != nil {
		return err
	}
	for _, object := range []client.Object{
		gateprocess.NewClass(b.traefik.class, b.traefik.controller), b.gate.newGateway(), b.traefik.newGateway(),
	} {
		if err := client.IgnoreAlreadyExists(b.client.Create(ctx, object)); err != nil {
			return fmt.Errorf("create %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: arena, Name: name} }

func (s *side) newGateway() *gatewayv1.Gateway {
	return gateprocess.NewGateway(arena, s.name, s.class, s.plain, s.secure, s.raw)
}

func (s *side) newRoute(name, service string) *gatewayv1.HTTPRoute {
	return gateprocess.NewHTTPRoute(arena, name, s.name, name+"."+domain, service)
}

func (b *bench) setPod(ctx context.Context, service, address, uid string) error {
	return gateprocess.SetPod(ctx, b.client, arena, service, address, uid)
}

// startGate starts the gate, and waits until it serves.
func (b *bench) startGate(ctx context.Context, env ...string) (err error) {
	if b.gate.process, err = b.startReplica(ctx, loopback, env...); err != nil {
		return err
	}
	return b.serves(ctx, b.gate)
}

// startReplica starts a replica at an address of the loopback, with the gate's own rights. All clients of a measurement share the loopback,
// so the limits of an address are raised except where env says otherwise.
func (b *bench) startReplica(ctx context.Context, address string, env ...string) (*exec.Cmd, error) {
	rc, err := launch.Account(ctx, b.config, installed.Namespace, gateprocess.Account)
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(b.folder, "kubeconfig")
	if err := launch.WriteKubeconfig(kubeconfig, rc); err != nil {
		return nil, err
	}
	admin, err := launch.FreeAddress()
	if err != nil {
		return nil, err
	}
	ports := fmt.Sprintf("%d,%d,%d", b.gate.plain, b.gate.secure, b.gate.raw)
	return b.start("gate", b.options.gate, append([]string{
		"KUBECONFIG=" + kubeconfig, "GATE_ENABLED=true", "GATE_BIND_HOST=" + address, "GATE_PORT_OFFSET=0", "GATE_PORTS=" + ports, "GATE_ADDRESSES=127.0.0.1",
		"GATE_REDIRECT_HTTPS=false", "ADMIN_BIND_ADDRESS=" + admin, "GATE_ADDRESS_CONNECTIONS=100000", "GATE_HOST_CONNECTIONS=100000", "GATE_ADDRESS_RATE=0", "GATE_ADDRESS_REQUESTS=0",
	}, env...))
}

func (b *bench) stopGate() {
	_ = b.gate.process.Process.Kill()
	_ = b.gate.process.Wait()
}

// startTraefik starts Traefik with its defaults, except that it serves a new route without a delay of its own.
func (b *bench) startTraefik(ctx context.Context) (err error) {
	s := b.traefik
	b.traefik.process, err = b.start("traefik", b.options.traefik, []string{"KUBECONFIG=" + os.Getenv("KUBECONFIG")},
		fmt.Sprintf("--entrypoints.plain.address=127.0.0.1:%d", s.plain), fmt.Sprintf("--entrypoints.secure.address=127.0.0.1:%d", s.secure),
		fmt.Sprintf("--entrypoints.raw.address=127.0.0.1:%d", s.raw), "--providers.kubernetesgateway=true", "--providers.kubernetesgateway.experimentalchannel=true",
		"--providers.kubernetesgateway.statusaddress.ip=127.0.0.1", "--providers.providersthrottleduration=50ms", "--global.checknewversion=false",
		"--global.sendanonymoususage=false")
	if err != nil {
		return err
	}
	return b.serves(ctx, s)
}

// serves writes a route to the pod, whose host is the name of the side, and waits until it is served.
func (b *bench) serves(ctx context.Context, s *side) error {
	if err := client.IgnoreAlreadyExists(b.client.Create(ctx, s.newRoute(s.name, "pod"))); err != nil {
		return err
	}
	tlsRoute := gateprocess.NewTLSRoute(arena, s.name, s.name, s.name+"."+domain, "pod")
	if err := client.IgnoreAlreadyExists(b.client.Create(ctx, tlsRoute)); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for !s.answers(limited, s.name) || !s.answersTLS(s.name) {
		select {
		case <-limited.Done():
			log, _ := os.ReadFile(filepath.Join(b.folder, s.name+".log"))
			return fmt.Errorf("%s does not serve its first route within two minutes; its log ends with %s", s.name, log[max(0, len(log)-2000):])
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

// inParallel calls do for each number below n, by several workers, until one fails.
func inParallel(n, by int, do func(int) error) error {
	next := make(chan int)
	failed := make(chan error, by)
	var working sync.WaitGroup
	for range by {
		working.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	for i := range n {
		select {
		case next <- i:
			continue
		case err := <-failed:
			close(next)
			working.Wait()
			return err
		}
	}
	close(next)
	working.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// askPlain keeps connections to the plain ports.
var askPlain = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: workers}}

// answers reports whether a host is served over plain HTTP.
func (s *side) answers(ctx context.Context, name string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", s.plain), nil)
	if err != nil {
		return false
	}
	req.Host = name + "." + domain
	answer, err := askPlain.Do(req)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

func (s *side) answersTLS(name string) bool {
	conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.raw), clientTLS(name+"."+domain))
	if err != nil {
		return false
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n")
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	answer := make([]byte, len("HTTP/1.0 200"))
	_, err = io.ReadFull(conn, answer)
	return err == nil && string(answer) == "HTTP/1.0 200"
}

func clientTLS(host string) *tls.Config {
	return &tls.Config{ServerName: host, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
}
