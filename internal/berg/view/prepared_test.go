package view

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func TestPreparedInstancesAreCountedApart(t *testing.T) {
	now := time.Now()
	labelled := metav1.ObjectMeta{Namespace: "operator", Name: "warm", Labels: map[string]string{bergv1.LabelPrepared: "uid"}}
	ready := bergv1.ChallengeInstance{ObjectMeta: labelled, Spec: bergv1.ChallengeInstanceSpec{OwnerID: "random"}}
	ready.Status.Phase, ready.Status.InstanceID = bergv1.PhaseRunning, "id"
	claimed := ready
	claimed.Status.ClaimedBy = &bergv1.InstanceReference{}
	player := ready // a platform can set the label, and cannot hide an instance with it
	player.Status.StartedAt = &metav1.Time{Time: now}
	rows := []*Row{}
	for n, tc := range []struct {
		instance               bergv1.ChallengeInstance
		prepared, usesCapacity bool
		owner                  string
	}{{ready, true, true, ""}, {claimed, true, false, ""}, {player, false, true, "random"}} {
		r := NewRow(&tc.instance)
		if r.Prepared != tc.prepared || r.UsesCapacity != tc.usesCapacity || r.Owner != tc.owner {
			t.Errorf("%d: %+v", n, r)
		}
		rows = append(rows, &r)
	}
	if i := NewOverview(rows, now).Instances; i.Total != 1 || i.Prepared != 2 || i.ByState[Running] != 1 || i.Namespaces != 1 {
		t.Errorf("%+v", i)
	}
}
