package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

// observeTimeout is the maximum time in which the operator should react.
const observeTimeout = 15 * time.Second

// Explain finds the first problem in a view.
func Explain(v View) Finding {
	i := v.Instance
	f := Finding{Namespace: i.Namespace, Name: i.Name, Phase: string(i.Status.Phase), Unreadable: v.Unreadable, Cause: i.Status.Cause, Start: view.Stages(i)}
	for _, check := range []func(View, *Finding) bool{
		terminating, notObserved, frozen, stepFailed, starting, unhealthy, replacedPod, outdated,
	} {
		if check(v, &f) {
			break
		}
	}
	if f.Sentence == "" {
		f.set(console.OK, fmt.Sprintf("No problem found: %s is %s%s.", i.Name, i.Status.Phase, untilExpiry(v)), "")
		if len(i.Status.Services) > 0 && i.Status.Phase == bergv1.PhaseRunning {
			f.Do = fmt.Sprintf("Connect: kubectl berg connect %s -n %s", i.Name, i.Namespace)
		}
	}
	f.Sentence, f.Do = console.OneLine(f.Sentence), console.OneLine(f.Do)
	for n := range f.Evidence {
		f.Evidence[n] = console.OneLine(f.Evidence[n])
	}
	return f
}

// untilExpiry is empty for an instance that has not started.
func untilExpiry(v View) string {
	expiry := v.Instance.Status.ExpiresAt
	if expiry == nil {
		return ""
	}
	return ", with " + console.Duration(expiry.Sub(v.Now)) + " left"
}

const (
	waitSeconds = "Wait a few seconds."
	runDoctor   = "Check whether the operator works: kubectl berg doctor"
)

// terminating explains an instance that is being deleted, or whose deletion the API server refuses. Less than a minute
// is normal.
func terminating(v View, f *Finding) bool {
	i := v.Instance
	c := condition(v, bergv1.ConditionNamespaceDeleted)
	if c != nil && c.Reason == bergv1.ReasonDeletionBlocked {
		f.addCondition(c)
		if i.DeletionTimestamp == nil {
			return f.set(console.Problem, "The instance has expired, but the API server refuses to delete it.",
				"Remove what refuses the deletion: an admission policy or a webhook, such as one for a maintenance freeze. The operator retries at least once a minute.")
		}
		return f.set(console.Problem, fmt.Sprintf("The instance is being deleted, but something keeps its namespace %s.", i.Status.Namespace),
			"Remove what the message names. Usually it is the finalizer of another controller on an object in that namespace "+
				"(docs/runbooks/BergInstanceStuckTerminating.md).")
	}
	if i.DeletionTimestamp == nil {
		return false
	}
	if since := v.Now.Sub(i.DeletionTimestamp.Time); since > time.Minute {
		if c != nil {
			f.addCondition(c)
		}
		return f.set(console.Problem, fmt.Sprintf("The instance has been terminating for %s. Usually that takes seconds.", console.Duration(since)),
			fmt.Sprintf("Check what is left (kubectl get namespace %s -o yaml) and whether the operator works (kubectl berg doctor).", InstanceNamespace(i)))
	}
	return f.set(console.Waiting, "The instance is being deleted"+terminationReason(i)+". Its namespace is deleted first.", waitSeconds)
}

// terminationReason is who or what ended the instance, in parentheses.
func terminationReason(i *bergv1.ChallengeInstance) string {
	if r := i.Spec.TerminationReason; r != "" {
		return " (" + string(r) + ")"
	}
	return ""
}

// notObserved checks whether the operator has reacted.
func notObserved(v View, f *Finding) bool {
	i := v.Instance
	age := v.Now.Sub(i.CreationTimestamp.Time)
	switch {
	case len(i.Status.Conditions) == 0 && age > observeTimeout:
		return f.set(console.Problem, fmt.Sprintf("The operator has not processed the instance for %s.", console.Duration(age)), runDoctor)
	case len(i.Status.Conditions) == 0:
		return f.set(console.Waiting, "The instance was just created. The operator has not processed it yet.", waitSeconds)
	case i.Status.ObservedGeneration < i.Generation && i.Spec.TerminationReason != "":
		return f.set(console.Waiting, "The instance was asked to end"+terminationReason(i)+". The operator has not started to delete it yet.", waitSeconds)
	}
	if expiry := i.Status.ExpiresAt; expiry != nil && v.Now.Sub(expiry.Time) > observeTimeout && !view.IsFrozen(i) {
		return f.set(console.Problem, fmt.Sprintf("The instance expired %s ago, but nothing has deleted it.", console.Duration(v.Now.Sub(expiry.Time))), runDoctor)
	}
	return false
}

