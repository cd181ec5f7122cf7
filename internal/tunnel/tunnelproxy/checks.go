package tunnelproxy

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// checkEnd returns why a pair has ended for ever, "" if it has not.
func checkEnd(o Observed, startTimeout time.Duration, now time.Time) string {
	ran := o.Proxy.Status.State == tunnelv1.StateRunning
	switch {
	case o.Client != nil && ended("", o.Client) != "":
		return ended("the client proxy", o.Client)
	case o.Server.Ended != "":
		return o.Server.Ended
	case ran && o.Client == nil:
		return "the pod of the client proxy was deleted"
	case ran && !o.Server.Exists:
		return "the server proxy is not there any more"
	case !ran && o.Client != nil && !now.Before(startDeadline(o.Client, startTimeout)):
		return fmt.Sprintf("the proxies were not ready within TUNNEL_START_TIMEOUT (%s): %s", startTimeout, whyNotReady(o))
	}
	return ""
}

func startDeadline(pod *corev1.Pod, timeout time.Duration) time.Time {
	return pod.CreationTimestamp.Add(timeout)
}

// whyNotReady says what a start waits for.
func whyNotReady(o Observed) string {
	switch {
	case o.Client == nil:
		return "the pod of the client proxy is not there yet"
	case waiting("", o.Client) != "":
		return waiting("the client proxy", o.Client)
	case !podReady(o.Client):
		return "the client proxy is not ready yet"
	case !o.Server.Exists:
		return "the server proxy is not there yet"
	case o.Server.Waiting != "":
		return o.Server.Waiting
	default:
		return "the server proxy is not ready yet"
	}
}

// checkPrerequisites returns what keeps a pair from being built.
func checkPrerequisites(o Observed) *outcome.Problem {
	name := o.Proxy.Spec.ContainerNetworkName
	blocked := func(on, reason, message string) *outcome.Problem {
		return &outcome.Problem{Condition: on, Reason: reason, Class: outcome.Blocked, Message: message}
	}
	switch {
	case o.Network == nil:
		return blocked(tunnelv1.ConditionNetworkReady, tunnelv1.ReasonNetworkNotFound,
			fmt.Sprintf("There is no ContainerNetwork %s: create it, or delete this object and create one that names another", name))
	case o.Network.DeletionTimestamp != nil:
		return blocked(tunnelv1.ConditionNetworkReady, tunnelv1.ReasonNetworkNotRunning, fmt.Sprintf("ContainerNetwork %s is being deleted", name))
	case !networkRuns(o.Network):
		return blocked(tunnelv1.ConditionNetworkReady, tunnelv1.ReasonNetworkNotRunning,
			fmt.Sprintf("ContainerNetwork %s is not Running but %q: %s", name, o.Network.Status.State, o.Network.Status.Message))
	case o.HostName != "" && o.Host == nil:
		return blocked(tunnelv1.ConditionProxiesReady, tunnelv1.ReasonHostNotReady,
			fmt.Sprintf("There is no node %s, which the annotation %s or TUNNEL_HOST_NODE names: name another one", o.HostName, tunnelv1.AnnotationHostNode))
	case o.HostName != "" && !nodeReady(o.Host):
		return blocked(tunnelv1.ConditionProxiesReady, tunnelv1.ReasonHostNotReady, fmt.Sprintf("Node %s is not ready", o.HostName))
	}
	return nil
}

// problemOf turns what stopped a write into a problem that shows on a condition. namespace is that of the
// operator.
func problemOf(on string, err error, namespace string) *outcome.Problem {
	p := &outcome.Problem{Condition: on, Message: err.Error(), Err: err}
	var status apierrors.APIStatus
	switch outcome.CauseOf(err) {
	case outcome.NotOwned:
		p.Class, p.Reason = outcome.External, tunnelv1.ReasonOwnershipConflict
	case outcome.Conflict:
		p.Class = outcome.Stale
	case outcome.Terminating:
		p.Class, p.Reason, p.Err = outcome.Waiting, tunnelv1.ReasonTerminating, outcome.ErrConflict
	case outcome.Contested:
		p.Class, p.Reason = outcome.Retry, tunnelv1.ReasonContested
	case outcome.Rejected, outcome.NotInstalled, outcome.NotServed:
		p.Class, p.Reason = outcome.External, tunnelv1.ReasonRefused
	case outcome.Failed:
		p.Class, p.Reason = outcome.Retry, tunnelv1.ReasonWriteFailed
	}
	if errors.Is(err, outcome.ErrConflict) {
		p.Class = outcome.Stale
	}
	if apierrors.IsForbidden(err) && errors.As(err, &status) {
		var host *hostError
		if errors.As(err, &host) {
			p.Reason = tunnelv1.ReasonHostRightsMissing
			p.Message = fmt.Sprintf("The operator may not make what it needs in its own namespace %s: have an administrator apply config/tunnel/host: %s", namespace, err)
		}
	}
	return p
}

// hostError is an error about an object in the operator's own namespace.
type hostError struct{ error }

func (e *hostError) Unwrap() error { return e.error }

// inOwnNamespace marks an error as one about the operator's own namespace.
func inOwnNamespace(err error) error {
	if err == nil {
		return nil
	}
	return &hostError{err}
}
