package status

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/podstate"
)

const (
	theClient = "the client proxy"
	theServer = "the server proxy"
)

// CheckEnd returns why a pair has failed, "" if it has not. A pair that ran has failed as soon as one of its proxies is gone:
// neither is started again.
func CheckEnd(o Observed, startTimeout time.Duration, now time.Time) string {
	ran := o.Proxy.Status.State == tunnelv1.StateRunning
	switch {
	case o.Client != nil && Ended(theClient, o.Client) != "":
		return Ended(theClient, o.Client)
	case o.Server.Ended != "":
		return o.Server.Ended
	case ran && o.Client == nil:
		return "the pod of the client proxy was deleted"
	case ran && !o.Server.Exists:
		return "the server proxy no longer exists"
	case !ran && o.Client != nil && !now.Before(StartDeadline(o.Client, startTimeout)):
		return fmt.Sprintf("the proxies were not ready within TUNNEL_START_TIMEOUT (%s): %s", startTimeout, WhyNotReady(o))
	}
	return ""
}

// StartDeadline is when a pair fails unless both proxies are ready. client is the pod of the client proxy.
func StartDeadline(client *corev1.Pod, timeout time.Duration) time.Time {
	return client.CreationTimestamp.Add(timeout)
}

// WhyNotReady returns the reason why a start waits.
func WhyNotReady(o Observed) string {
	switch {
	case o.Client == nil:
		return "the pod of the client proxy does not exist yet"
	case Waiting(theClient, o.Client) != "":
		return Waiting(theClient, o.Client)
	case !podstate.Ready(o.Client):
		return "the client proxy is not ready yet"
	case !o.Server.Exists:
		return "the server proxy does not exist yet"
	case o.Server.Waiting != "":
		return o.Server.Waiting
	default:
		return "the server proxy is not ready yet"
	}
}

// CheckPrerequisites returns the problem that keeps a pair from being made; nil for none. They are checked until the pair runs. A
// network that goes later is only reported.
func CheckPrerequisites(o Observed) *outcome.Problem {
	name := o.Proxy.Spec.ContainerNetworkName
	blocked := func(on, reason, format string, args ...any) *outcome.Problem {
		return &outcome.Problem{Condition: on, Reason: reason, Class: outcome.Blocked, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case o.Network == nil:
		return blocked(tunnelv1.ConditionNetworkReady, tunnelv1.ReasonNetworkNotFound,
			"ContainerNetwork %s does not exist: create it, or delete this object and create one with another containerNetworkName", name)
	case o.Network.DeletionTimestamp != nil:
		return blocked(tunnelv1.ConditionNetworkReady, tunnelv1.ReasonNetworkNotRunning, "ContainerNetwork %s is being deleted", name)
	case !NetworkRuns(o.Network):
		return blocked(tunnelv1.ConditionNetworkReady, tunnelv1.ReasonNetworkNotRunning,
			"ContainerNetwork %s is not ready; its state is %q: %s", name, o.Network.Status.State, o.Network.Status.Message)
	case o.HostName != "" && o.Host == nil:
		return blocked(tunnelv1.ConditionProxiesReady, tunnelv1.ReasonHostNotReady,
			"Node %s does not exist. The annotation %s or TUNNEL_HOST_NODE names it: name another node", o.HostName, tunnelv1.AnnotationHostNode)
	case o.HostName != "" && !conditions.NodeReady(o.Host):
		return blocked(tunnelv1.ConditionProxiesReady, tunnelv1.ReasonHostNotReady, "Node %s is not ready", o.HostName)
	}
	return nil
}

// NetworkRuns reports whether the network of a pair can be used: its namespace exists, and the operator may work in it.
func NetworkRuns(n *tunnelv1.ContainerNetwork) bool {
	return n != nil && n.DeletionTimestamp == nil && n.Status.State == tunnelv1.NetworkRunning && n.Status.ID != "" &&
		meta.IsStatusConditionTrue(n.Status.Conditions, tunnelv1.ConditionConfined)
}