// frozen explains an instance that waits for the end of a freeze. One that already exists runs on, and outdated reports it.
func frozen(v View, f *Finding) bool {
	c := condition(v, bergv1.ConditionChallengeFound)
	if c == nil || c.Reason != bergv1.ReasonFrozen || v.Instance.Status.InstanceID != "" {
		return false
	}
	f.addCondition(c)
	_, sentence, do := explain(c)
	return f.set(console.Problem, sentence, fillIn(do, v.Instance))
}

// observedUnknown are the reasons of steps whose result another controller has not reported yet.
var observedUnknown = []string{bergv1.ReasonRoutePending, bergv1.ReasonPodUnreached, bergv1.ReasonNoEndpoints}

// stepFailed checks the steps that create the instance.
func stepFailed(v View, f *Finding) bool {
	for _, step := range bergv1.BuildConditions {
		c := condition(v, step)
		if c == nil || c.Status == metav1.ConditionTrue || c.Status == metav1.ConditionUnknown && !slices.Contains(observedUnknown, c.Reason) {
			continue
		}
		if c.Reason == bergv1.ReasonChallengeMissing && v.Instance.Status.InstanceID != "" {
			continue // the instance keeps running; outdated reports it
		}
		f.addCondition(c)
		level, sentence, do := explain(c)
		return f.set(level, sentence, fillIn(do, v.Instance))
	}
	return false
}

// starting checks an instance whose objects exist and whose pods are not ready.
func starting(v View, f *Finding) bool {
	c := condition(v, bergv1.ConditionPodsReady)
	switch {
	case c == nil || c.Status == metav1.ConditionTrue:
		return false
	case c.Status == metav1.ConditionFalse:
		v.pods(f, c, c.Reason, console.Problem)
	default:
		v.pods(f, c, c.Reason, console.Waiting)
	}
	replacedPod(v, f) // it may say why there is another start
	return true
}

// unhealthy checks an instance that was ready once. Without such a condition it still looks for a container that has restarted,
// because players have noticed that.
func unhealthy(v View, f *Finding) bool {
	c := condition(v, bergv1.ConditionHealthy)
	if c == nil || c.Status != metav1.ConditionFalse {
		return recentlyRestarted(v, f)
	}
	v.pods(f, c, c.Reason, console.Problem)
	replacedPod(v, f)
	return true
}

// outdated reports states that are no problem for players: a freeze, and a changed Challenge.
func outdated(v View, f *Finding) bool {
	i := v.Instance
	if view.IsFrozen(i) {
		return f.set(console.OK, fmt.Sprintf("No problem found: %s is %s and frozen. It does not expire.", i.Name, i.Status.Phase),
			fmt.Sprintf("To end the freeze: kubectl berg unfreeze -n %s", i.Namespace))
	}
	c := condition(v, bergv1.ConditionUpToDate)
	if c == nil || c.Status == metav1.ConditionTrue || c.Reason == bergv1.ReasonWaiting {
		return false
	}
	f.addCondition(c)
	if requested := i.Annotations[bergv1.AnnotationRollout]; requested != "" && requested != i.Status.ObservedRollout {
		switch c.Reason {
		case bergv1.ReasonChallengeChanged, bergv1.ReasonConfigurationChanged, bergv1.ReasonImageChanged, bergv1.ReasonRevisionMissing:
			return f.set(console.Waiting, "A rollout was requested. The operator has not started it yet.", waitSeconds)
		}
		return f.set(console.Problem, "A rollout was requested, but the Challenge in its present form cannot run.",
			fmt.Sprintf("Fix what the message names: kubectl edit challenges.berg.norelect.ch %s", i.Spec.ChallengeRef.Name))
	}
	if c.Reason == bergv1.ReasonChallengeMissing {
		return f.set(console.OK, fmt.Sprintf("No problem found: %s is %s. Its Challenge was deleted; the instance runs until it expires.", i.Name, i.Status.Phase), "")
	}
	return f.set(console.OK, fmt.Sprintf("No problem found: %s is %s. It runs an earlier version of its Challenge or of the operator's settings.", i.Name, i.Status.Phase),
		fmt.Sprintf("To update it: kubectl berg rollout %s -n %s", i.Spec.ChallengeRef.Name, i.Namespace))
}

// fillIn replaces the placeholders of a text.
func fillIn(text string, i *bergv1.ChallengeInstance) string {
	return strings.NewReplacer("{NAME}", i.Name, "{NAMESPACE}", i.Namespace, "{CHALLENGE}", i.Spec.ChallengeRef.Name,
		"{OBJECTS}", InstanceNamespace(i), "{UID}", string(i.UID)).Replace(text)
}
