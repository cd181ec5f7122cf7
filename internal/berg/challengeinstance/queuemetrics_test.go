package challengeinstance

import (
	"fmt"
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func queuedInstance(namespace, challenge string, age time.Duration) bergv1.ChallengeInstance {
	return *testInstance(func(i *bergv1.ChallengeInstance) {
		i.Spec.ChallengeRef = bergv1.ChallengeReference{Namespace: namespace, Name: challenge}
		i.CreationTimestamp = metav1.Time{Time: noon.Add(-age)}
	})
}

func TestTheQueuesOfManyChallengesAreBounded(t *testing.T) {
	few := []bergv1.ChallengeInstance{queuedInstance("a", "web", time.Hour), queuedInstance("a", "web", time.Minute), queuedInstance("b", "web", 0)}
	if got := countByChallenge(few); !maps.Equal(got, map[string]float64{"web": 3}) {
		t.Errorf("%v", got)
	}
	if got := maxAge(few, noon); got != time.Hour {
		t.Errorf("the oldest has waited %s", got)
	}
	var many []bergv1.ChallengeInstance
	for n := range 2 * maxChallenges {
		for range n + 1 {
			many = append(many, queuedInstance("a", fmt.Sprint("c", n), 0))
		}
	}
	got, sum := countByChallenge(many), 0.0
	for _, n := range got {
		sum += n
	}
	if len(got) != maxChallenges || sum != float64(len(many)) || got[fmt.Sprint("c", 2*maxChallenges-1)] != 2*maxChallenges {
		t.Errorf("%d series, %v of %d instances", len(got), sum, len(many))
	}
}
