// Package tunnel has the API group of container networks and their tunnels, as one value for the operator.
package tunnel

import (
	"context"
	"net"
	"os"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/admissionpolicy"
	"github.com/bergctf/berg-operator/internal/kit/cache"
	"github.com/bergctf/berg-operator/internal/kit/family"
	"github.com/bergctf/berg-operator/internal/kit/identity"
	"github.com/bergctf/berg-operator/internal/tunnel/network"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/tunnelsync"
)

// New returns the family. Its settings are read into cfg.
func New(cfg *config.Tunnel) family.Family {
	return family.Family{
		API:         tunnelv1.GroupVersion.Group,
		Settings:    cfg.Section(),
		AddToScheme: runtime.SchemeBuilder{tunnelv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, rbacv1.AddToScheme},
		Cache:       caches,
		Setup:       func(ctx context.Context, deps family.Dependencies) error { return setup(ctx, deps, *cfg) },
		Busy:        family.NewBusy(func() client.ObjectList { return &tunnelv1.ContainerNetworkTunnelProxyList{} }, building),
	}
}

// caches keeps only objects of common kinds that belong to networks and pairs. Secrets are never cached.
func caches() cache.Options {
	all := ctrlcache.ByObject{Label: labels.Everything()}
	return cache.Options{
		Selector: network.OwnershipLabels.Selector(),
		ByObject: map[client.Object]ctrlcache.ByObject{
			&tunnelv1.ContainerNetwork{}:            all,
			&tunnelv1.ContainerNetworkTunnelProxy{}: all,
			&corev1.Namespace{}:                     all, // a foreign one of the same name must be noticed
			&corev1.Node{}:                          all,
		},
		Trim:    trim,
		Domains: []string{tunnelv1.GroupVersion.Group},

		Finalizers: []string{tunnelv1.NetworkFinalizer, tunnelv1.Finalizer},
	}
}

// A field that a reader of the cache newly needs must be kept here.
func trim(o client.Object) {
	switch o := o.(type) {
	case *corev1.Namespace:
		network.TrimNamespace(o)
	case *corev1.Node:
		tunnelproxy.TrimNode(o)
	case *corev1.Pod:
		tunnelproxy.TrimPod(o)
	case *corev1.Service:
		o.Status = corev1.ServiceStatus{}
	}
}

// confinedPolicy is the admission policy of config/tunnel.
const confinedPolicy = "berg-operator-tunnel-confined-pods"

// setup follows both admission policies before the first network: new ones wait until they are in force. Addresses of the API
// server are denied to tunnels, as far as they are found at the start.
func setup(ctx context.Context, deps family.Dependencies, cfg config.Tunnel) error {
	mgr := deps.Manager
	me, err := identity.New(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	fence, err := deps.Policies.Follow(ctx, admissionpolicy.Fence, admissionpolicy.Install)
	if err != nil {
		return err
	}
	confined, err := deps.Policies.Follow(ctx, confinedPolicy, admissionpolicy.Install)
	if err != nil {
		return err
	}
	err = (&network.Reconciler{
		Access:   deps.Access("container-network"),
		Fence:    fence,
		Confined: confined,
		Config:   cfg,
		Identity: me.Subject,
	}).SetupWithManager(ctx, mgr)
	if err != nil {
		return err
	}
	denied, err := tunnelsync.DenyAPIServer(ctx, cfg, mgr.GetConfig().Host, net.DefaultResolver)
	if err != nil {
		// Through an HTTP proxy the operator may reach an API server whose name it cannot resolve.
		mgr.GetLogger().Error(err, "The addresses of the API server are not denied to tunnels: add them to TUNNEL_DENIED_SERVERS")
	}
	logs, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	// The kubelet names a container's host after its pod.
	pod, err := os.Hostname()
	if err != nil {
		return err
	}
	return (&tunnelproxy.Reconciler{
		Access:    deps.Access("tunnel-proxy"),
		Config:    denied,
		Namespace: deps.Namespace,
		Images:    newRegistry(cfg, deps.Direct, deps.Namespace),
		Logs:      logs,
		Own:       &identity.ImageFinder{Reader: deps.Writer.Live, Pod: client.ObjectKey{Namespace: deps.Namespace, Name: pod}},
	}).SetupWithManager(ctx, mgr)
}

// building reports whether a pair waits for the operator to start its proxies.
func building(p *tunnelv1.ContainerNetworkTunnelProxy) bool {
	return p.Status.State == tunnelv1.StateBuildingImage || p.Status.State == tunnelv1.StateStarting
}
