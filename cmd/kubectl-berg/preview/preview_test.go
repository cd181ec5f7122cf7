package preview

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func TestSummaryOfARollout(t *testing.T) {
	containers := func(names ...string) *bergv1.Challenge {
		c := &bergv1.Challenge{}
		for _, name := range names {
			c.Spec.Containers = append(c.Spec.Containers, bergv1.Container{Hostname: name})
		}
		return c
	}
	restarts := func(name string, fields ...string) bergv1.ContainerChange {
		return bergv1.ContainerChange{Name: name, Effect: bergv1.EffectRestarts, Fields: fields}
	}
	for name, tc := range map[string]struct {
		reason  string
		changes *bergv1.PendingChanges
		now     *bergv1.Challenge
		want    string
	}{
		"nothing": {bergv1.ReasonUpToDate, nil, containers("web", "db"), "web stays; db stays"},
		"an image": {
			bergv1.ReasonChallengeChanged, &bergv1.PendingChanges{Containers: []bergv1.ContainerChange{restarts("web", "image web:1 → web:2", "environment COLOUR")}},
			containers("web", "db"), "web restarts (image web:1 → web:2, environment COLOUR); db stays",
		},
		"the policy": {bergv1.ReasonChallengeChanged, &bergv1.PendingChanges{NetworkPolicy: true}, containers("web"), "web stays; the network policy changes"},
		"one more, one less": {
			bergv1.ReasonChallengeChanged,
			&bergv1.PendingChanges{Containers: []bergv1.ContainerChange{{Name: "bot", Effect: bergv1.EffectStarts}, {Name: "db", Effect: bergv1.EffectEnds}}},
			containers("web", "bot"), "web stays; bot starts; db ends",
		},
		"the settings": {bergv1.ReasonConfigurationChanged, nil, containers("web"), "web stays; the operator's settings have changed: any pod may restart"},
		"the images":   {bergv1.ReasonImageChanged, nil, containers("web"), "web stays; an image has changed under the same name: its pods restart"},
		"lost":         {bergv1.ReasonRevisionMissing, nil, containers("web"), "web restarts (the content of its start cannot be read)"},
	} {
		i := &bergv1.ChallengeInstance{}
		i.Status.PendingChanges = tc.changes
		i.Status.Conditions = []metav1.Condition{{Type: bergv1.ConditionUpToDate, Reason: tc.reason}}
		if got := Compare(i, tc.now).Summary(); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, tc.want)
		}
	}
}
