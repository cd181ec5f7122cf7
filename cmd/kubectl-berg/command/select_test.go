package command

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// The options of a command that changes instances never select a prepared one. Its name does.
func TestPreparedInstancesAreSelectedByName(t *testing.T) {
	const owner = "5b0f5c46-7a1b-4f7e-9a3e-0f6f3a5d1c11"
	prepared := &bergv1.ChallengeInstance{
		ObjectMeta: metav1.ObjectMeta{Name: "warm-1", Labels: map[string]string{bergv1.LabelPrepared: "uid"}},
		Spec:       bergv1.ChallengeInstanceSpec{OwnerID: owner, ChallengeRef: bergv1.ChallengeReference{Name: "browser"}},
	}
	player := prepared.DeepCopy()
	player.Status.StartedAt = ptr.To(metav1.Now())
	for name, tc := range map[string]struct {
		s        selection
		selected bool
	}{
		"all":                   {selection{all: true}, false},
		"its Challenge":         {selection{challenge: "browser"}, false},
		"its random owner":      {selection{owner: owner}, false},
		"the owner, in a list":  {selection{owner: owner, prepared: true}, false},
		"a list":                {selection{prepared: true}, true},
		"its name":              {selection{names: []string{"warm-1"}}, true},
		"the name of another":   {selection{names: []string{"warm-2"}}, false},
		"a list of a Challenge": {selection{challenge: "browser", prepared: true}, true},
	} {
		if got := tc.s.matches(prepared, nil); got != tc.selected {
			t.Errorf("%s: %t", name, got)
		}
	}
	if all := (selection{all: true}); !all.matches(player, nil) {
		t.Error("an instance of a player with the label is not selected")
	}
}
