package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/bergctf/berg-operator/test/lib/strangers"
)

// confusion sends requests that name the host of another instance over connections of the attacker's own one: request smuggling, other forms
// of a host, and the reuse of a connection for all names of a wildcard certificate. It counts those that reach the other instance.
func confusion(ctx context.Context, b *bench) ([]figure, error) {
	const attackers, victim = 25, "victim"
	t := b.newTarget(loopback)
	var stray, lost, asked atomic.Int64
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(b.address, "0"))
	if err != nil {
		return nil, err
	}
	pod := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Player") != victim {
			stray.Add(1)
		}
	})}
	go func() { _ = pod.Serve(listener) }()
	defer pod.Close()
	if err := errors.Join(b.setPod(ctx, victim, listener.Addr().String(), victim), b.client.Create(ctx, b.gate.newRoute(victim, victim))); err != nil {
		return nil, err
	}
	limited, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	for !b.gate.answers(limited, victim) {
		if limited.Err() != nil {
			return nil, fmt.Errorf("the host of the other instance is not served: %w", limited.Err())
		}
	}
	stray.Store(0)
	host := victim + "." + domain
	var sent []string
	for _, c := range strangers.Confusions(t.host, host) {
		sent = append(sent, c.Sent)
	}
	others := path{address: t.secure, host: host}.newClient(workers)
	defer others.CloseIdleConnections()
	pooled := path{address: t.secure, host: t.host}.newClient(workers) // the certificate is valid for both hosts
	pooled.Transport.(*http.Transport).ForceAttemptHTTP2 = true
	defer pooled.CloseIdleConnections()
	err = inParallel(attackers*(len(sent)+1), 8, func(n int) error {
		asked.Add(1)
		if n%(len(sent)+1) == len(sent) {
			_, _ = request(ctx, pooled, "https://"+t.host+"/", host, "") // :authority names the other instance
		} else {
			t.say(sent[n%(len(sent)+1)])
		}
		if status, err := request(ctx, others, "https://"+host+"/", host, victim); err != nil || status != http.StatusOK {
			lost.Add(1)
		}
		return ctx.Err()
	})
	return []figure{
		figure{What: fmt.Sprintf("of %d requests that name the host of another instance: reached it", asked.Load()), Gate: float64(stray.Load())}.atMost(0),
		figure{What: "of as many requests of its player: not answered", Gate: float64(lost.Load())}.atMost(0),
	}, err
}

// request asks for a host as a player, and returns the status of the answer.
func request(ctx context.Context, c *http.Client, url, host, player string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	req.Host = host
	req.Header.Set("X-Player", player)
	answer, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, answer.Body.Close()
}

// say sends bytes over a connection to the attacker's own instance, and reads the answers.
func (t target) say(sent string) {
	conn, err := t.dial()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, sent)
	_ = conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond)) // for a second answer, if there is one
	_, _ = io.Copy(io.Discard, conn)
}
