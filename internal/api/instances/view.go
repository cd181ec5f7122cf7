package instances

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/api/flags"
)

// State is how far an instance is, for a platform.
type State string

// The states of an instance.
const (
	Starting State = "starting"
	Running  State = "running"
	Stopping State = "stopping"
	Errored  State = "errored"
)

// Instance is one as a platform sees it.
type Instance struct {
	// UID of the ChallengeInstance.
	UID types.UID `json:"-"`
	// Name of the ChallengeInstance.
	Name string `json:"name"`
	// Challenge is the ID of the registration, Source the user or team.
	Challenge string `json:"challenge"`
	Source    string `json:"source"`
	State     State  `json:"state"`
	// Reason is a sentence about an instance that does not run, for players. "": it runs.
	Reason string `json:"reason,omitempty"`
	// Created, Since (when it ran for the first time), Renewed and Until. Zero: not known yet, or never.
	Created time.Time `json:"created"`
	Since   time.Time `json:"since,omitzero"`
	Renewed time.Time `json:"renewed"`
	Until   time.Time `json:"until,omitzero"`
	// Endpoints at which players reach it. Empty until it runs.
	Endpoints []bergv1.ServiceEndpoint `json:"endpoints"`
	// Limited: it waits because a limit of its source is reached.
	Limited bool `json:"-"`
	// Flags that the instance accepts. Logs and metrics never have them.
	Flags []string `json:"-"`
}

// view returns what a platform sees of an object. challenge is the ID of the registration; owner, if it is there, is
// the Challenge, for its static flag.
func view(i *bergv1.ChallengeInstance, challenge string, owner *bergv1.Challenge) Instance {
	v := Instance{
		UID: i.UID, Name: i.Name, Challenge: challenge, Source: i.Labels[bergv1.LabelSource],
		State: instanceState(i), Created: i.CreationTimestamp.Time, Renewed: renewedAt(i), Endpoints: []bergv1.ServiceEndpoint{},
		Limited: sourceLimited(i),
	}
	switch {
	case i.Spec.Flag != "":
		v.Flags = []string{i.Spec.Flag}
	case owner != nil && !flags.Needed(owner) && owner.Spec.Flag != "":
		v.Flags = []string{owner.Spec.Flag}
	}
	if i.Status.ExpiresAt != nil {
		v.Until = i.Status.ExpiresAt.Time
	}
	if v.State == Running {
		v.Since = i.CreationTimestamp.Time
		if i.Status.ReadyAt != nil {
			v.Since = i.Status.ReadyAt.Time
		}
		v.Endpoints = slices.Clone(i.Status.Services)
		return v
	}
	v.Reason = sentence(i)
	return v
}

// Ended reports whether an instance is being deleted, or is about to be.
func Ended(i *bergv1.ChallengeInstance) bool {
	return i.DeletionTimestamp != nil || i.Spec.TerminationReason != ""
}

func instanceState(i *bergv1.ChallengeInstance) State {
	switch {
	case Ended(i):
		return Stopping
	case i.Status.Phase == bergv1.PhaseRunning:
		return Running
	case i.Status.Phase == bergv1.PhaseFailed:
		return Errored
	default:
		return Starting
	}
}

func renewedAt(i *bergv1.ChallengeInstance) time.Time {
	if t, err := time.Parse(time.RFC3339, i.Annotations[AnnotationRenewedAt]); err == nil {
		return t
	}
	if i.Status.StartedAt != nil {
		return i.Status.StartedAt.Time
	}
	return i.CreationTimestamp.Time
}

// sentences are what players read of each cause. They name nothing of the cluster.
var sentences = map[bergv1.Cause]string{
	bergv1.CauseNotReadyYet:      "The instance is starting.",
	bergv1.CauseQueued:           "The instance waits in the queue: all places are taken. It starts automatically.",
	bergv1.CauseOwnerBusy:        "The instance waits until the previous one is gone. It starts automatically.",
	bergv1.CauseFrozen:           "The organisers have paused this challenge. The instance starts when they resume it.",
	bergv1.CauseNoCapacity:       "The servers are full. The instance starts automatically when one has room.",
	bergv1.CauseImageUnavailable: "The instance cannot start because its image is not available. Tell the organisers.",
	bergv1.CauseCrashing:         "The instance cannot start because a program in it fails. Tell the organisers.",
	bergv1.CauseRefused:          "The cluster refuses the instance. Tell the organisers.",
	bergv1.CauseAddressPending:   "The instance has no address yet.",
	bergv1.CauseInvalid:          "The challenge has an error. Tell the organisers.",
}

// sentence says why an instance does not run, for players.
func sentence(i *bergv1.ChallengeInstance) string {
	if Ended(i) {
		return "The instance is stopping."
	}
	return cmp.Or(sentences[i.Status.Cause], sentences[bergv1.CauseNotReadyYet])
}

// Detail says why an instance does not run, in the operator's words: the message of the first condition that shows a problem.
func Detail(i *bergv1.ChallengeInstance) string {
	for _, kind := range bergv1.ProblemConditions {
		if c := meta.FindStatusCondition(i.Status.Conditions, kind); c != nil && c.Status == "False" {
			return c.Message
		}
	}
	return ""
}

// detail is Detail as a part of a sentence.
func detail(i *bergv1.ChallengeInstance) string { return strings.TrimSuffix(Detail(i), ".") }

// sourceLimits are the operator's settings that limit a source. The condition Admitted names the one that is reached.
var sourceLimits = []string{"SOURCE_MAX_INSTANCES", "SOURCE_BUDGET"}

// sourceLimited reports whether an instance waits because of a limit of its source.
func sourceLimited(i *bergv1.ChallengeInstance) bool {
	c := meta.FindStatusCondition(i.Status.Conditions, bergv1.ConditionAdmitted)
	return i.Status.InstanceID == "" && c != nil && c.Reason == bergv1.ReasonQueued &&
		slices.ContainsFunc(sourceLimits, func(name string) bool { return strings.Contains(c.Message, name) })
}

// live returns the one instance of a pair that counts, and those that end. Of two that live the older one counts; it
// can only be so for the moment in which the API takes the younger one back.
func live(all []bergv1.ChallengeInstance) (current *bergv1.ChallengeInstance, superseded, ending []*bergv1.ChallengeInstance) {
	sorted := make([]*bergv1.ChallengeInstance, 0, len(all))
	for n := range all {
		sorted = append(sorted, &all[n])
	}
	slices.SortFunc(sorted, func(a, b *bergv1.ChallengeInstance) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, i := range sorted {
		switch {
		case Ended(i):
			ending = append(ending, i)
		case current == nil:
			current = i
		default:
			superseded = append(superseded, i)
		}
	}
	return current, superseded, ending
}

func sortInstances(all []Instance) {
	slices.SortFunc(all, func(a, b Instance) int {
		return cmp.Or(cmp.Compare(len(a.Challenge), len(b.Challenge)), strings.Compare(a.Challenge, b.Challenge), strings.Compare(a.Source, b.Source))
	})
}
