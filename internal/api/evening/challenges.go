package evening

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// challengeState is what the page says of a Challenge itself.
type challengeState struct {
	// Problem is why no instance of it can run, "" if they can.
	Problem string
	// Images says whether its images are on the nodes; "" if nothing pulls them ahead.
	Images string
}

// checkState is the last result of a ChallengeCheck. What its solver wrote is not shown.
type checkState struct {
	Result string
	At     time.Time
}

func challengeStateOf(c *bergv1.Challenge) (s challengeState) {
	if accepted := meta.FindStatusCondition(c.Status.Conditions, bergv1.ChallengeConditionAccepted); accepted != nil && accepted.Status == metav1.ConditionFalse {
		s.Problem = accepted.Message
	}
	if images := meta.FindStatusCondition(c.Status.Conditions, bergv1.ChallengeConditionImagesReady); images != nil {
		s.Images = "no"
		if images.Status == metav1.ConditionTrue {
			s.Images = "yes"
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
		key, is := client.ObjectKeyFromObject(o), challengeStateOf(o)
		if known, ok := b.challenges[key]; ok && known == is {
			return
		}
		b.challenges[key] = is
	case *bergv1.ChallengeCheck:
		key := types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.ChallengeRef.Name}
		var is checkState
		if last := o.Status.LastResult; last != nil {
			is = checkState{Result: string(last.Result), At: last.StartedAt.Time}
			if last.FinishedAt != nil {
				is.At = last.FinishedAt.Time
			}
		}
		if b.checks[key] == nil {
			b.checks[key] = map[string]checkState{}
		}
		if known, ok := b.checks[key][o.Name]; ok && known == is {
			return
		}
		b.checks[key][o.Name] = is
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

// challengesOf returns the Challenges of a namespace by their names. It is called with the lock held.
func (b *Board) challengesOf(namespace string) map[string]challengeState {
	of := map[string]challengeState{}
	for key, state := range b.challenges {
		if key.Namespace == namespace {
			of[key.Name] = state
		}
	}
	return of
}

// checksOf returns the last result of the checks of each Challenge of a namespace. It is called with the lock held.
func (b *Board) checksOf(namespace string) map[string]checkState {
	of := map[string]checkState{}
	for key, checks := range b.checks {
		if key.Namespace != namespace {
			continue
		}
		for _, state := range checks {
			if last, ok := of[key.Name]; !ok || state.At.After(last.At) {
				of[key.Name] = state
			}
		}
	}
	return of
}
