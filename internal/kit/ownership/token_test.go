package ownership

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestProof(t *testing.T) {
	var ours, successors Tokens
	digest := ours.Draw()
	owner := Owner{Annotation: "example.com/thing-uid", UID: "u1", Token: ours.Token("", digest)}
	if !owner.MayCreate() {
		t.Fatal("the process that drew the secret may not create the object")
	}
	created, forged := &corev1.Namespace{}, &corev1.Namespace{}
	created.UID, forged.UID = "created", "forged"
	for _, ns := range []*corev1.Namespace{created, forged} {
		owner.SetOn(ns)
		if owner.Owns(ns) {
			t.Error("the UID of the custom resource proves the ownership")
		}
	}
	forged.Annotations["example.com/namespace-token"] = digest
	if owner.Owns(forged) {
		t.Error("what the status tells proves the ownership")
	}
	owner.SetTokenOn(created)
	if !owner.Owns(created) {
		t.Error("the secret does not prove the ownership")
	}

	owner.Token = successors.Token("", digest)
	if !owner.Owns(created) || owner.Owns(forged) {
		t.Error("a process that does not know the secret cannot tell whose an object is")
	}
	if owner.MayCreate() {
		t.Error("a process that does not know the secret may create the object")
	}
	owner.SetTokenOn(forged)
	if owner.Owns(forged) {
		t.Error("a process that does not know the secret proves the ownership")
	}

	owner.Token = ours.Token("created", digest)
	forged.Annotations = created.Annotations // everybody can read them now
	if !owner.Owns(created) || owner.Owns(forged) {
		t.Error("after the creation the UID of the object does not decide")
	}
	if owner.MayCreate() {
		t.Error("a second object may be created with the same secret")
	}

	if another := ours.Draw(); another == digest {
		t.Error("a secret is drawn twice")
	}
	if none := (Owner{UID: "u1", Token: &Token{}}); none.MayCreate() || none.Owns(forged) {
		t.Error("an empty proof proves the ownership")
	}
}
