package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/bergctf/berg-operator/test/measure/machine"
)

const (
	churnHosts = 20
	// maxMemory is the limit of the gate's memory with 10,000 routes and 2,000 connections, in MB.
	maxMemory = 200
)

// churn asks hosts while their pods end and others get their addresses, and counts answers of a wrong instance.
func churn(ctx context.Context, b *bench) ([]figure, error) {
	var taken []net.Listener // until all addresses are chosen
	var free []string        // addresses, reused in their order, as nodes do with the addresses of pods
	for range churnHosts + 8 {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(b.address, "0"))
		if err != nil {
			return nil, err
		}
		free = append(free, listener.Addr().String())
		taken = append(taken, listener)
	}
	for _, listener := range taken {
		_ = listener.Close()
	}
	pods := make([]*http.Server, churnHosts)
	moves := 0
	move := func(i int) error {
		address := free[0]
		free = free[1:]
		host := fmt.Sprintf("churn-%d", i)
		if former := pods[i]; former != nil {
			_ = former.Close()
			free = append(free, former.Addr)
		}
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			return err
		}
		pods[i] = &http.Server{Addr: address, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, host) })}
		go func() { _ = pods[i].Serve(listener) }()
		moves++
		return b.setPod(ctx, host, address, fmt.Sprintf("%s-%d", host, moves))
	}
	defer func() {
		for _, pod := range pods {
			if pod != nil {
				_ = pod.Close()
			}
		}
	}()
	for i := range churnHosts {
		if err := errors.Join(move(i), b.client.Create(ctx, b.gate.newRoute(fmt.Sprintf("churn-%d", i), fmt.Sprintf("churn-%d", i)))); err != nil {
			return nil, err
		}
	}
	var served, wrong, unanswered atomic.Int64
	done := make(chan error, 1)
	go func() { done <- b.askChurning(ctx, &served, &wrong, &unanswered) }()
	for {
		select {
		case err := <-done:
			return []figure{
				figure{What: fmt.Sprintf("of %d requests while pods were replaced %d times: answered by a wrong instance", b.requests, moves), Gate: float64(wrong.Load())}.atMost(0),
				{What: "of these: answered by the right instance", Gate: float64(served.Load())},
				{What: "of these: the instance is starting, or has ended the connection", Gate: float64(unanswered.Load())},
			}, err
		case <-time.After(20 * time.Millisecond):
			if err := move(moves % churnHosts); err != nil {
				return nil, err
			}
		}
	}
}

// askChurning asks all hosts in turn, over connections that are kept.
func (b *bench) askChurning(ctx context.Context, served, wrong, unanswered *atomic.Int64) error {
	clients := make([]*http.Client, churnHosts)
	for i := range clients {
		clients[i] = path{address: fmt.Sprintf("127.0.0.1:%d", b.gate.secure), host: fmt.Sprintf("churn-%d.%s", i, domain)}.newClient(8)
	}
	return inParallel(b.requests, 8, func(n int) error {
		i := n % churnHosts
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://churn-%d.%s/", i, domain), nil)
		if err != nil {
			return err
		}
		answer, err := clients[i].Do(req)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		switch {
		case answer.StatusCode != http.StatusOK || err != nil:
			unanswered.Add(1)
		case string(body) != fmt.Sprintf("churn-%d", i):
			wrong.Add(1)
		default:
			served.Add(1)
		}
		return nil
	})
}

// memory measures the gate with all routes, and with connections.
func memory(ctx context.Context, b *bench) ([]figure, error) {
	const all, connections = 10_000, 2000
	filled, err := b.countFilled(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.fill(ctx, b.gate, filled, all); err != nil {
		return nil, err
	}
	b.stopGate()
	if err := b.startGate(ctx); err != nil {
		return nil, err
	}
	f := figure{What: fmt.Sprintf("memory with %d routes", all), Unit: "MB", Gate: b.resident(b.gate)}
	figures := []figure{f}
	var mu sync.Mutex
	var held []io.Closer
	defer func() {
		for _, conn := range held {
			_ = conn.Close()
		}
	}()
	// Half are streams within TLS, and half are connections of HTTP that wait for a request.
	err = inParallel(connections, workers, func(i int) error {
		port := b.gate.secure
		if i%2 == 0 {
			port = b.gate.raw
		}
		conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port), clientTLS("gate."+domain))
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: gate.%s\r\n\r\n", domain); err != nil {
			return err
		}
		if _, err := conn.Read(make([]byte, 4096)); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		held = append(held, conn)
		return nil
	})
	f = figure{What: fmt.Sprintf("memory with %d routes and %d open connections", all, connections), Unit: "MB", Gate: b.resident(b.gate)}
	return append(figures, f.atMost(maxMemory)), err
}

// countFilled returns how many routes fill has written.
func (b *bench) countFilled(ctx context.Context) (n int, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: gatewayv1.GroupName, Version: gatewayv1.GroupVersion.Version, Kind: "HTTPRouteList"})
	err = b.client.List(ctx, list, client.InNamespace(arena))
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, b.gate.name+"-fill-") {
			n++
		}
	}
	return n, err
}

func (b *bench) resident(s *side) float64 {
	used, _ := machine.ReadMemory(s.process.Process.Pid) // 0 for one that has ended
	return float64(used.Resident) / 1e6
}
