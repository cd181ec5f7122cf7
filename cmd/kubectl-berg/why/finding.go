package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

// View is everything that is known about an instance.
type View struct {
	Instance *bergv1.ChallengeInstance
	Now      time.Time
	// Pods and Events are the pods and events in its namespace.
	Pods   []corev1.Pod
	Events []corev1.Event
	// LogEnds has the last lines of ended containers, by container, and Architectures the CPU architecture of nodes by
	// their name, where Explain asks for them.
	LogEnds, Architectures map[string]string
	// Unreadable names objects that the user may not read, as in "pods in challenge-…".
	Unreadable []string
}

// Finding is the first problem of an instance.
type Finding struct {
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	Phase     string        `json:"phase"`
	Level     console.Level `json:"level"`
	// Condition and Reason are from the condition that shows the problem, "" if none does.
	Condition string `json:"condition,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// Cause is the cause that players are shown, "" if the instance runs.
	Cause bergv1.Cause `json:"cause,omitempty"`
	// Start has the stages of the start that are over.
	Start []view.Stage `json:"start,omitempty"`
	// Sentence describes the problem, Do the action, each in one or two sentences.
	Sentence string `json:"sentence"`
	Do       string `json:"do,omitempty"`
	// Evidence quotes conditions and events.
	Evidence []string `json:"evidence,omitempty"`
	// Unreadable names objects that the user may not read, although they could have more details.
	Unreadable []string `json:"unreadable,omitempty"`
}

// condition is nil as long as the operator has not written it.
func condition(v View, name string) *metav1.Condition {
	return meta.FindStatusCondition(v.Instance.Status.Conditions, name)
}

// set fills in a finding. It returns true, for the checks.
func (f *Finding) set(level console.Level, sentence, do string) bool {
	f.Level, f.Sentence, f.Do = level, sentence, do
	return true
}

// addCondition makes a condition the one that shows the problem, and quotes its message.
func (f *Finding) addCondition(c *metav1.Condition) {
	f.Condition, f.Reason = c.Type, c.Reason
	if c.Message != "" {
		f.Evidence = append(f.Evidence, fmt.Sprintf("%s: %s", c.Type, c.Message))
	}
}

// InstanceNamespace returns the namespace of the objects of an instance.
func InstanceNamespace(i *bergv1.ChallengeInstance) string {
	if i.Status.Namespace != "" {
		return i.Status.Namespace
	}
	return "challenge-" + i.Spec.OwnerID
}

// NamespaceTaken reports whether the namespace of that name is another user's: its pods are not the instance's,
// also if their labels and annotations say otherwise.
func NamespaceTaken(i *bergv1.ChallengeInstance) bool {
	c := meta.FindStatusCondition(i.Status.Conditions, bergv1.ConditionNamespaceCreated)
	return c != nil && c.Reason == bergv1.ReasonNamespaceConflict
}

// currentPods returns the pods of the instance that count now. An evicted pod, or a pod that its node rejected, remains in
// addition to its replacement: how its container ended says nothing about the program.
func currentPods(v View) []corev1.Pod {
	all := ownPods(v)
	return slices.DeleteFunc(slices.Clone(all), func(p corev1.Pod) bool {
		return endedText(p) != "" && slices.ContainsFunc(all, func(other corev1.Pod) bool {
			return endedText(other) == "" && other.Labels[bergv1.LabelContainer] == p.Labels[bergv1.LabelContainer]
		})
	})
}

// ownPods returns the pods of the instance, without pods of an earlier instance with the same owner.
func ownPods(v View) []corev1.Pod {
	if NamespaceTaken(v.Instance) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(v.Pods), func(p corev1.Pod) bool {
		id, labelled := p.Annotations[bergv1.LabelInstanceID]
		return p.DeletionTimestamp != nil || labelled && id != v.Instance.Status.InstanceID
	})
}

// endedText says how a pod ended that Kubernetes replaces, "" for the others.
func endedText(p corev1.Pod) string {
	if p.Status.Phase != corev1.PodFailed || p.Status.Reason == "" {
		return ""
	}
	return strings.TrimSuffix(p.Status.Reason+": "+strings.TrimSuffix(strings.TrimSpace(p.Status.Message), "."), ": ")
}
