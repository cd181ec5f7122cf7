package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/redact"
	"github.com/bergctf/berg-operator/internal/berg/rules"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Compute writes the status of an instance that is not being deleted, all but Ready, which it returns. It reads no clock and no
// cluster: the same outcome and time give the same status.
func Compute(out Outcome, cfg config.Challenge, now time.Time) reconcile.Ready {
	s := &out.Instance.Status
	before := s.DeepCopy()
	if out.Adopted != nil {
		pin(&out.Observed, *out.Adopted, cfg)
	}
	if s.ReadyAt != nil && (out.Adopted != nil || out.NamespaceTokenHash != "") {
		return keepState(s, out.NamespaceTokenHash)
	}
	pods := checkPods(out.Observed, now)
	blocked, settling := relevantObstacle(out, pods, now)
	if settling {
		pods = podsSummary{message: unconnected(s.Conditions)}
	}
	if pods.ready && s.ReadyAt == nil && (out.Connecting || out.Adopted != nil) && blocked == nil {
		pods = podsSummary{message: unconnected(s.Conditions)}
	}
	s.ObservedGeneration = out.Instance.Generation
	if out.Endpoints != nil {
		s.Services = manifests.PublicServices(out.Endpoints)
	}
	s.ConnectionInfo = connectionInfo(out)
	// The UID replaces the digest as soon as the namespace exists: then others can read and copy its token, but no other
	// namespace gets its UID.
	if out.NamespaceTokenHash != "" {
		s.NamespaceUID, s.NamespaceTokenHash = "", out.NamespaceTokenHash
	} else if uid := namespaceUID(out); uid != "" {
		s.NamespaceUID, s.NamespaceTokenHash = uid, ""
	}
	if s.ReadyAt == nil && out.Problem == nil && pods.ready && blocked == nil {
		s.ReadyAt = &metav1.Time{Time: now}
		if s.ReadyAt.Before(s.StartedAt) {
			s.ReadyAt = s.StartedAt.DeepCopy() // the clock was set back since
		}
	}
	s.TimeoutFrom, s.ExpiresAt = timeoutFrom(out.Instance, cfg), ExpiresAt(out.Instance, cfg)
	late := startDeadlinePassed(out.Instance, cfg, now)
	s.Phase = computePhase(out, late)
	s.Cause = computeCause(out, s.Phase, pods, blocked)
	start, health := podsReady(out, pods, blocked, late, cfg), healthy(out, pods, blocked)
	current := upToDate(out.Observed, cfg)
	s.PendingChanges = pendingChanges(out.Candidate, current)
	SetConditions(out.Instance, now, append(buildConditions(out, blocked), start, health, current, alive(out.Instance))...)
	// That a pod was scheduled is not worth a write of its own: it is written with the next
	// change.
	if before.ReadyAt == nil && !equality.Semantic.DeepEqual(before, s) {
		s.Start = startTimes(out, now)
	}
	return computeReady(out, blocked, late, start, health)
}

// connectionInfo returns how players connect, in the words of the author. It follows the Challenge as it is now, because the text
// is not part of any pod. While a port that the text names is missing, for example until a rollout, the earlier text stays. A flag
// in it is removed, because players read the status.
func connectionInfo(out Outcome) string {
	s := &out.Instance.Status
	switch {
	case len(s.Services) == 0:
		return ""
	case out.Challenge == nil:
		return s.ConnectionInfo
	case out.Challenge.Spec.ConnectionInfo == "":
		return ""
	}
	filled := rules.FillConnectionInfo(out.Challenge.Spec.ConnectionInfo, s.Services)
	return cmp.Or(redact.NewSet(out.Instance.Spec.Flag, out.Challenge.Spec.Flag).Remove(filled), s.ConnectionInfo)
}

// keepState leaves the conditions of an instance that ran while it adopts its Challenge or prepares another namespace: only
// the next reconciliation writes objects, so this one knows nothing new about them. namespaceTokenHash is "" for an adoption.
func keepState(s *bergv1.ChallengeInstanceStatus, namespaceTokenHash string) reconcile.Ready {
	if namespaceTokenHash != "" {
		s.NamespaceUID, s.NamespaceTokenHash = "", namespaceTokenHash
	}
	ready := reconcile.Ready{Status: metav1.ConditionFalse, Stalled: s.Phase == bergv1.PhaseFailed}
	if c := meta.FindStatusCondition(s.Conditions, reconcile.ConditionReady); c != nil {
		ready.Status, ready.Reason, ready.Message = c.Status, c.Reason, c.Message
	}
	return ready
}

