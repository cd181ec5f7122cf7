// Package backend runs server proxies: as pods on a node, or as processes next to the operator.
//
//	backend.go       the interface, and which backend a pair has
//	hostpod.go       pods in the network of a node
//	localprocess.go  processes, which outlive the operator
//	proc.go          the state of processes, from Linux
//	pods.go          how the pods of a pair are created and deleted
package backend

import (
	"context"

	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/tunnel/jobs"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/credentials"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/manifests"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/status"
)

// proxyName is the name of a server proxy in messages.
const proxyName = "the server proxy"

// Backend runs server proxies. Its methods do not wait, may be repeated, and leave processes and pods of other pairs alone.
type Backend interface {
	// Observe returns the state of the server proxy of a pair.
	Observe(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) (status.Server, error)
	// Start starts it, unless it was started.
	Start(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, in manifests.Inputs, keys credentials.Keys) error
	// Renew gives it its present certificate.
	Renew(p *tunnelv1.ContainerNetworkTunnelProxy, keys credentials.Keys) error
	// Stop ends it, and reports whether it has ended.
	Stop(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) (gone bool, err error)
	// Clean removes all traces of a server proxy that has ended. keepLogs: all but its output.
	Clean(p *tunnelv1.ContainerNetworkTunnelProxy, keepLogs bool) error
}

// Backends are all backends.
type Backends struct {
	// Default is the backend of pairs that have not started yet.
	Default config.TunnelBackend
	All     map[config.TunnelBackend]Backend
}

// New returns the backends. logs reads the logs of pods.
func New(cfg config.Tunnel, namespace string, w apply.Writer, logs kubernetes.Interface, r *jobs.Runner, now clock.PassiveClock) (Backends, error) {
	local := newLocalProcess(cfg.Binary, r, now)
	b := Backends{Default: cfg.Backend, All: map[config.TunnelBackend]Backend{
		config.BackendHostPod:      &hostPod{reader: w.Client, writer: w, logs: logs, jobs: r, namespace: namespace, clock: now},
		config.BackendLocalProcess: local,
	}}
	if cfg.Backend == config.BackendLocalProcess {
		return b, local.makeFolder()
	}
	return b, nil
}

// For returns the backend that a pair was started with, else the default one.
func (b Backends) For(p *tunnelv1.ContainerNetworkTunnelProxy) Backend {
	if started := b.All[config.TunnelBackend(p.Status.ServerProxyBackend)]; started != nil {
		return started
	}
	return b.All[b.Default]
}
