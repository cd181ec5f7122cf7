package evening

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/plan"
)

// challengeState is what the page says of a Challenge itself.
type challengeState struct {
	// Problem is why no instance of it can run, "" if they can.
	Problem string
	// Images says whether its images are on the nodes; "" if nothing pulls them ahead.
	Images string
	// Frozen: no new instance of it starts.
	Frozen bool
	// shape is what an instance of it needs, nil if that cannot be calculated; it follows from the generation.
	shape      *plan.Shape
	generation int64
}

func (s challengeState) same(o challengeState) bool {
	return s.Problem == o.Problem && s.Images == o.Images && s.Frozen == o.Frozen && s.generation == o.generation
}

// checkState is the last result of a ChallengeCheck. What its solver wrote is not shown.
type checkState struct {
	Result string
	At     time.Time
}

// Failed reports whether the solver did not get the flag.
func (c checkState) Failed() bool { return c.Result != "" && c.Result != string(bergv1.CheckSolved) }

// images are what organisers read of why images are not on the nodes, or that they are.
var images = map[string]string{
	bergv1.ImagesScheduled:  "not yet: scheduled",
	bergv1.ImagesPulling:    "not yet: being pulled",
	bergv1.ImagesPulled:     "yes",
	bergv1.ImagesPullFailed: "no: one cannot be pulled",
	bergv1.ImagesNoNode:     "no: no node takes them",
	bergv1.ImagesTimeIsOver: "no: the time for it is over",
}

func newChallengeState(c *bergv1.Challenge, settings plan.Settings) challengeState {
	s := challengeState{Frozen: c.Annotations[bergv1.AnnotationFrozen] != "", generation: c.Generation}
	if accepted := meta.FindStatusCondition(c.Status.Conditions, bergv1.ChallengeConditionAccepted); accepted != nil && accepted.Status == metav1.ConditionFalse {
		s.Problem = accepted.Message
	}
	if pulled := meta.FindStatusCondition(c.Status.Conditions, bergv1.ChallengeConditionImagesReady); pulled != nil {
		s.Images = cmp.Or(images[pulled.Reason], "no")
		if pulled.Status == metav1.ConditionTrue {
			s.Images = "yes"
		}
	}
	if len(c.Spec.Containers) > 0 {
		if shape, err := plan.NewShape(c, settings, 1); err == nil { // else the Challenge is not accepted, which says why
			s.shape = &shape
		}
	}
	return s
}

// seeOther stores a Challenge or a ChallengeCheck as the cache has it.
func (b *Board) seeOther(object any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch o := object.(type) {
	case *bergv1.Challenge:
		key, state := client.ObjectKeyFromObject(o), newChallengeState(o, b.options.Plan)
		if known, ok := b.challenges[key]; ok && known.same(state) {
			return
		}
		b.challenges[key] = state
	case *bergv1.ChallengeCheck:
		key := types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.ChallengeRef.Name}
		var state checkState
		if last := o.Status.LastResult; last != nil {
			state = checkState{Result: string(last.Result), At: last.StartedAt.Time}
			if last.FinishedAt != nil {
				state.At = last.FinishedAt.Time
			}
		}
		if b.checks[key] == nil {
			b.checks[key] = map[string]checkState{}
		}
		if known, ok := b.checks[key][o.Name]; ok && known == state {
			return
		}
		b.checks[key][o.Name] = state
	default:
		return
	}
	b.changed(object.(client.Object).GetNamespace())
}

func (b *Board) forgetOther(object any) {
	if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch o := object.(type) {
	case *bergv1.Challenge:
		delete(b.challenges, client.ObjectKeyFromObject(o))
	case *bergv1.ChallengeCheck:
		key := types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.ChallengeRef.Name}
		delete(b.checks[key], o.Name)
		if len(b.checks[key]) == 0 {
			delete(b.checks, key)
		}
	default:
		return
	}
	b.changed(object.(client.Object).GetNamespace())
}

// namespaceChallenges returns the Challenges of a namespace by their names. It is called with the lock held.
func (b *Board) namespaceChallenges(namespace string) map[string]challengeState {
	states := map[string]challengeState{}
	for key, state := range b.challenges {
		if key.Namespace == namespace {
			states[key.Name] = state
		}
	}
	return states
}

// namespaceChecks returns the last result of the checks of each Challenge of a namespace. It is called with the lock held.
func (b *Board) namespaceChecks(namespace string) map[string]checkState {
	states := map[string]checkState{}
	for key, checks := range b.checks {
		if key.Namespace != namespace {
			continue
		}
		for _, state := range checks {
			if last, ok := states[key.Name]; !ok || state.At.After(last.At) {
				states[key.Name] = state
			}
		}
	}
	return states
}
