// Package invariants says what can never be in the status of a resource,
// happened to it.
package invariants

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	kit "github.com/bergctf/berg-operator/internal/kit/conditions"
)

// buildSteps are the conditions of a build.
var buildSteps = []string{
	bergv1.ConditionChallengeFound, bergv1.ConditionFlagValidation, bergv1.ConditionNamespaceCreated, bergv1.ConditionNetworkPolicyCreated,
	bergv1.ConditionServicesCreated, bergv1.ConditionRoutesCreated, bergv1.ConditionDeploymentsCreated,
}

// Violations returns what cannot be in a version of an instance, given the
// one before it.
func Violations(before, after *bergv1.ChallengeInstance) error { //nolint:gocyclo // a list of rules
	s := after.Status
	var errs []error
	must := func(holds bool, format string, args ...any) {
		if !holds {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	is := func(conditionType string, status metav1.ConditionStatus) bool {
		return meta.IsStatusConditionPresentAndEqual(s.Conditions, conditionType, status)
	}
	built := !slices.ContainsFunc(buildSteps, func(step string) bool {
		// A live instance outlives its Challenge.
		withdrawn := step == bergv1.ConditionChallengeFound && reasonOf(after, step) == bergv1.ReasonChallengeMissing && s.ChallengeRevision != ""
		return !is(step, metav1.ConditionTrue) && !withdrawn
	})

	errs = append(errs, kit.Violations(before.Status.Conditions, s.Conditions, after.Generation))
	must(slices.Contains(bergv1.Phases, s.Phase), "phase %q", s.Phase)
	must(s.ObservedGeneration <= after.Generation, "observedGeneration %d, generation %d", s.ObservedGeneration, after.Generation)
	must(s.ObservedGeneration == 0 || len(s.Conditions) > 0, "observed without conditions")
	for _, set := range []struct {
		field   string
		was, is string
	}{
		{field: "instanceId", was: before.Status.InstanceID, is: s.InstanceID},
		{field: "namespace", was: before.Status.Namespace, is: s.Namespace},
		{field: "startedAt", was: text(before.Status.StartedAt), is: text(s.StartedAt)},
		{field: "readyAt", was: text(before.Status.ReadyAt), is: text(s.ReadyAt)},
		{field: "terminatedAt", was: text(before.Status.TerminatedAt), is: text(s.TerminatedAt)},
	} {
		must(set.was == "" || set.was == set.is, "%s changed from %s to %q", set.field, set.was, set.is)
	}
	started, prepared := s.InstanceID != "", after.Labels[bergv1.LabelPrepared] != ""
	must((started && !prepared) == (s.StartedAt != nil), "instanceId %q, startedAt %s", s.InstanceID, text(s.StartedAt))
	frozen := reasonOf(after, bergv1.ConditionNamespaceDeleted) == bergv1.ReasonFrozen || after.DeletionTimestamp != nil && after.Annotations[bergv1.AnnotationFrozen] != ""
	must((started && !prepared && !frozen) == (s.ExpiresAt != nil), "startedAt %s, expiresAt %s", text(s.StartedAt), text(s.ExpiresAt))
	must(!started || !is(bergv1.ConditionAdmitted, metav1.ConditionFalse), "started though it is not admitted")
	must(s.ReadyAt == nil || started && (prepared || !s.ReadyAt.Before(s.StartedAt)), "startedAt %s, readyAt %s", text(s.StartedAt), text(s.ReadyAt))
	must((s.Phase == bergv1.PhaseTerminated) == is(bergv1.ConditionNamespaceDeleted, metav1.ConditionTrue), "NamespaceDeleted")
	must((s.Phase == bergv1.PhaseTerminated) == (s.TerminatedAt != nil), "terminatedAt %s", text(s.TerminatedAt))
	must((s.ReadyAt != nil) == is(bergv1.ConditionPodsReady, metav1.ConditionTrue), "PodsReady, and readyAt is %s", text(s.ReadyAt))

	withoutCause := s.Phase == bergv1.PhaseRunning || s.Phase == bergv1.PhaseTerminating || s.Phase == bergv1.PhaseTerminated
	must(s.ObservedGeneration == 0 || (s.Cause == "") == withoutCause, "cause %q in the phase %s", s.Cause, s.Phase)
	errs = append(errs, startTimes(before.Status, s), readiness(after))

	switch s.Phase {
	case bergv1.PhasePending:
		must(s.ObservedGeneration == 0 || waits(after), "it waits for nothing")
	case bergv1.PhaseCreating:
		must(started && !built, "nothing is being created")
	case bergv1.PhaseStarting:
		must(started && (built || unserved(after)) && s.ReadyAt == nil, "it is not starting")
	case bergv1.PhaseRunning:
		must(started && (built || mayBeIncomplete(after)) && s.ReadyAt != nil, "it does not run")
		must(!is(bergv1.ConditionHealthy, metav1.ConditionUnknown) || unreadable(after), "its health is not known")
	case bergv1.PhaseFailed:
		must(slices.ContainsFunc(append([]string{bergv1.ConditionPodsReady}, buildSteps...), func(c string) bool { return is(c, metav1.ConditionFalse) }), "nothing has failed")
	case bergv1.PhaseTerminating, bergv1.PhaseTerminated:
		must(after.DeletionTimestamp != nil, "it is not being deleted")
		must(is(bergv1.ConditionHealthy, metav1.ConditionFalse), "it is healthy")
	}
	return errors.Join(errs...)
}

// readiness returns what Ready and Stalled say against the phase.
func readiness(after *bergv1.ChallengeInstance) error {
	s := after.Status
	is := func(conditionType string) bool { return meta.IsStatusConditionTrue(s.Conditions, conditionType) }
	if is(bergv1.ConditionReady) != (s.Phase == bergv1.PhaseRunning && is(bergv1.ConditionHealthy)) {
		return fmt.Errorf("ready is %v in the phase %s, healthy is %v", is(bergv1.ConditionReady), s.Phase, is(bergv1.ConditionHealthy))
	}
	if is(bergv1.ConditionStalled) != (s.Phase == bergv1.PhaseFailed) && after.DeletionTimestamp == nil {
		return fmt.Errorf("stalled is %v in the phase %s", is(bergv1.ConditionStalled), s.Phase)
	}
	return nil
}

// startTimes returns what cannot be in the times of a start: they follow each other, and what
// was reported stays.
func startTimes(before, after bergv1.ChallengeInstanceStatus) error {
	was, is := bergv1.StartTimes{}, bergv1.StartTimes{}
	if before.Start != nil {
		was = *before.Start
	}
	if after.Start != nil {
		is = *after.Start
	}
	var errs []error
	var last time.Time
	for _, stage := range []struct {
		name    string
		was, is *metav1.MicroTime
	}{
		{"namespaceCreatedAt", was.NamespaceCreatedAt, is.NamespaceCreatedAt},
		{"objectsWrittenAt", was.ObjectsWrittenAt, is.ObjectsWrittenAt},
		{"scheduledAt", was.ScheduledAt, is.ScheduledAt},
		{"sandboxesCreatedAt", was.SandboxesCreatedAt, is.SandboxesCreatedAt},
		{"imagesPulledAt", was.ImagesPulledAt, is.ImagesPulledAt},
		{"containersStartedAt", was.ContainersStartedAt, is.ContainersStartedAt},
		{"podsReadyAt", was.PodsReadyAt, is.PodsReadyAt},
	} {
		moves := stage.name == "containersStartedAt" && before.ReadyAt == nil
		switch {
		case stage.was != nil && (stage.is == nil || stage.is.Before(stage.was) || !moves && !stage.is.Equal(stage.was)):
			errs = append(errs, fmt.Errorf("start.%s changed from %s to %s", stage.name, stage.was, stage.is))
		case stage.is != nil && stage.is.Time.Before(last):
			errs = append(errs, fmt.Errorf("start.%s is %s, and the stage above it ended at %s", stage.name, stage.is, last))
		case stage.is != nil:
			last = stage.is.Time
		}
	}
	return errors.Join(errs...)
}

// waits reports whether a condition says what keeps an instance from being built.
func waits(i *bergv1.ChallengeInstance) bool {
	return reasonOf(i, bergv1.ConditionChallengeFound) == bergv1.ReasonFrozen ||
		reasonOf(i, bergv1.ConditionAdmitted) == bergv1.ReasonQueued ||
		slices.Contains([]string{bergv1.ReasonOwnerBusy, bergv1.ReasonRefused}, reasonOf(i, bergv1.ConditionNamespaceCreated))
}

// mayBeIncomplete reports whether an instance runs although not all of its objects are known to be in place.
func mayBeIncomplete(i *bergv1.ChallengeInstance) bool {
	return beingRepaired(i) || unreadable(i) || unserved(i)
}

// unserved reports whether all objects of an instance are in place, and players do not reach it.
func unserved(i *bergv1.ChallengeInstance) bool {
	reasons := []string{bergv1.ReasonGatewayNotReady, bergv1.ReasonRouteRefused, bergv1.ReasonRoutePending, bergv1.ReasonPodUnreached, bergv1.ReasonNoEndpoints, bergv1.ReasonServiceMissing}
	return slices.Contains(reasons, reasonOf(i, bergv1.ConditionRoutesCreated)) || slices.Contains(reasons, reasonOf(i, bergv1.ConditionServicesCreated))
}

// unreadable: without the content of its start the operator does not know the containers of an instance.
func unreadable(i *bergv1.ChallengeInstance) bool {
	return reasonOf(i, bergv1.ConditionChallengeFound) == bergv1.ReasonRevisionMissing
}

// beingRepaired reports whether the API server refuses to put something back for now.
func beingRepaired(i *bergv1.ChallengeInstance) bool {
	return slices.ContainsFunc(buildSteps, func(step string) bool {
		return meta.IsStatusConditionFalse(i.Status.Conditions, step) &&
			slices.Contains([]string{bergv1.ReasonRefused, bergv1.ReasonContested, bergv1.ReasonWriteFailed, bergv1.ReasonOutOfNodePorts, bergv1.ReasonOutOfAddresses}, reasonOf(i, step))
	})
}

func reasonOf(i *bergv1.ChallengeInstance, conditionType string) string {
	if c := meta.FindStatusCondition(i.Status.Conditions, conditionType); c != nil {
		return c.Reason
	}
	return ""
}

func text(t *metav1.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
