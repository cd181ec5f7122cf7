package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/launch"
)

const (
	alone = 5
	// startRatio and startRatioTogether are the limits of the time until the first byte by host name, compared with that from the pod itself.
	startRatio, startRatioTogether = 1.10, 1.15
	startTime                      = 10 * time.Minute
)

// starts measures, on real pods, the time from the creation of an instance until its first byte: from the pod itself, and by its host name.
func starts(ctx context.Context, b *bench) ([]figure, error) {
	if err := b.installOperator(ctx); err != nil {
		return nil, err
	}
	found, stop, err := b.findAddresses(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	if _, _, err := b.startOne(ctx, found, 5*time.Millisecond); err != nil {
		return nil, fmt.Errorf("the first instance: %w", err)
	}
	var all []figure
	for _, kind := range []struct {
		n, by int
		limit float64
		pause time.Duration
	}{{alone, 1, startRatio, 2 * time.Millisecond}, {b.together, b.together, startRatioTogether, 25 * time.Millisecond}} {
		var mu sync.Mutex
		var byHost, direct []time.Duration
		err := inParallel(kind.n, kind.by, func(int) error {
			host, pod, err := b.startOne(ctx, found, kind.pause)
			mu.Lock()
			defer mu.Unlock()
			byHost, direct = append(byHost, host), append(direct, pod)
			return err
		})
		if err != nil {
			return all, err
		}
		for _, percent := range []int{50, 99} {
			f := figure{What: fmt.Sprintf("%d starts, %d together: creation to the first byte, p%d", kind.n, kind.by, percent), Unit: "ms", Gate: rank(byHost, percent), Bare: rank(direct, percent)}
			all = append(all, f.ratio("the pod itself", f.Bare, kind.limit, true))
		}
	}
	return all, nil
}

func (b *bench) installOperator(ctx context.Context) error {
	if err := installed.Definitions(ctx, b.client, "measure"); err != nil {
		return err
	}
	challenge := &bergv1.Challenge{ObjectMeta: meta("started")}
	challenge.Spec.Containers = []bergv1.Container{{
		Hostname: "web", Image: b.image, Ports: []bergv1.Port{{Name: "web", Port: 8080, Type: bergv1.PublicHTTPRoute}},
		DynamicFlag: &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: "FLAG"}},
	}}
	deadline := time.Now().Add(time.Minute)
	for err := b.client.Create(ctx, challenge); client.IgnoreAlreadyExists(err) != nil; err = b.client.Create(ctx, challenge) {
		if time.Now().After(deadline) { // the API server takes a moment before it serves a new kind
			return err
		}
	}
	rc, err := launch.Account(ctx, b.config, installed.Namespace, installed.Account)
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(b.folder, "operator")
	if err := launch.WriteKubeconfig(kubeconfig, rc); err != nil {
		return err
	}
	o, err := launch.New(launch.Settings{
		Program: b.operator, Kubeconfig: kubeconfig, Namespace: installed.Namespace, Log: filepath.Join(b.folder, "operator.log"),
		Env: []string{
			"METRICS_SECURE=false", "ENABLED_APIS=berg.norelect.ch", "MAX_CONCURRENT_RECONCILES=32", "CHALLENGE_NAMESPACE=" + arena, "CHALLENGE_DOMAIN=" + domain,
			"GATEWAY_NAMESPACE=" + arena, "GATEWAY_NAME=" + b.gate.name, "CHALLENGE_HTTP_LISTENER_NAME=plain", "CHALLENGE_TLS_LISTENER_NAME=raw",
		},
	})
	if err != nil {
		return err
	}
	process, err := o.Start()
	if err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return process.Ready(ready)
}

// addresses are the host names and the pods of instances, by namespace.
type addresses struct {
	mu    sync.Mutex
	hosts map[string]string
	pods  map[string]string
}

func (a *addresses) of(namespace string) (host, pod string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.hosts[namespace], a.pods[namespace]
}

func (b *bench) findAddresses(ctx context.Context) (*addresses, func(), error) {
	found := &addresses{hosts: map[string]string{}, pods: map[string]string{}}
	written, err := b.client.Watch(ctx, &gatewayv1.HTTPRouteList{})
	if err != nil {
		return nil, nil, err
	}
	pods, err := b.client.Watch(ctx, &corev1.PodList{})
	if err != nil {
		return nil, nil, err
	}
	go func() {
		for event := range written.ResultChan() {
			if route, ok := event.Object.(*gatewayv1.HTTPRoute); ok && len(route.Spec.Hostnames) > 0 {
				found.mu.Lock()
				found.hosts[route.Namespace] = string(route.Spec.Hostnames[0])
				found.mu.Unlock()
			}
		}
	}()
	go func() {
		for event := range pods.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok && pod.Status.PodIP != "" {
				found.mu.Lock()
				found.pods[pod.Namespace] = pod.Status.PodIP
				found.mu.Unlock()
			}
		}
	}()
	return found, func() { written.Stop(); pods.Stop() }, nil
}

// startOne starts an instance, waits for its first byte on both ways, and deletes it.
func (b *bench) startOne(ctx context.Context, found *addresses, pause time.Duration) (byHost, direct time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	owner := uuid.NewString()
	instance := &bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{Namespace: arena, Name: owner}}
	instance.Spec.ChallengeRef = bergv1.ChallengeReference{Name: "started"}
	instance.Spec.OwnerID, instance.Spec.Flag = owner, "flag{measured}"
	if err := b.client.Create(ctx, instance); err != nil {
		return 0, 0, err
	}
	created := time.Now()
	host, pod := "", ""
	for namespace := "challenge-" + owner; host == "" || pod == ""; host, pod = found.of(namespace) {
		if err := wait(ctx, pause); err != nil {
			return 0, 0, fmt.Errorf("no route (%q) or no pod (%q) of %s: %w", host, pod, owner, err)
		}
	}
	ways := map[*time.Duration]string{&byHost: fmt.Sprintf("127.0.0.1:%d", b.gate.plain), &direct: net.JoinHostPort(pod, "8080")}
	failures := make(chan error, len(ways))
	for took, address := range ways {
		go func() {
			c := path{address: address}.newClient(1)
			defer c.CloseIdleConnections()
			for {
				if _, err := ask(ctx, c, "http://"+host+"/"); err == nil {
					*took = time.Since(created)
					failures <- nil
					return
				}
				if err := wait(ctx, pause); err != nil {
					failures <- fmt.Errorf("%s does not answer at %s: %w", owner, address, err)
					return
				}
			}
		}()
	}
	err = errors.Join(<-failures, <-failures)
	return byHost, direct, errors.Join(err, client.IgnoreNotFound(b.client.Delete(ctx, instance)))
}

func wait(ctx context.Context, pause time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(pause):
		return nil
	}
}
