package prepull

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

const (
	// reportInterval is how often the progress of one Challenge is written at most.
	reportInterval = 5 * time.Second
	// maxReported is how many failures are listed one by one.
	maxReported = 3
)

// statusChange is the kind of change of a status.
type statusChange int

const (
	// unchanged: nothing has.
	unchanged statusChange = iota
	// progress: more pulls are done than before.
	progress
	// changed: status, reason or generation differ.
	changed
)

// computeStatus writes the condition of a Challenge, as w desires it, and returns the kind of change.
func computeStatus(c *bergv1.Challenge, w *Desired, o Observed, l *store, now time.Time) statusChange {
	before := c.Status.DeepCopy()
	old := apimeta.FindStatusCondition(before.Conditions, bergv1.ChallengeConditionImagesReady)
	switch w.Window.Stage {
	case never:
		apimeta.RemoveStatusCondition(&c.Status.Conditions, bergv1.ChallengeConditionImagesReady)
	case over:
		// A condition about completed pulls stays true. A Challenge that came too late gets no condition.
		if old != nil && (old.Status != metav1.ConditionTrue || old.ObservedGeneration != c.Generation) && !inProgress(c.UID, o) {
			setCondition(c, now, metav1.ConditionFalse, bergv1.ImagesTimeIsOver, "hideUntil is over: images that are not on a node are pulled when an instance starts there")
		}
	case later:
		setCondition(c, now, metav1.ConditionFalse, bergv1.ImagesScheduled, "The images are pulled from "+w.Window.From.UTC().Format(time.RFC3339)+" on")
	case open:
		status, reason, message := imagesCondition(w, o, l)
		setCondition(c, now, status, reason, message)
	}
	fresh := apimeta.FindStatusCondition(c.Status.Conditions, bergv1.ChallengeConditionImagesReady)
	switch {
	case equality.Semantic.DeepEqual(*before, c.Status):
		return unchanged
	case old != nil && fresh != nil && !conditions.Transitioned(before.Conditions, *fresh) && old.ObservedGeneration == fresh.ObservedGeneration:
		return progress
	default:
		return changed
	}
}

func setCondition(c *bergv1.Challenge, now time.Time, status metav1.ConditionStatus, reason, message string) {
	conditions.Upsert(&c.Status.Conditions, c.Generation, now, metav1.Condition{
		Type: bergv1.ChallengeConditionImagesReady, Status: status, Reason: reason, Message: message,
	})
}

func inProgress(challenge types.UID, o Observed) bool {
	for _, p := range o.Pulls {
		if p.Challenge == challenge {
			return true
		}
	}
	return false
}

// imagesCondition says how far a Challenge has come, in an open window.
func imagesCondition(w *Desired, o Observed, l *store) (status metav1.ConditionStatus, reason, message string) {
	if len(w.Challenge.Spec.Containers) == 0 {
		return metav1.ConditionFalse, bergv1.ReasonNothingToRun, "The Challenge has no containers: there is nothing to pull"
	}
	done, nodes := 0, map[types.UID]bool{}
	var texts []string
	hidden := 0
	for _, t := range w.Targets {
		nodes[t.Node] = true
		if l.isDone(t) {
			done++
			continue
		}
		f, ok := l.findFailure(attempt{w.Challenge.UID, t}, w.Challenge.Generation)
		switch {
		case !ok:
		case len(texts) == maxReported:
			hidden++
		default:
			texts = append(texts, fmt.Sprintf("node %s: %s: %s (%s)", o.Nodes[t.Node].Name, conditions.Value(t.Image), f.Message, f.prospect()))
		}
	}
	message = fmt.Sprintf("%d of %d pulls on %d nodes are done", done, len(w.Targets), len(nodes))
	if len(w.Targets) == 0 {
		message = "No ready node takes pods of the Challenge"
	}
	if len(w.Nowhere) > 0 {
		message += "; no ready node may run " + strings.Join(w.Nowhere, ", ")
	}
	if hidden > 0 {
		texts = append(texts, fmt.Sprintf("%d more have failed", hidden))
	}
	if len(texts) > 0 {
		message += "; " + strings.Join(texts, "; ")
	}
	switch {
	case done < len(w.Targets) && w.Blocked != "":
		return metav1.ConditionFalse, bergv1.ImagesPulling, message + "; " + w.Blocked
	case len(texts) > 0:
		return metav1.ConditionFalse, bergv1.ImagesPullFailed, message
	case len(w.Nowhere) > 0:
		return metav1.ConditionFalse, bergv1.ImagesNoNode, message
	case done < len(w.Targets):
		return metav1.ConditionFalse, bergv1.ImagesPulling, message
	default:
		return metav1.ConditionTrue, bergv1.ImagesPulled, message
	}
}

// prospect says how a failure goes on.
func (f failure) prospect() string {
	if _, retriable := f.again(); retriable {
		return fmt.Sprintf("attempt %d of %d, it is tried again", f.Count, maxAttempts)
	}
	return fmt.Sprintf("attempt %d of %d, it is tried again when the Challenge is changed", f.Count, maxAttempts)
}

// patchStatus is the only write of the status. An unchanged one costs nothing.
func (r *Reconciler) patchStatus(ctx context.Context, before, c *bergv1.Challenge) error {
	return reconcile.Status[*bergv1.Challenge]{
		Client:  r.Client,
		Pointer: func(c *bergv1.Challenge) any { return &c.Status },
		Rejected: func(c *bergv1.Challenge, err error) {
			reconcile.Warning(r.Events, c, bergv1.ReasonRefused, actionPull, "The API server refuses the status of this Challenge: "+err.Error())
		},
	}.Patch(ctx, before, c)
}
