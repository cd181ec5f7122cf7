package instances

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/platform/flags"
)

// Instance is the platform's view of a ChallengeInstance.
type Instance struct {
	// UID of the ChallengeInstance.
	UID types.UID `json:"-"`
	// Name of the ChallengeInstance.
	Name string `json:"name"`
	// Challenge is the ID of the registration, Source the user or team.
	Challenge string     `json:"challenge"`
	Source    string     `json:"source"`
	State     view.State `json:"state"`
	// Reason is a sentence about an instance that does not run, for players. "": it runs.
	Reason string `json:"reason,omitempty"`
	// Created, Since (when it ran for the first time), Renewed and Until. Zero: not known yet, or never.
	Created time.Time `json:"created"`
	Since   time.Time `json:"since,omitzero"`
	Renewed time.Time `json:"renewed"`
	Until   time.Time `json:"until,omitzero"`
	// UntilText is Until as the platform sent it, "" if the end is another one.
	UntilText string `json:"-"`
	// Endpoints at which players reach it. Empty until it runs.
	Endpoints []bergv1.ServiceEndpoint `json:"endpoints"`
	// Connection is the author's text about how players connect. "": the endpoints are shown.
	Connection string `json:"connection,omitempty"`
	// Stuck: waiting for seconds does not help, and Reason says why.
	Stuck bool `json:"-"`
	// NeedsPerson: it does not start until a person acts.
	NeedsPerson bool `json:"-"`
	// Limited: it waits because a limit of its source is reached.
	Limited bool `json:"-"`
	// Flags that the instance accepts. Logs and metrics never have them.
	Flags []string `json:"-"`
}

// newInstance returns the platform's view of an object. owner is the Challenge with the static flag; it may be nil.
func newInstance(i *bergv1.ChallengeInstance, r Registration, owner *bergv1.Challenge) Instance {
	row := view.NewRow(i)
	v := Instance{
		UID: row.UID, Name: row.Name, Challenge: r.ID, Source: row.Source,
		State: row.State, Until: row.Expires, Created: i.CreationTimestamp.Time, Renewed: renewedAt(i), Endpoints: []bergv1.ServiceEndpoint{},
		Limited: sourceLimited(i),
	}
	switch {
	case i.Spec.Flag != "":
		v.Flags = []string{i.Spec.Flag}
	case owner != nil && !flags.Needed(owner) && owner.Spec.Flag != "":
		v.Flags = []string{owner.Spec.Flag}
	}
	if until := r.latestEnd(); until != nil && v.Until.Equal(until.Time) {
		v.Until, v.UntilText = r.Until, r.UntilText
	}
	switch row.State {
	case view.Running:
		v.Connection = i.Status.ConnectionInfo
		if v.Since = row.Ready; v.Since.IsZero() {
			v.Since = row.Created
		}
		v.Endpoints = slices.Clone(row.Services)
	case view.Ending:
		v.Reason = "The instance is stopping."
	case view.Starting, view.Waiting, view.Failed:
		explained := view.Explain(row.Cause)
		v.Reason, v.NeedsPerson = explained.Players, explained.NeedsPerson && !explained.Waits || row.State == view.Failed
		v.Stuck = v.NeedsPerson || explained.NeedsPerson || explained.Waits && row.Cause != bergv1.CauseOwnerBusy
	}
	return v
}

// MayRunSoon reports whether waiting for seconds may help. An instance beyond a limit of its source is decided within seconds, too.
func (i Instance) MayRunSoon() bool {
	return (i.State == view.Starting || i.State == view.Waiting) && (!i.Stuck || i.Limited)
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

// limitReached returns the limit that an instance waits for, in the operator's words.
func limitReached(i *bergv1.ChallengeInstance) string {
	text := "a limit of the source is reached"
	if problem := view.FirstProblem(i); problem != nil {
		text, _, _ = strings.Cut(problem.Message, ". ") // the next sentence says that it starts automatically, and this one will not
	}
	return strings.TrimSuffix(strings.TrimPrefix(text, "Queued: "), ".")
}

// sourceLimits are the operator's settings that limit a source. The message of the condition Admitted names the limit
// that is reached.
var sourceLimits = []string{"SOURCE_MAX_INSTANCES", "SOURCE_BUDGET"}

// sourceLimited reports whether an instance waits because of a limit of its source.
func sourceLimited(i *bergv1.ChallengeInstance) bool {
	c := meta.FindStatusCondition(i.Status.Conditions, bergv1.ConditionAdmitted)
	return i.Status.InstanceID == "" && c != nil && c.Reason == bergv1.ReasonQueued &&
		slices.ContainsFunc(sourceLimits, func(name string) bool { return strings.Contains(c.Message, name) })
}

// live sorts the instances of a pair: current is the oldest live one, superseded are younger live ones, ending are
// being deleted. A superseded instance exists only for the moment between two concurrent creations and the deletion of
// the younger one. The order is the same in each replica, so all of them keep the same instance.
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
		case view.IsEnding(i):
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
