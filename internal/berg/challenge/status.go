package challenge

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/nodes"
	"github.com/bergctf/berg-operator/internal/berg/redact"
	"github.com/bergctf/berg-operator/internal/berg/rules"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// state has the features of the nodes, and the findings of a check that are no problems.
type state struct {
	nodes    nodes.Support
	warnings []rules.Warning
}

// maxWarnings is the maximum number of warnings in the condition.
const maxWarnings = 5

// check finds the mistakes that prevent every instance of a Challenge from starting. Warnings count only for a Challenge
// without them. No other Challenge and no instance is read for it.
func check(c *bergv1.Challenge, s *state, settings rules.Settings) outcome.Problems {
	errs := rules.Errors(c, settings)
	if len(errs) == 0 {
		s.warnings = rules.Warnings(c)
		if p := s.nodes.Check(bergv1.ChallengeConditionAccepted, c.Spec.Containers); p != nil {
			p.Message = "No instance of this Challenge can run: " + p.Message
			return outcome.Problems{p}
		}
		return nil
	}
	return outcome.Problems{{
		Condition: bergv1.ChallengeConditionAccepted, Reason: bergv1.ReasonInvalidChallenge, Class: outcome.Blocked,
		Message: "No instance of this Challenge can run: " + redact.Text(manifests.Summary(errs, c.Spec.Flag), c.Spec.Flag),
	}}
}

// computeStatus writes the condition Accepted.
func computeStatus(c *bergv1.Challenge, s state, problems outcome.Problems, now time.Time) reconcile.Ready {
	ready := reconcile.ReadyUnless(problems.On(bergv1.ChallengeConditionAccepted), bergv1.ChallengeAccepted, acceptedMessage(c, s))
	conditions.Upsert(&c.Status.Conditions, c.Generation, now, metav1.Condition{
		Type: bergv1.ChallengeConditionAccepted, Status: ready.Status, Reason: ready.Reason, Message: ready.Message,
	})
	return ready
}

func acceptedMessage(c *bergv1.Challenge, s state) string {
	text := "Instances of this Challenge can run"
	if len(c.Spec.Containers) == 0 {
		text = "The Challenge has no containers: there is nothing to run"
	}
	if len(s.warnings) == 0 {
		return text
	}
	lines := make([]string, 0, maxWarnings)
	for _, w := range s.warnings[:min(len(s.warnings), maxWarnings)] {
		lines = append(lines, redact.Text(w.String(), c.Spec.Flag))
	}
	return text + ". Probably a mistake: " + strings.Join(lines, "; ")
}

func accepted(c *bergv1.Challenge) *metav1.Condition {
	return meta.FindStatusCondition(c.Status.Conditions, bergv1.ChallengeConditionAccepted)
}

// stale passes updates after which the condition is missing or describes another generation, as after an edit of the status
// by another client.
var stale = reconcile.Updates(func(_, after client.Object) bool { return isStale(after) })

func isStale(o client.Object) bool {
	condition := accepted(o.(*bergv1.Challenge))
	return condition == nil || condition.ObservedGeneration != o.GetGeneration()
}
