package status

import (
	"testing"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func TestTheIDOfAnInstanceHasTheTimeOfItsStart(t *testing.T) {
	now := noon.Add(123456 * time.Microsecond)
	var i bergv1.ChallengeInstance
	random, err := uuid.NewV7()
	if err != nil {
		t.Fatal(err)
	}
	Identify(&i, Identity{ID: random, Seed: "seed", NamespaceProof: "digest"}, now)
	if s := i.Status; s.Seed != "seed" || s.NamespaceProof != "digest" || s.NamespaceUID != "" {
		t.Errorf("the status has seed %q, proof %q and namespace %q", s.Seed, s.NamespaceProof, s.NamespaceUID)
	}
	id, err := uuid.Parse(i.Status.InstanceID)
	if err != nil || id.Version() != 7 || id.Variant() != uuid.RFC4122 {
		t.Fatalf("%s is no UUID of version 7: %v", i.Status.InstanceID, err)
	}
	if got := Begun(&i); !got.Equal(now.Truncate(time.Millisecond)) {
		t.Errorf("begun at %s", got)
	}

	i.Status.StartedAt = &metav1.Time{Time: noon.Add(-time.Hour)}
	if got := Begun(&i); !got.Equal(noon.Add(-time.Hour)) {
		t.Errorf("begun at %s by an ID of another clock", got)
	}
	i.Status.InstanceID = "none"
	if got := Begun(&i); !got.Equal(noon.Add(-time.Hour)) {
		t.Errorf("begun at %s without an ID", got)
	}
}
