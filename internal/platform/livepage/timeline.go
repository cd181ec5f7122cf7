package livepage

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

// Moment is a line of the timeline of an instance.
type Moment struct {
	At           time.Time
	What, Detail string
	// Bad: it is a warning, or a condition that shows a problem.
	Bad bool
}

// timeline returns the known events of an instance, by time: its creation, the stages of its start, its conditions and
// its events.
func timeline(r *view.Row, events []Event) (all []Moment) {
	all = append(all, Moment{At: r.Created, What: "Created"})
	for _, s := range r.Stages {
		all = append(all, Moment{At: s.End, What: "Stage " + s.Name, Detail: "it took " + took(s.Took)})
	}
	if !r.Ready.IsZero() {
		all = append(all, Moment{At: r.Ready, What: "Running", Detail: "all pods were ready for the first time"})
	}
	for _, c := range r.Conditions {
		if !c.LastTransitionTime.IsZero() {
			all = append(all, Moment{
				At: c.LastTransitionTime.Time, What: c.Type + " is " + string(c.Status), Detail: joined(c.Reason, c.Message), Bad: isBad(&c),
			})
		}
	}
	return inOrder(append(all, eventMoments(events)...))
}

// isBad reports whether a condition shows a problem. Most conditions are False for a moment in every start, and NamespaceDeleted is False
// until the end.
func isBad(c *metav1.Condition) bool {
	return c.Status == metav1.ConditionFalse && !view.Reason(c.Reason).IsNormal() &&
		(slices.Contains(bergv1.ProblemConditions, c.Type) || c.Reason == bergv1.ReasonDeletionBlocked)
}

func eventMoments(events []Event) (all []Moment) {
	for _, e := range events {
		m := Moment{At: e.Last, What: "Event " + e.Reason, Detail: e.Message, Bad: e.Warning && !view.Reason(e.Reason).IsNormal()}
		if e.Count > 1 {
			m.Detail = strings.TrimSpace(fmt.Sprintf("%s (%d times since %s)", m.Detail, e.Count, formatClock(e.First)))
		}
		all = append(all, m)
	}
	return all
}

func inOrder(all []Moment) []Moment {
	slices.SortStableFunc(all, func(a, b Moment) int { return a.At.Compare(b.At) })
	return all
}

func joined(reason, message string) string {
	if reason == "" || message == "" {
		return reason + message
	}
	return reason + ": " + message
}