// Adoption is the content that an instance is built from, from the next reconciliation on: a status names it before any
// object is written.
type Adoption struct {
	Snapshot manifests.Snapshot
	// Revision is the name of the Secret that has the content.
	Revision string
}

// pin writes an adoption into the status.
func pin(o *Observed, adopted Adoption, cfg config.Challenge) {
	s := &o.Instance.Status
	s.Images = refreshed(o, adopted.Snapshot)
	s.ChallengeRevision, s.Source = adopted.Revision, o.Instance.Labels[bergv1.LabelSource]
	s.DefaultTimeout = &metav1.Duration{Duration: cfg.Timeout}
	s.Services = manifests.KeepWanted(s.Services, adopted.Snapshot.Containers)
	s.ChallengeGeneration = o.Challenge.Generation
	s.ObservedRollout = o.Instance.Annotations[bergv1.AnnotationRollout]
	o.Pinned, o.Unreadable = &adopted.Snapshot, nil
}

// unconnected returns the message of an instance whose pods are ready and whose ports were not connected to yet. The former
// message stays: the connection takes milliseconds, and another text would cost every start one more write.
func unconnected(conditions []metav1.Condition) string {
	before := meta.FindStatusCondition(conditions, bergv1.ConditionPodsReady)
	if before != nil && before.Reason == bergv1.ReasonStarting {
		return before.Message
	}
	return "No connection to its public ports has succeeded yet"
}

// namespaceUID returns the UID of the namespace that belongs to the instance, "" if there is none.
func namespaceUID(out Outcome) types.UID {
	if ns := out.Namespace; out.Written.NamespaceUID == "" && ns != nil && manifests.NamespaceOwner(out.Instance).Owns(ns) {
		return ns.UID
	}
	return out.Written.NamespaceUID
}

// computePhase returns the phase of a live instance. late says that its start deadline
// has passed.
func computePhase(out Outcome, late bool) bergv1.Phase {
	p, s := out.Problem, out.Instance.Status
	switch {
	case p != nil && (p.Class == outcome.Blocked || p.Class == outcome.External), late:
		return bergv1.PhaseFailed
	case p != nil && (p.Reason == bergv1.ReasonOwnerBusy || s.InstanceID == ""):
		return bergv1.PhasePending
	case p != nil && (p.Class == outcome.Retry || p.Class == outcome.InProgress) && s.ReadyAt != nil && !Unconfined(p):
		return bergv1.PhaseRunning // a repair need not affect its pods
	case p != nil:
		return bergv1.PhaseCreating
	case s.ReadyAt == nil:
		return bergv1.PhaseStarting
	default:
		return bergv1.PhaseRunning
	}
}

// SetConditions sets conditions without the flag. It removes the flag before messages are shortened: a flag that is cut off
// would not be found.
func SetConditions(instance *bergv1.ChallengeInstance, now time.Time, wanted ...metav1.Condition) {
	redactConditions(wanted, instance.Spec.Flag)
	conditions.Upsert(&instance.Status.Conditions, instance.Generation, now, wanted...)
}

// computeReady is True while the instance is what kubectl wait and GitOps tools wait for: Running with all pods ready. A
// Failed instance is Stalled.
func computeReady(out Outcome, blocked *obstacle, late bool, start, health metav1.Condition) reconcile.Ready {
	s, decides := out.Instance.Status, health
	switch {
	case out.Problem != nil && !late && s.Phase != bergv1.PhaseRunning:
		decides.Reason, decides.Message = out.Problem.Reason, out.Problem.Message
	case blocked != nil && s.ReadyAt == nil && !late && start.Reason == bergv1.ReasonWaiting:
		decides.Reason, decides.Message = blocked.reason, blocked.message
	case s.ReadyAt == nil || late:
		decides = start
	}
	ready := reconcile.Ready{Status: metav1.ConditionFalse, Reason: decides.Reason, Message: decides.Message, Stalled: s.Phase == bergv1.PhaseFailed}
	if s.Phase == bergv1.PhaseRunning && health.Status == metav1.ConditionTrue {
		ready.Status = metav1.ConditionTrue
	}
	ready.Message = redact.NewRedactor(out.Instance.Spec.Flag)(ready.Message)
	return ready
}

