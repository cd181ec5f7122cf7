package nodes

import (
	"context"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/identity"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// Support says whether the nodes that take pods support user namespaces. The zero value is for an operator that does not
// watch nodes: nothing is known.
type Support struct {
	// None: no node supports them.
	None bool
	// All nodes support them for pods without a RuntimeClass. There is at least one.
	All bool
}

// ComputeSupport returns the support of nodes. A cluster without nodes counts as unknown: it may create them when pods
// wait.
func ComputeSupport(list []corev1.Node) Support {
	there, none, all := false, true, true
	for i := range list {
		ability := nodeAbility(&list[i])
		if !ability.takesPods {
			continue
		}
		there, none, all = true, none && !ability.anyRuntime, all && ability.plain
	}
	return Support{None: there && none, All: there && all}
}

// ability holds the abilities of one node.
type ability struct {
	takesPods bool
	// anyRuntime: one of its runtimes supports user namespaces; plain: the runtime of pods without a
	// RuntimeClass does.
	anyRuntime, plain bool
}

func nodeAbility(n *corev1.Node) ability {
	handlers := n.Status.RuntimeHandlers
	return ability{
		takesPods:  view.IsForInstances(n),
		anyRuntime: view.HasUserNamespaces(n),
		plain:      slices.ContainsFunc(handlers, func(h corev1.NodeRuntimeHandler) bool { return h.Name == "" && view.SupportsUserNamespaces(h) }),
	}
}

// Watched reports whether the operator must see nodes.
func Watched(cfg config.Challenge) bool {
	return cfg.NestedSeccompProfile != "" || cfg.UserNamespaces == config.UserNamespacesAuto
}

// Observe returns the support of the nodes in the cache.
func Observe(ctx context.Context, reader client.Reader, cfg config.Challenge) (Support, error) {
	if !Watched(cfg) {
		return Support{}, nil
	}
	var list corev1.NodeList
	if err := reader.List(ctx, &list, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		return Support{}, err
	}
	return ComputeSupport(list.Items), nil
}

// Apply returns the configuration for a cluster whose nodes have this support: auto is replaced by its meaning.
func (s Support) Apply(cfg config.Challenge) config.Challenge {
	cfg.UserNamespaces = cfg.UserNamespaces.On(s.All)
	return cfg
}

// Check returns why no node can run containers, nil if one can.
func (s Support) Check(condition string, containers []bergv1.Container) *outcome.Problem {
	i := slices.IndexFunc(containers, func(c bergv1.Container) bool { return c.Sandbox == bergv1.SandboxNested })
	if i < 0 || !s.None {
		return nil
	}
	return &outcome.Problem{
		Condition: condition, Reason: bergv1.ReasonNoSuitableNode, Class: outcome.Blocked,
		Message: fmt.Sprintf("spec.containers[%d].sandbox: nested needs user namespaces, and no node supports them. "+
			"Let the administrator update the container runtime of the nodes (containerd 2.0 with runc 1.2, or CRI-O 1.25 with crun 1.9); see which nodes: kubectl berg doctor", i),
	}
}

// Changed passes the events of nodes after which they may support more or less.
var Changed = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return nodeAbility(e.ObjectOld.(*corev1.Node)) != nodeAbility(e.ObjectNew.(*corev1.Node))
	},
}

// needed are the rights of the role berg-nodes, which is bound only where nodes are watched.
var needed = []authorizationv1.ResourceAttributes{
	{Resource: "nodes", Verb: "list"},
	{Resource: "nodes", Verb: "watch"},
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch

// Permitted returns the configuration for the rights of the operator. Where it may not watch nodes, auto means that no pod
// uses a user namespace, and jails are an error: a watch that is forbidden would keep the operator from becoming ready, and no
// message would say why. Every account may ask this.
func Permitted(ctx context.Context, c client.Client, cfg config.Challenge) (config.Challenge, error) {
	if !Watched(cfg) {
		return cfg, nil
	}
	lacks, err := identity.Lacks(ctx, c, needed)
	switch {
	case err != nil:
		return cfg, fmt.Errorf("ask whether nodes may be watched: %w", err)
	case lacks == "":
	case cfg.NestedSeccompProfile != "":
		return cfg, fmt.Errorf("CHALLENGE_NESTED_SECCOMP_PROFILE is set and the operator may not %s: bind the role of config/berg/nodes to it first, or remove the setting", lacks)
	default:
		cfg.UserNamespaces = cfg.UserNamespaces.On(false)
		logf.FromContext(ctx).Info("Pods of instances use no user namespaces: the operator may not see which nodes support them. To use them, apply config/berg/nodes and restart the operator", "lacks", lacks)
	}
	return cfg, nil
}

// Trim keeps the fields of a node that Support is computed from.
func Trim(n *corev1.Node) {
	n.ManagedFields, n.Annotations, n.OwnerReferences, n.Labels = nil, nil, nil, nil
	n.Spec = corev1.NodeSpec{Unschedulable: n.Spec.Unschedulable, Taints: n.Spec.Taints}
	for i := range n.Spec.Taints {
		n.Spec.Taints[i].TimeAdded = nil
	}
	n.Status = corev1.NodeStatus{RuntimeHandlers: Handlers(n)}
}

// Handlers returns the runtimes of a node, each with its name and whether it supports user namespaces.
func Handlers(n *corev1.Node) []corev1.NodeRuntimeHandler {
	var kept []corev1.NodeRuntimeHandler
	for _, h := range n.Status.RuntimeHandlers {
		can := view.SupportsUserNamespaces(h)
		kept = append(kept, corev1.NodeRuntimeHandler{Name: h.Name, Features: &corev1.NodeRuntimeHandlerFeatures{UserNamespaces: &can}})
	}
	return kept
}
