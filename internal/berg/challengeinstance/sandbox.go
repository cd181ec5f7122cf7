package challengeinstance

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// The containers of a pod run in a sandbox: its control group, its network. When the
// container runtime refuses one, as with a RuntimeClass whose handler the node does not
// know, the pod's status says ContainerCreating for ever. Only an event tells why.

// sandboxFailed is the kubelet's reason for that event.
const sandboxFailed = "FailedCreatePodSandBox"

// SandboxFailures selects the events that are looked at, in the API server: in a healthy
// cluster there are none.
func SandboxFailures() fields.Selector {
	return fields.SelectorFromSet(fields.Set{
		"regarding.kind": "Pod", "type": corev1.EventTypeWarning, "reason": sandboxFailed,
	})
}

// sandboxID is a name that the runtime gives to each try.
var sandboxID = regexp.MustCompile(`[0-9a-f]{64}`)

// TrimEvent keeps of an event which pod had which problem, and of those of foreign
// pods nothing. Every try has a sandbox of another name, which is no news.
func TrimEvent(e *eventsv1.Event) {
	kept := eventsv1.Event{TypeMeta: e.TypeMeta}
	kept.Namespace, kept.Name, kept.UID, kept.ResourceVersion = e.Namespace, e.Name, e.UID, e.ResourceVersion
	if strings.HasPrefix(e.Namespace, NamespacePrefix) {
		kept.Regarding.UID = e.Regarding.UID
		kept.Note = sandboxID.ReplaceAllString(e.Note, "...")
		kept.DeprecatedLastTimestamp.Time = happened(e)
	}
	*e = kept
}

// happened is when an event happened last.
func happened(e *eventsv1.Event) time.Time {
	at := e.CreationTimestamp.Time
	for _, t := range []time.Time{e.EventTime.Time, e.DeprecatedLastTimestamp.Time} {
		if t.After(at) {
			at = t
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(at) {
		at = e.Series.LastObservedTime.Time
	}
	return at
}

// sandboxMade reports whether the sandbox of a pod exists: what failed before is out
// of date.
func sandboxMade(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionTrue
	})
}

// observeSandboxes returns by pod why the runtime refuses its sandbox, of the latest try.
func (r *Reconciler) observeSandboxes(ctx context.Context, name string) (map[types.UID]string, error) {
	var events eventsv1.EventList
	if err := r.Client.List(ctx, &events, client.InNamespace(name), client.DisableReadYourWritesConsistency); err != nil {
		return nil, err
	}
	return latestFailures(events.Items), nil
}

func latestFailures(events []eventsv1.Event) map[types.UID]string {
	slices.SortFunc(events, func(a, b eventsv1.Event) int {
		if order := a.DeprecatedLastTimestamp.Compare(b.DeprecatedLastTimestamp.Time); order != 0 {
			return order
		}
		return strings.Compare(a.Name, b.Name)
	})
	failures := map[types.UID]string{}
	for _, e := range events {
		failures[e.Regarding.UID] = e.Note
	}
	return failures
}

// failureTold passes what an event says, and not how often.
var failureTold = predicate.Funcs{
	DeleteFunc: func(event.DeleteEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.(*eventsv1.Event).Note != e.ObjectNew.(*eventsv1.Event).Note
	},
}

// sandboxRepaired passes a pod whose sandbox was refused, and exists now. Those of
// others would wake each instance once more while it starts.
func (r *Reconciler) sandboxRepaired(ctx context.Context) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			if sandboxMade(e.ObjectOld.(*corev1.Pod)) || !sandboxMade(e.ObjectNew.(*corev1.Pod)) {
				return false
			}
			failures, err := r.observeSandboxes(ctx, e.ObjectNew.GetNamespace())
			return err == nil && failures[e.ObjectNew.GetUID()] != ""
		},
	}
}

// reasonOf makes a reason of a text that came from elsewhere, which the API server would
// refuse with the whole status: OutOfnvidia.com/gpu.
func reasonOf(text, otherwise string) string {
	reason := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, text)
	if reason == "" || len(reason) > maxReason || reason[0] < 'A' || reason[0] > 'Z' {
		return otherwise
	}
	return reason
}

// maxReason is what is left of a word.
const maxReason = 64
