package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// connectEvery is how often a player tries whose connection was refused.
const connectEvery = 10 * time.Millisecond

// hasNodePorts reports whether players reach the instances at ports of the node.
func (b *bench) hasNodePorts() bool { return b.port == string(bergv1.PublicPort) }

// play creates instances, and connects to those with node ports as soon as they are Running: before, no player knows the
// address, and the kernel sends a packet that the data plane dropped again after a second only. The operator calls an
// instance Running when a player can connect, the bare client when its pod is ready: only what a player sees is comparable.
func (r *batch) play(ctx context.Context, n int) error {
	if err := r.create(ctx, n, long); err != nil || !r.hasNodePorts() {
		return err
	}
	return inParallel(n, r.lives[len(r.lives)-n:], func(l *life) error { return r.connect(ctx, l) })
}

func (r *batch) connect(ctx context.Context, l *life) error {
	address := ""
	err := r.until(ctx, connectEvery, func() (connected bool, err error) {
		isRunning := false
		r.tracker.set(func() { isRunning = reachedRunning(l) })
		if !isRunning {
			return false, nil
		}
		if address == "" {
			if address, err = r.nodeAddress(ctx, l.namespace); err != nil {
				return false, err
			}
		}
		if !accepts(ctx, address) {
			return false, nil
		}
		r.tracker.set(func() { l.connected = time.Now() })
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("%s: connect to %s: %w", r.who, l.key.Name, err)
	}
	return nil
}

// accepts reports whether a connection to the address succeeds within a second. Otherwise the player tries again, for any
// reason.
func accepts(ctx context.Context, address string) bool {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// nodeAddress is where the node serves the public port of an instance.
func (b *bench) nodeAddress(ctx context.Context, namespace string) (string, error) {
	var services corev1.ServiceList
	if err := b.client.List(ctx, &services, client.InNamespace(namespace)); err != nil {
		return "", err
	}
	var nodes corev1.NodeList
	if err := b.client.List(ctx, &nodes); err != nil {
		return "", err
	}
	for _, service := range services.Items {
		for _, port := range service.Spec.Ports {
			for _, node := range nodes.Items {
				for _, address := range node.Status.Addresses {
					if port.NodePort != 0 && address.Type == corev1.NodeInternalIP {
						return net.JoinHostPort(address.Address, strconv.Itoa(int(port.NodePort))), nil
					}
				}
			}
		}
	}
	return "", fmt.Errorf("namespace %s: %w", namespace, errors.New("no Service has a node port"))
}
