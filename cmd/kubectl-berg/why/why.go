// Package why finds the first thing that is wrong with an instance, and what to do about it, from
// what its user may read: the status, and, where that does not say enough, pods and events.
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
)

// Route is a route of an instance, as its Gateway sees it.
type Route struct {
	Name string
	// Refused is what the Gateway says against it, "" if nothing; Unseen that it says nothing.
	Refused string
	Unseen  bool
}

// View is all that can be known about an instance.
type View struct {
	Instance *bergv1.ChallengeInstance
	Now      time.Time
	// Pods are those of its namespace, and Events what was told there.
	Pods   []corev1.Pod
	Events []corev1.Event
	Routes []Route
	// Unreadable is what the user may not read, as in "pods in challenge-…".
	Unreadable []string
}

// Verdict is how grave it is.
type Verdict string

// The verdicts.
const (
	// Fine: nothing is wrong.
	Fine Verdict = "ok"
	// Underway: nothing is wrong, and it is not yet what was asked for.
	Underway Verdict = "waiting"
	// Wrong: something is.
	Wrong Verdict = "problem"
)

// Finding is the first thing that is wrong.
type Finding struct {
	Namespace string  `json:"namespace"`
	Name      string  `json:"name"`
	Phase     string  `json:"phase"`
	Verdict   Verdict `json:"verdict"`
	// Condition and Reason are where the status says so, "" where it does not.
	Condition string `json:"condition,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// Cause is what a player may be told, "" if it runs.
	Cause bergv1.Cause `json:"cause,omitempty"`
	// Start is where the time of its start went, as far as it has come.
	Start []Stage `json:"start,omitempty"`
	// Sentence says what is wrong, Do what to do, each in one sentence or two.
	Sentence string `json:"sentence"`
	Do       string `json:"do,omitempty"`
	// Evidence is what others say about it, word for word.
	Evidence []string `json:"evidence,omitempty"`
	// Unreadable is what could say more and may not be read.
	Unreadable []string `json:"unreadable,omitempty"`
}

// timeout is how long the operator may take to see something.
const timeout = 15 * time.Second

// Explain looks at a view.
func Explain(v View) Finding {
	i := v.Instance
	f := Finding{Namespace: i.Namespace, Name: i.Name, Phase: string(i.Status.Phase), Unreadable: v.Unreadable, Cause: i.Status.Cause, Start: Stages(i)}
	for _, look := range []func(View, *Finding) bool{
		ending, unseen, frozen, stopped, starting, unhealthy, unrouted, stale,
	} {
		if look(v, &f) {
			break
		}
	}
	if f.Sentence == "" {
		f.Verdict = Fine
		f.Sentence = fmt.Sprintf("Nothing is wrong: %s is %s%s.", i.Name, i.Status.Phase, untilExpiry(v))
		if len(i.Status.Services) > 0 && i.Status.Phase == bergv1.PhaseRunning {
			f.Do = "Connect: " + connectCommand(i)
		}
	}
	f.Sentence, f.Do = console.OneLine(f.Sentence), console.OneLine(f.Do)
	for n := range f.Evidence {
		f.Evidence[n] = console.OneLine(f.Evidence[n])
	}
	return f
}

func untilExpiry(v View) string {
	at := v.Instance.Status.ExpiresAt
	if at == nil {
		return ""
	}
	return ", and has " + console.Duration(at.Sub(v.Now)) + " left"
}

func connectCommand(i *bergv1.ChallengeInstance) string {
	return fmt.Sprintf("kubectl berg connect %s -n %s", i.Name, i.Namespace)
}

func condition(v View, name string) *metav1.Condition {
	return meta.FindStatusCondition(v.Instance.Status.Conditions, name)
}

// says fills a finding.
func (f *Finding) says(verdict Verdict, sentence, do string) bool {
	f.Verdict, f.Sentence, f.Do = verdict, sentence, do
	return true
}

func (f *Finding) from(c *metav1.Condition) {
	f.Condition, f.Reason = c.Type, c.Reason
	if c.Message != "" {
		f.Evidence = append(f.Evidence, fmt.Sprintf("%s: %s", c.Type, c.Message))
	}
}

// ending: it is on its way out.
func ending(v View, f *Finding) bool {
	i := v.Instance
	c := condition(v, bergv1.ConditionNamespaceDeleted)
	if c != nil && c.Reason == bergv1.ReasonDeletionBlocked {
		f.from(c)
		if i.DeletionTimestamp == nil {
			return f.says(Wrong, "Its time is over, and the API server refuses to delete it.",
				"Lift what refuses: an admission policy or webhook, as for a maintenance freeze. It is tried again at least once a minute.")
		}
		return f.says(Wrong, fmt.Sprintf("It is being deleted, and something holds its namespace %s.", i.Status.Namespace),
			"Free what the message names: usually a finalizer of another controller on an object in that namespace "+
				"(docs/runbooks/BergInstanceStuckTerminating.md).")
	}
	if i.DeletionTimestamp == nil {
		return false
	}
	if since := v.Now.Sub(i.DeletionTimestamp.Time); since > time.Minute {
		if c != nil {
			f.from(c)
		}
		return f.says(Wrong, fmt.Sprintf("It has been ending for %s, which usually takes seconds.", console.Duration(since)),
			fmt.Sprintf("Look what is left: kubectl get namespace %s -o yaml; and whether the operator works: kubectl berg doctor", namespaceOf(i)))
	}
	return f.says(Underway, "It is being deleted"+because(i)+"; its namespace goes first.", "Wait some seconds.")
}

func because(i *bergv1.ChallengeInstance) string {
	if r := i.Spec.TerminationReason; r != "" {
		return " (" + string(r) + ")"
	}
	return ""
}

func namespaceOf(i *bergv1.ChallengeInstance) string {
	if i.Status.Namespace != "" {
		return i.Status.Namespace
	}
	return "challenge-" + i.Spec.OwnerID
}

// unseen: the operator has not looked.
func unseen(v View, f *Finding) bool {
	i := v.Instance
	switch {
	case len(i.Status.Conditions) == 0 && v.Now.Sub(i.CreationTimestamp.Time) > timeout:
		return f.says(Wrong, fmt.Sprintf("The operator has not looked at it in %s.", console.Duration(v.Now.Sub(i.CreationTimestamp.Time))),
			"See whether the operator works: kubectl berg doctor")
	case len(i.Status.Conditions) == 0:
		return f.says(Underway, "It was created a moment ago, and the operator has not looked at it yet.", "Wait some seconds.")
	case i.Status.ObservedGeneration < i.Generation && i.Spec.TerminationReason != "":
		return f.says(Underway, "It was asked to end"+because(i)+", and is about to.", "Wait some seconds.")
	}
	if at := i.Status.ExpiresAt; at != nil && v.Now.Sub(at.Time) > timeout && !isFrozen(i) {
		return f.says(Wrong, fmt.Sprintf("Its time was over %s ago, and nothing has ended it.", console.Duration(v.Now.Sub(at.Time))),
			"See whether the operator works: kubectl berg doctor")
	}
	return false
}

// frozen: somebody has stopped the clock.
func frozen(v View, f *Finding) bool {
	c := condition(v, bergv1.ConditionChallengeFound)
	if c == nil || c.Reason != bergv1.ReasonFrozen || v.Instance.Status.InstanceID != "" {
		return false
	}
	f.from(c)
	return f.says(Wrong, "The Challenge is frozen: no new instance of it starts.",
		fmt.Sprintf("Wait, or end the freeze: kubectl berg thaw -n %s", v.Instance.Namespace))
}

// steps are the conditions of a build, in its order.
var steps = []string{
	bergv1.ConditionChallengeFound, bergv1.ConditionFlagValidation, bergv1.ConditionAdmitted, bergv1.ConditionNamespaceCreated,
	bergv1.ConditionNetworkPolicyCreated, bergv1.ConditionServicesCreated, bergv1.ConditionRoutesCreated,
	bergv1.ConditionDeploymentsCreated,
}

// stopped: an object cannot be made.
func stopped(v View, f *Finding) bool {
	for _, step := range steps {
		c := condition(v, step)
		if c == nil || c.Status != metav1.ConditionFalse {
			continue
		}
		if c.Reason == bergv1.ReasonChallengeMissing && v.Instance.Status.InstanceID != "" {
			continue // it runs on, and says so below
		}
		f.from(c)
		a, known := advice[c.Reason]
		if !known {
			a = saying{"%s stopped it.", "Read the message; the operator tries again by itself."}
		}
		verdict := Wrong
		if c.Reason == bergv1.ReasonOwnerBusy || c.Reason == bergv1.ReasonWaiting || c.Reason == bergv1.ReasonQueued {
			verdict = Underway
		}
		sentence := a.sentence
		if strings.Contains(sentence, "%s") {
			sentence = fmt.Sprintf(sentence, whatStep[step])
		}
		return f.says(verdict, sentence, fill(a.do, v.Instance))
	}
	return false
}

// fill puts in the names. With the braces none of the words is the beginning of another, or a part
// of a setting's name.
func fill(text string, i *bergv1.ChallengeInstance) string {
	challenge := i.Spec.ChallengeRef.Name
	return strings.NewReplacer("{NAME}", i.Name, "{NAMESPACE}", i.Namespace, "{CHALLENGE}", challenge, "{PLACE}", namespaceOf(i), "{UID}", string(i.UID)).Replace(text)
}

// whatStep names what a step makes.
var whatStep = map[string]string{
	bergv1.ConditionChallengeFound:       "The Challenge",
	bergv1.ConditionFlagValidation:       "The flag",
	bergv1.ConditionAdmitted:             "The queue",
	bergv1.ConditionNamespaceCreated:     "Its namespace",
	bergv1.ConditionNetworkPolicyCreated: "Its network policy",
	bergv1.ConditionServicesCreated:      "A Service",
	bergv1.ConditionRoutesCreated:        "A route",
	bergv1.ConditionDeploymentsCreated:   "A Deployment, or what its pods need",
}

// saying is what a reason means, and what to do.
type saying struct{ sentence, do string }

// advice is by reason. %s is what the step makes; what stands in braces is filled in.
var advice = map[string]saying{
	bergv1.ReasonChallengeMissing: {
		"There is no such Challenge.",
		"Create the Challenge {CHALLENGE}, or check spec.challengeRef: it goes on by itself when the Challenge is there. Existing ones: kubectl get challenges -A",
	},
	bergv1.ReasonReferenceNotAllowed: {
		"The operator's CHALLENGE_REF_POLICY does not let this namespace use a Challenge of that one.",
		"Use a Challenge that is allowed, or ask the administrator.",
	},
	bergv1.ReasonNothingToRun: {
		"The Challenge has no containers.",
		"Add spec.containers to it: kubectl edit challenge {CHALLENGE}; instances go on by themselves.",
	},
	bergv1.ReasonInvalidChallenge: {
		"The Challenge cannot be run as it is written.",
		"Fix the fields that the message names: kubectl edit challenge {CHALLENGE}; instances go on by themselves.",
	},
	bergv1.ReasonFlagMissing: {
		"The Challenge wants a flag of the instance's own, and it has none.",
		`Set it, once: kubectl patch ci {NAME} -n {NAMESPACE} --type merge -p '{"spec":{"flag":"flag{...}"}}'`,
	},
	bergv1.ReasonInvalidFlag: {
		"The flag cannot be given to the containers.",
		"Create the instance anew with another flag: at most 1024 bytes, and no NUL character.",
	},
	bergv1.ReasonQueued: {
		"It waits in the queue: as many instances exist as CHALLENGE_MAX_INSTANCES or spec.maxInstances of its Challenge allows; its time does not run yet.",
		"Wait: it starts by itself when others have ended and those before it have started. More room for Challenge {CHALLENGE}, or for all: raise what the message names.",
	},
	bergv1.ReasonOwnerBusy: {
		"Another instance of the same owner goes first: one owner has one at a time.",
		"Wait for the end of the one that the message names, or end it: kubectl berg end OTHER -n {NAMESPACE}",
	},
	bergv1.ReasonNamespaceConflict: {
		"A namespace of the name that it needs exists and is not its own.",
		"If nobody needs it, delete it: kubectl delete namespace {PLACE}",
	},
	bergv1.ReasonObjectConflict: {
		"%s cannot be made: an object of that name exists in its namespace and is not its own.",
		"Delete the object that the message names from {PLACE}, or give it back its mark: berg.norelect.ch/instance-uid={UID}",
	},
	bergv1.ReasonContested: {
		"%s is changed back again and again by somebody else.",
		"Stop the one that the message names; the operator puts it back with growing pauses.",
	},
	bergv1.ReasonAPINotInstalled: {
		"%s needs an API that the cluster does not have.",
		"Install what the message names, Cilium or the Gateway API, or set the operator's NETWORK_POLICY; it goes on by itself. kubectl berg doctor looks at both.",
	},
	bergv1.ReasonRefused: {
		"The API server refuses: %s.",
		"Change what refuses it, a quota, an admission policy or a webhook, as the message says; it is tried again.",
	},
	bergv1.ReasonWriteFailed: {
		"%s could not be written: the API server failed or did not answer.",
		"It is tried again by itself. If it lasts, the API server has a problem: kubectl get --raw '/readyz?verbose'",
	},
	bergv1.ReasonWaiting: {
		"%s is being made anew.",
		"Wait: it goes on by itself.",
	},
}

// starting: all is made, and its pods are not ready.
func starting(v View, f *Finding) bool {
	c := condition(v, bergv1.ConditionPodsReady)
	if c == nil || c.Status == metav1.ConditionTrue {
		return false
	}
	reason := c.Reason
	verdict := Wrong
	if c.Status != metav1.ConditionFalse {
		verdict = Underway
	}
	return v.pods(f, c, reason, verdict)
}

// unhealthy: it ran, and something does not any more.
func unhealthy(v View, f *Finding) bool {
	c := condition(v, bergv1.ConditionHealthy)
	if c == nil || c.Status != metav1.ConditionFalse {
		return restarts(v, f)
	}
	return v.pods(f, c, c.Reason, Wrong)
}

// restarting is how recent the end of a container must be to be told of a healthy instance.
const restarting = 10 * time.Minute

// restarts: a container that is well now has just ended.
func restarts(v View, f *Finding) bool {
	for _, p := range ownPods(v) {
		for _, s := range p.Status.ContainerStatuses {
			last := s.LastTerminationState.Terminated
			if last == nil || v.Now.Sub(last.FinishedAt.Time) > restarting {
				continue
			}
			what := fmt.Sprintf("Container %s runs, and ended %s ago with exit code %d%s; it was restarted %d times.",
				s.Name, console.Duration(v.Now.Sub(last.FinishedAt.Time)), last.ExitCode, inWords(last), s.RestartCount)
			f.Reason = last.Reason
			return f.says(Wrong, what, afterEnd(v.Instance, s.Name, last))
		}
	}
	return false
}

func inWords(t *corev1.ContainerStateTerminated) string {
	if t.Reason == "OOMKilled" {
		return ", killed for want of memory"
	}
	return ""
}

func afterEnd(i *bergv1.ChallengeInstance, container string, t *corev1.ContainerStateTerminated) string {
	if t.Reason == "OOMKilled" {
		return fmt.Sprintf("Give it more memory: resourceLimits.memory of the container %s in the Challenge %s; then kubectl berg rollout %s -n %s",
			container, i.Spec.ChallengeRef.Name, i.Spec.ChallengeRef.Name, i.Namespace)
	}
	return fmt.Sprintf("Read its last words: kubectl berg logs %s -n %s -c %s --previous", i.Name, i.Namespace, container)
}

// ownPods are the instance's, and not those of one before it.
func ownPods(v View) []corev1.Pod {
	return slices.DeleteFunc(slices.Clone(v.Pods), func(p corev1.Pod) bool {
		id, marked := p.Annotations[bergv1.LabelInstanceID]
		return p.DeletionTimestamp != nil || marked && id != v.Instance.Status.InstanceID
	})
}

// unrouted: players do not get through the Gateway.
func unrouted(v View, f *Finding) bool {
	for _, r := range v.Routes {
		switch {
		case r.Refused != "":
			f.Evidence = append(f.Evidence, "route "+r.Name+": "+r.Refused)
			return f.says(Wrong, fmt.Sprintf("It runs, and the Gateway does not accept its route %s: players do not reach it.", r.Name),
				"Let the Gateway's listener allow the namespaces of instances and their host names, as in config/berg/samples/prerequisites/gateway.yaml; kubectl berg doctor compares it with the operator's settings.")
		case r.Unseen && v.Instance.Status.ReadyAt != nil && v.Now.Sub(v.Instance.Status.ReadyAt.Time) > time.Minute:
			return f.says(Wrong, fmt.Sprintf("It runs, and no Gateway has said anything about its route %s: players may not reach it.", r.Name),
				"See whether the Gateway that the operator's GATEWAY_NAME and GATEWAY_NAMESPACE name is there, and its controller works: kubectl berg doctor")
		}
	}
	return false
}

// stale: it runs something old, which is no problem of its players.
func stale(v View, f *Finding) bool {
	i := v.Instance
	if isFrozen(i) {
		return f.says(Fine, fmt.Sprintf("Nothing is wrong: %s is %s and frozen: it does not expire.", i.Name, i.Status.Phase),
			fmt.Sprintf("To let its time go on: kubectl berg thaw -n %s", i.Namespace))
	}
	c := condition(v, bergv1.ConditionUpToDate)
	if c == nil || c.Status == metav1.ConditionTrue || c.Reason == bergv1.ReasonWaiting {
		return false
	}
	if asked := i.Annotations[bergv1.AnnotationRollout]; asked != "" && asked != i.Status.ObservedRollout {
		f.from(c)
		if c.Reason == bergv1.ReasonChallengeChanged || c.Reason == bergv1.ReasonConfigurationChanged {
			return f.says(Underway, "A rollout was asked for, and is about to be carried out.", "Wait some seconds.")
		}
		return f.says(Wrong, "A rollout was asked for, and cannot be carried out: the Challenge as it is now cannot be run.",
			fmt.Sprintf("Fix what the message names: kubectl edit challenge %s", i.Spec.ChallengeRef.Name))
	}
	f.from(c)
	if c.Reason == bergv1.ReasonChallengeMissing {
		return f.says(Fine, fmt.Sprintf("Nothing is wrong: %s is %s. Its Challenge was deleted; it runs on until its end.", i.Name, i.Status.Phase), "")
	}
	return f.says(Fine, fmt.Sprintf("Nothing is wrong: %s is %s. It runs an earlier state of its Challenge or of the configuration.", i.Name, i.Status.Phase),
		fmt.Sprintf("To bring it up to date: kubectl berg rollout %s -n %s", i.Spec.ChallengeRef.Name, i.Namespace))
}

// isFrozen reports whether the time of an instance stands still.
func isFrozen(i *bergv1.ChallengeInstance) bool { return i.Annotations[bergv1.AnnotationFrozen] != "" }
