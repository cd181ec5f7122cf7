package challengeinstance

import (
	"context"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/optional"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// CiliumAgents is the DaemonSet of Cilium's agents, as Cilium's chart and its command line name it.
const CiliumAgents = "cilium"

// Policies returns the kinds of network policy for instances. With NETWORK_POLICY=auto they depend on the kinds that the
// API server serves and on the agents of Cilium. Both may change. A cluster may get Cilium while instances run, and may lose it.
// In between both kinds are written, so no instance is open at any time.
func Policies(ctx context.Context, reader client.Reader, cfg config.Challenge, presence *optional.Presence) config.NetworkPolicy {
	if cfg.NetworkPolicy != config.NetworkPolicyAuto {
		return cfg.NetworkPolicy
	}
	served := presence.Check(ciliumv2.SchemeGroupVersion.WithKind(ciliumv2.CNPKindDefinition)) == nil
	agents := &appsv1.DaemonSet{}
	// Without an answer of the cache, which only shuts down, the policies of both kinds are safe.
	err := reader.Get(ctx, client.ObjectKey{Namespace: cfg.CiliumNamespace, Name: CiliumAgents}, agents, client.DisableReadYourWritesConsistency)
	return cfg.NetworkPolicy.On(served, err == nil && agentReady(agents))
}

// agentReady reports whether an agent of Cilium is ready on at least one node.
func agentReady(o client.Object) bool { return o.(*appsv1.DaemonSet).Status.NumberReady > 0 }

// agentsChanged passes changes of the result of agentReady.
var agentsChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool { return agentReady(e.ObjectOld) != agentReady(e.ObjectNew) },
}

// policies also reports changes in the log and in the metrics.
func (r *Reconciler) policies(ctx context.Context) config.NetworkPolicy {
	now := Policies(ctx, r.Client, r.Config.Challenge, r.Presence)
	if policiesInUse.set(now) {
		log.FromContext(ctx).Info("instances are now isolated by network policies of this kind",
			"kind", now, "NETWORK_POLICY", r.Config.Challenge.NetworkPolicy)
	}
	return now
}

// pruneOtherPolicies deletes, with NETWORK_POLICY=auto, the policies of the kind that isolated the instance before. It runs
// after the new ones are written, so that a policy exists at any time.
func (r *Reconciler) pruneOtherPolicies(ctx context.Context, owner ownership.Owner, in manifests.Inputs) error {
	if r.Config.Challenge.NetworkPolicy != config.NetworkPolicyAuto {
		return nil // the other kind has no cache
	}
	var leftover client.ObjectList
	switch in.Config.NetworkPolicy {
	case config.NetworkPolicyBoth:
		return nil
	case config.NetworkPolicyCilium:
		leftover = &networkingv1.NetworkPolicyList{}
	default:
		leftover = &ciliumv2.CiliumNetworkPolicyList{}
	}
	return apply.Prune(ctx, r.Writer, owner, leftover, in.Namespace(), func(types.NamespacedName) bool { return false })
}

// policySets returns the policies by kind. A kind outside NETWORK_POLICY is left out: it has no cache, and formerPolicies
// deletes its remaining policies.
func policySets(in manifests.Inputs, f manifests.Foundation) []apply.Set {
	var out []apply.Set
	if in.Config.NetworkPolicy.Kubernetes() {
		out = append(out, apply.All(f.NetworkPolicies))
	}
	if in.Config.NetworkPolicy.Cilium() {
		out = append(out, apply.All(f.CiliumNetworkPolicies))
	}
	return out
}

// stopUnconfined stops the pods of an instance whose network policies cannot be applied. They start again as soon as the
// policies exist. Waiting with open pods is worse than an outage of one instance: they reach other players. The Deployments stay,
// at zero replicas, so nothing of the instance is lost but its processes.
func (r *Reconciler) stopUnconfined(ctx context.Context, o status.Observed, p *outcome.Problem) error {
	if !status.Unconfined(p) {
		return nil
	}
	for name, d := range o.Deployments {
		if ptr.Deref(d.Spec.Replicas, 1) == 0 {
			continue
		}
		key := client.ObjectKey{Namespace: d.Namespace, Name: name}
		if err := apply.ScaleToZero(ctx, r.Writer, manifests.OwnerFor(o.Instance), key); err != nil {
			return err
		}
		log.FromContext(ctx).Info("stopped the pods of a container: the network policies of its instance cannot be put in place", "container", name)
	}
	return nil
}

// formerPolicies are the network policies of a kind that is no longer configured. A watch of that kind would serve no other
// purpose, so their metadata is listed once per process.
type formerPolicies struct {
	kinds []metav1.TypeMeta

	mu     sync.Mutex
	listed bool
	// left has the policies that still exist, by namespace.
	left map[string][]*metav1.PartialObjectMetadata
}

// formerKinds returns the kinds that a configuration excludes.
func formerKinds(policy config.NetworkPolicy) []metav1.TypeMeta {
	switch policy {
	case config.NetworkPolicyKubernetes:
		return []metav1.TypeMeta{{APIVersion: ciliumv2.SchemeGroupVersion.String(), Kind: ciliumv2.CNPKindDefinition}}
	case config.NetworkPolicyBoth, config.NetworkPolicyAuto:
		return nil // both are watched
	default:
		return []metav1.TypeMeta{{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"}}
	}
}

// prune deletes the remaining policies of the owner in one namespace. A failure makes the next call list again, because the
// policy may have been replaced.
func (p *formerPolicies) prune(ctx context.Context, c client.Client, live client.Reader, owner ownership.Owner, ns string) error {
	left, err := p.in(ctx, live, ns)
	if err != nil {
		return err
	}
	for _, policy := range left {
		if !owner.Owns(policy) {
			continue
		}
		if err := apply.Delete(ctx, c, policy, client.DisableReadYourWritesConsistency); err != nil {
			p.mu.Lock()
			p.listed = false // it may have been replaced
			p.mu.Unlock()
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// The namespace is asked about again in each later build, at no cost.
	delete(p.left, ns)
	return nil
}

// in lists the policies of all namespaces once in the life of the process: only an earlier process may have written kinds that
// are not used now. It holds the lock while it lists, so that no second list begins.
func (p *formerPolicies) in(ctx context.Context, live client.Reader, ns string) ([]*metav1.PartialObjectMetadata, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.listed {
		left := map[string][]*metav1.PartialObjectMetadata{}
		for _, kind := range p.kinds {
			list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: kind.APIVersion, Kind: kind.Kind + "List"}}
			err := live.List(ctx, list, client.MatchingLabels{bergv1.LabelManagedBy: bergv1.ManagedBy})
			if meta.IsNoMatchError(err) || outcome.KindUnknown(err) {
				continue // the API server does not serve this kind
			}
			if err != nil {
				return nil, err
			}
			for i := range list.Items {
				item := &list.Items[i]
				item.TypeMeta, item.ManagedFields = kind, nil
				left[item.Namespace] = append(left[item.Namespace], item)
			}
		}
		p.left, p.listed = left, true
	}
	return p.left[ns], nil
}