// buildConditions returns the conditions of the steps.
func buildConditions(out Outcome, blocked *obstacle) []metav1.Condition {
	all := make([]metav1.Condition, 0, len(steps)+4)
	stopped := len(steps)
	if out.Problem != nil {
		stopped = slices.Index(steps, out.Problem.Condition)
	}
	for i, step := range steps {
		switch {
		case step == bergv1.ConditionAdmitted && i != stopped:
			all = append(all, admissionConditions(out)...)
		case i > stopped:
			all = append(all, Condition(step, metav1.ConditionUnknown, bergv1.ReasonWaiting, waitsFor(out.Problem)))
		case i == stopped && out.Problem.Class == outcome.InProgress:
			all = append(all, Condition(step, metav1.ConditionUnknown, out.Problem.Reason, out.Problem.Message))
		case i == stopped:
			all = append(all, Condition(step, metav1.ConditionFalse, out.Problem.Reason, out.Problem.Message))
		case blocked != nil && step == blocked.condition:
			all = append(all, blocked.newCondition())
		case step == bergv1.ConditionChallengeFound && Withdrawn(out.Candidate):
			all = append(all, Condition(step, metav1.ConditionFalse, bergv1.ReasonChallengeMissing,
				fmt.Sprintf("Challenge %s was deleted. The instance keeps running as it was started", out.Key)))
		default:
			reason, message := doneStep(step, out)
			all = append(all, Condition(step, metav1.ConditionTrue, reason, message))
		}
	}
	return all
}

func waitsFor(p *outcome.Problem) string { return "Waits for " + p.Condition }

// doneStep returns the reason and the message of a step without a problem.
func doneStep(step string, out Outcome) (reason, message string) {
	pinned := out.Pinned
	switch step {
	case bergv1.ConditionChallengeFound:
		return bergv1.ReasonFound, "The Challenge exists and can be run"
	case bergv1.ConditionFlagValidation:
		if pinned != nil && manifests.NeedsFlag(pinned.Containers) {
			return bergv1.ReasonFlagProvided, "The Challenge requires a flag and spec.flag is set"
		}
		return bergv1.ReasonFlagNotNeeded, "The Challenge requires no dynamic flag"
	case bergv1.ConditionNetworkPolicyCreated:
		return describePolicies(out)
	case bergv1.ConditionRoutesCreated:
		if pinned != nil && !HasRoutes(pinned.Containers) {
			return bergv1.ReasonNotNeeded, "No port of the Challenge is routed"
		}
		return bergv1.ReasonCreated, describeRoutes(out)
	}
	return bergv1.ReasonCreated, "In place"
}

// describePolicies also says when the cluster does not enforce the policies. Until this process has checked that, the
// status keeps its earlier statement.
func describePolicies(out Outcome) (reason, message string) {
	message = "In place: " + policyKinds(out.Policies)
	before := meta.FindStatusCondition(out.Instance.Status.Conditions, bergv1.ConditionNetworkPolicyCreated)
	wasIgnored := before != nil && before.Reason == bergv1.ReasonNotEnforced
	if out.Enforced == metav1.ConditionFalse || wasIgnored && out.Enforced != metav1.ConditionTrue {
		return bergv1.ReasonNotEnforced, message + ". The cluster does not enforce it, so other instances and the cluster can be reached: kubectl berg doctor"
	}
	return bergv1.ReasonCreated, message
}

func policyKinds(p config.NetworkPolicy) string {
	switch p {
	case config.NetworkPolicyCilium:
		return ciliumv2.CNPKindDefinition
	case config.NetworkPolicyKubernetes:
		return "NetworkPolicy"
	default:
		return "NetworkPolicy and " + ciliumv2.CNPKindDefinition
	}
}

// podsReady says whether all pods were ready once.
func podsReady(out Outcome, pods podsSummary, blocked *obstacle, late bool, cfg config.Challenge) metav1.Condition {
	status, reason, message := metav1.ConditionUnknown, bergv1.ReasonStarting, pods.message
	if pods.ready && blocked != nil {
		message = blocked.message
	}
	switch {
	case out.Instance.Status.ReadyAt != nil:
		status, reason, message = metav1.ConditionTrue, bergv1.ReasonReady, "All pods were ready"
	case late:
		if out.Problem != nil {
			message = waitsFor(out.Problem)
		}
		status, reason = metav1.ConditionFalse, bergv1.ReasonStartDeadline
		message = fmt.Sprintf("Not ready within %s of the start. %s", cfg.StartDeadline, message)
	case out.Problem != nil:
		reason, message = bergv1.ReasonWaiting, waitsFor(out.Problem)
	case pods.broken != "":
		status, reason = metav1.ConditionFalse, pods.broken
	case pods.ready && blocked != nil:
		reason, message = bergv1.ReasonWaiting, "The pods are ready. Waits for "+blocked.condition
	}
	return Condition(bergv1.ConditionPodsReady, status, reason, message)
}

