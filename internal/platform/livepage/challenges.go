package livepage

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

// checkState is the last result of a ChallengeCheck, without the text of its solver.
type checkState struct {
	Result string
	At     time.Time
}

// Failed reports whether the solver did not get the flag.
func (c checkState) Failed() bool { return c.Result != "" && c.Result != string(bergv1.CheckSolved) }

// images explain to organisers why images are not on the nodes, or that they are.
var images = map[string]string{
	bergv1.ImagesScheduled:  "not yet: scheduled",
	bergv1.ImagesPulling:    "not yet: being pulled",
	bergv1.ImagesPulled:     "yes",
	bergv1.ImagesPullFailed: "no: one cannot be pulled",
	bergv1.ImagesNoNode:     "no: no node takes them",
	bergv1.ImagesTimeIsOver: "no: the time for it is over",
}

// imagesText says for organisers whether the images of a Challenge are on the nodes, "" if nothing pulls them in advance.
func imagesText(c view.Challenge) string {
	if c.Images == "" {
		return ""
	}
	return cmp.Or(images[c.Images], "no")
}

// preparedText says for organisers whether the next player gets a prepared instance, "" if the Challenge asks for none.
func preparedText(c view.Challenge) string {
	switch {
	case !c.AsksForPrepared:
		return ""
	case c.Unprepared != "":
		return "not ready: " + c.Unprepared
	}
	return "ready"
}

// seeOther stores a Challenge or a ChallengeCheck as the cache has it.
func (b *Board) seeOther(object any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch o := object.(type) {
	case *bergv1.Challenge:
		challenge := view.NewChallenge(o, &b.operator.plan)
		// Kept, because challenges are computed again when the settings of the operator change.
		b.specs[challenge.ID()] = o
		if known, ok := b.challenges[challenge.ID()]; ok && known.Equal(challenge) {
			return
		}
		b.challenges[challenge.ID()] = challenge
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

// forgetOther also gets the last known object of an informer that has missed the deletion.
func (b *Board) forgetOther(object any) {
	if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch o := object.(type) {
	case *bergv1.Challenge:
		delete(b.challenges, view.JoinID(o.Namespace, o.Name))
		delete(b.specs, view.JoinID(o.Namespace, o.Name))
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
func (b *Board) namespaceChallenges(namespace string) map[string]view.Challenge {
	states := map[string]view.Challenge{}
	for _, challenge := range b.challenges {
		if challenge.Namespace == namespace {
			states[challenge.Name] = challenge
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
