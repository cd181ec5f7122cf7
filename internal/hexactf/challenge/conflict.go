package challenge

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/naming"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// otherOwner describes the owner of a foreign object whose name a challenge needs.
type otherOwner struct {
	// Terminating: it belongs to a challenge that is being deleted, or is gone: the garbage collector will delete it.
	// This happens when a player starts the same problem again.
	Terminating bool
	// Challenge is the live challenge that it belongs to, nil if there is none.
	Challenge *hexactfv1.Challenge
}

// otherOwner finds the owner of the object for which a write was refused. Objects that a deletion with
// --cascade=orphan left behind are given to the garbage collector: p has every object that can be in the way. It asks the API
// server for the object. The cache leaves out an object that lacks the label, and may not show its deletion yet.
func (r *Reconciler) otherOwner(ctx context.Context, c *hexactfv1.Challenge, p Plan, err error) (found otherOwner) {
	var refused *ownership.RefusedError
	if !errors.As(err, &refused) {
		return otherOwner{}
	}
	var object client.Object
	switch refused.Kind {
	case "Deployment":
		object = &appsv1.Deployment{}
	case "Service":
		object = &corev1.Service{}
	case "NetworkPolicy":
		object = &networkingv1.NetworkPolicy{}
	default:
		return otherOwner{}
	}
	if err := r.Writer.Live.Get(ctx, client.ObjectKey{Namespace: refused.Namespace, Name: refused.Name}, object); err != nil {
		return otherOwner{Terminating: apply.Absent(err)}
	}
	if object.GetDeletionTimestamp() != nil {
		return otherOwner{Terminating: true}
	}
	owner := metav1.GetControllerOf(object)
	if owner == nil && refused.Kind == "NetworkPolicy" {
		owner = recordedOwner(object) // no network policy has an owner reference
	}
	if owner == nil || r.orphaned(ctx, c, object) {
		return otherOwner{Terminating: r.orphaned(ctx, c, object) && r.releaseOrphans(ctx, c, p)}
	}
	if owner.Kind != "Challenge" || schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).Group != hexactfv1.GroupVersion.Group {
		return otherOwner{}
	}
	other := &hexactfv1.Challenge{}
	switch err := r.Client.Get(ctx, client.ObjectKey{Namespace: refused.Namespace, Name: owner.Name}, other); {
	case err != nil:
		return otherOwner{Terminating: apply.Absent(err) && len(object.GetOwnerReferences()) > 0}
	case other.UID != owner.UID || other.DeletionTimestamp != nil:
		return otherOwner{Terminating: true}
	default:
		return otherOwner{Challenge: other}
	}
}

// recordedOwner is the challenge that an object names as its owner in its label and annotation, nil if it names none.
func recordedOwner(object client.Object) *metav1.OwnerReference {
	name, uid := object.GetLabels()[hexactfv1.LabelPartOf], types.UID(object.GetAnnotations()[hexactfv1.AnnotationUID])
	if name == "" || !OwnershipLabels.For(uid, nil).Owns(object) {
		return nil
	}
	return &metav1.OwnerReference{APIVersion: hexactfv1.GroupVersion.String(), Kind: "Challenge", Name: name, UID: uid}
}

// orphaned reports whether an object provably belonged to a challenge that is gone: it has the labels and the owner UID
// of one and no owner any more, and the challenge that it is part of does not exist. A live challenge's object always has
// its owner, before another reconciliation could see it.
func (r *Reconciler) orphaned(ctx context.Context, c *hexactfv1.Challenge, object client.Object) bool {
	uid, former := types.UID(object.GetAnnotations()[hexactfv1.AnnotationUID]), object.GetLabels()[hexactfv1.LabelPartOf]
	if len(object.GetOwnerReferences()) > 0 || uid == "" || former == "" || !OwnershipLabels.For(uid, nil).Owns(object) {
		return false
	}
	if former == partOfLabel(c.Name) {
		return uid != c.UID // this challenge has its name
	}
	if len(former) >= naming.MaxLabelValue {
		return false // the label may not be the whole name
	}
	other := &hexactfv1.Challenge{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: object.GetNamespace(), Name: former}, other)
	return apply.Absent(err) || err == nil && other.UID != uid
}

// releaseOrphans makes the garbage collector delete the orphaned objects of a plan: each gets its former owner back, which
// does not exist. The challenge must not adopt them: their pods have the state of the game before. Network policies come last, when
// the pods that they confine are gone. It reports whether anything is left.
func (r *Reconciler) releaseOrphans(ctx context.Context, c *hexactfv1.Challenge, p Plan) bool {
	released := 0
	for _, desired := range slices.Backward(p.objects()) {
		object := desired.DeepCopyObject().(client.Object)
		// The object is read from the API server: the cache may lag behind a deletion, and the update needs the
		// present resource version.
		if err := apply.Read(ctx, r.Writer.Live, object); err != nil || !r.orphaned(ctx, c, object) {
			continue
		}
		owner := recordedOwner(object)
		if _, confines := object.(*networkingv1.NetworkPolicy); confines {
			if running, err := r.podsRun(ctx, object.GetNamespace(), owner.Name); err != nil || running {
				return true // the next attempt continues
			}
		}
		object.SetOwnerReferences([]metav1.OwnerReference{*owner})
		if err := r.Writer.Client.Update(ctx, object, client.FieldOwner(r.Writer.Manager)); err != nil {
			return false // the next attempt continues
		}
		released++
	}
	if released > 0 {
		reconcile.Normal(r.Events, c, hexactfv1.ReasonOrphansDeleted, actionCreate,
			fmt.Sprintf("%d objects of an earlier Challenge, which was deleted with --cascade=orphan, are deleted and created again", released))
	}
	return released > 0
}

// podsRun reports whether a container of a pod with the label of a challenge runs, or will.
func (r *Reconciler) podsRun(ctx context.Context, namespace, label string) (bool, error) {
	var pods corev1.PodList
	err := r.Client.List(ctx, &pods, client.InNamespace(namespace), client.MatchingFields{indexPartOf: label}, client.DisableReadYourWritesConsistency)
	return slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return !isOver(&p) }), err
}

// describe names a challenge and its identity.
func describe(c *hexactfv1.Challenge) string {
	id := challengeIdentity(c)
	return fmt.Sprintf("Challenge %s (challengeId %s, user %s)", client.ObjectKeyFromObject(c), id.ChallengeID, id.User)
}