// healthy says whether all pods of an instance that was ready are ready now, and its addresses are served.
func healthy(out Outcome, pods podsSummary, blocked *obstacle) metav1.Condition {
	status, reason, message := metav1.ConditionFalse, cmp.Or(pods.broken, bergv1.ReasonPodsNotReady), pods.message
	switch {
	case out.Instance.Status.ReadyAt == nil:
		status, reason, message = metav1.ConditionUnknown, bergv1.ReasonStarting, "The instance has not been ready yet"
	case out.Problem != nil && (out.Problem.Class != outcome.Retry || out.Pinned == nil):
		status, reason, message = metav1.ConditionUnknown, bergv1.ReasonWaiting, waitsFor(out.Problem)
	case pods.ready && blocked != nil:
		reason, message = blocked.reason, blocked.message
	case pods.ready:
		status, reason, message = metav1.ConditionTrue, bergv1.ReasonReady, "All pods are ready"
	}
	return Condition(bergv1.ConditionHealthy, status, reason, message)
}

// upToDate compares the content of the start to the current Challenge and configuration.
func upToDate(o Observed, cfg config.Challenge) metav1.Condition {
	c := o.Candidate
	status, reason, message := metav1.ConditionFalse, bergv1.ReasonChallengeChanged,
		"The Challenge was changed after the start. To adopt the change, set the annotation "+bergv1.AnnotationRollout+" to a new value; affected pods restart"
	switch {
	case c.Unreadable != nil:
		status, reason, message = metav1.ConditionUnknown, bergv1.ReasonRevisionMissing, fmt.Sprintf("The content of the start cannot be read: %s", c.Unreadable)
	case c.Pinned == nil:
		status, reason, message = metav1.ConditionUnknown, bergv1.ReasonWaiting, "The instance has not been started"
	case c.Challenge == nil:
		status, reason, message = metav1.ConditionUnknown, bergv1.ReasonChallengeMissing, "The Challenge no longer exists"
	case c.Pinned.Matches(c.Challenge) && defaultsCurrent(c.Pinned, cfg, c.Instance):
		if names := replaced(o); len(names) > 0 {
			reason, message = bergv1.ReasonImageChanged, fmt.Sprintf("Newer instances run another image under the same name: %s. "+
				"To adopt it, set the annotation %s to a new value; affected pods restart", strings.Join(names, ", "), bergv1.AnnotationRollout)
			break
		}
		status, reason, message = metav1.ConditionTrue, bergv1.ReasonUpToDate, "The instance matches the Challenge"
	case c.Pinned.Matches(c.Challenge):
		reason, message = bergv1.ReasonConfigurationChanged,
			"The configuration of the operator was changed after the start. To adopt the change, set the annotation "+bergv1.AnnotationRollout+" to a new value; affected pods restart"
	default:
		if p := checkAdoption(c, cfg); p != nil {
			reason, message = p.Reason, "The Challenge was changed after the start and cannot be adopted: "+p.Message
		}
	}
	return Condition(bergv1.ConditionUpToDate, status, reason, message)
}

// pendingChanges returns the changes that a rollout would make because the Challenge was edited, nil for none.
func pendingChanges(c Candidate, current metav1.Condition) *bergv1.PendingChanges {
	if current.Reason != bergv1.ReasonChallengeChanged {
		return nil
	}
	return c.Pinned.Changes(c.Challenge)
}

// HasRoutes reports whether a port of some containers is reached through the Gateway.
func HasRoutes(containers []bergv1.Container) bool {
	for _, c := range containers {
		for _, p := range c.Ports {
			if p.Routed() {
				return true
			}
		}
	}
	return false
}

// redactConditions removes the flag from messages.
func redactConditions(conditions []metav1.Condition, flag string) {
	redacted := redact.NewRedactor(flag)
	for i := range conditions {
		conditions[i].Message = redacted(conditions[i].Message)
	}
}

// defaultsCurrent reports whether the configuration equals the stored one, as far as it
// concerns the instance: the default timeout does not if spec.timeout is set.
func defaultsCurrent(pinned *manifests.Snapshot, cfg config.Challenge, instance *bergv1.ChallengeInstance) bool {
	if !equality.Semantic.DeepEqual(pinned.Defaults.Resolved(), cfg.Resolved()) {
		return false
	}
	_, own := ownTimeout(instance)
	pinnedTimeout := instance.Status.DefaultTimeout
	return own || pinnedTimeout == nil || pinnedTimeout.Duration == cfg.Timeout
}
