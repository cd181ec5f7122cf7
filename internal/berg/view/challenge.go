package view

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/plan"
)

// Challenge is a Challenge as organisers see it.
type Challenge struct {
	Namespace, Name string
	// Problem is the reason for which none of its instances can start, "" if instances can.
	Problem string
	// Frozen: none of its instances starts.
	Frozen bool
	// Images is the reason why its images are not on all nodes, bergv1.ImagesPulled if they are, and "" if nothing pulls them in advance.
	Images string
	// ImagesMessage is the message of that reason.
	ImagesMessage string
	// AsksForPrepared: players or a platform want prepared instances. Unprepared is why the next player gets none, "" if one is ready.
	AsksForPrepared bool
	Unprepared      string
	// Shape has the requirements of one instance, nil if they cannot be calculated. It follows from the generation, so
	// Equal need not compare it.
	Shape      *plan.Shape
	generation int64
}

// NewChallenge returns a Challenge as organisers see it. settings are the settings of the operator; nil leaves Shape out.
func NewChallenge(c *bergv1.Challenge, settings *plan.Settings) Challenge {
	v := Challenge{Namespace: c.Namespace, Name: c.Name, Frozen: IsFrozen(c), generation: c.Generation}
	if accepted := meta.FindStatusCondition(c.Status.Conditions, bergv1.ChallengeConditionAccepted); accepted != nil && accepted.Status == metav1.ConditionFalse {
		v.Problem = accepted.Message
	}
	if images := meta.FindStatusCondition(c.Status.Conditions, bergv1.ChallengeConditionImagesReady); images != nil && images.Reason != bergv1.ReasonNothingToRun {
		v.Images, v.ImagesMessage = images.Reason, images.Message
		if images.Status == metav1.ConditionTrue {
			v.Images = bergv1.ImagesPulled
		}
	}
	v.AsksForPrepared = c.Spec.Warm != nil && c.Spec.Warm.Min > 0
	if warm := meta.FindStatusCondition(c.Status.Conditions, bergv1.ChallengeConditionWarm); warm != nil {
		v.AsksForPrepared = true
		if warm.Status != metav1.ConditionTrue {
			v.Unprepared = warm.Message
		}
	}
	if settings != nil && len(c.Spec.Containers) > 0 {
		if shape, err := plan.NewShape(c, *settings, 1); err == nil { // else the Challenge is not accepted, which says why
			v.Shape = &shape
		}
	}
	return v
}

// ID is the namespace and the name.
func (c *Challenge) ID() string { return JoinID(c.Namespace, c.Name) }

// ImagesFailed reports whether its images will not be on all nodes unless a person acts.
func (c *Challenge) ImagesFailed() bool {
	switch c.Images {
	case "", bergv1.ImagesPulled, bergv1.ImagesPulling, bergv1.ImagesScheduled:
		return false
	default:
		return true
	}
}

// Equal reports whether two versions of a Challenge are shown alike.
func (c Challenge) Equal(other Challenge) bool {
	c.Shape, other.Shape = nil, nil
	return c == other
}
