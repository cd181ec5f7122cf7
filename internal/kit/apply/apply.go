// Package apply brings objects into the state that a plan wants: it creates
// what is missing, updates what differs, deletes what is no longer wanted,
// leaves alone what is already right, and refuses what is not provably ours.
package apply

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// Writer writes objects. Its Client must read from a cache that waits for the
// client's own writes, or from the API server: a stale read would write twice.
// A cache that drops managedFields must do it with Compact.
type Writer struct {
	Client client.Client
	// Live reads from the API server. It is asked only when a create meets an
	// object that the cache does not know, and before an update.
	Live client.Reader
	// Manager is the operator's name in metadata.managedFields. Under another
	// name every object in every cluster would be written once more.
	Manager string
	// DriftBackoff is shared by all who write. Nil holds nothing back.
	DriftBackoff *DriftBackoff
	// Record names an annotation that notes which labels and annotations were
	// wanted, so that those no longer wanted are taken off again and those of
	// others stay. Empty: nothing is noted, and nothing is taken off.
	Record string
	// Replace says that an object which the API server does not change into the one that is
	// desired may be deleted, with all that it owns, and created again. Otherwise it stays
	// as it is, and the refusal is returned.
	Replace bool
}

// TerminatingError says that an object is wanted while it is being deleted. Its
// deletion event is the moment to try again.
type TerminatingError struct {
	Kind, Name string
}

func (e *TerminatingError) Error() string {
	return fmt.Sprintf("%s %s is being deleted and will be created again", e.Kind, e.Name)
}

// Apply makes one object what it should be and returns it as the API server
// has it. An object that is already right costs no request.
//
// It returns an *ownership.RefusedError for an object without our proof, a
// *TerminatingError for one that is being deleted, a *ContestedError for one
// that others change again and again, or the API server's error. What the API server
// refuses to change is replaced where the Writer says so, and else the refusal is returned.
func Apply[T client.Object](ctx context.Context, w Writer, owner ownership.Owner, desired T) (T, error) {
	var none T
	owner.SetOn(desired)
	w.note(desired)
	plan := ChecksumAnnotation(owner.Annotation)
	if err := setChecksum(desired, plan); err != nil {
		return none, err
	}
	kind, key := kindOf(w.Client.Scheme(), desired), client.ObjectKeyFromObject(desired)
	to := write{object: object{kind, key, owner.UID}, plan: desired.GetAnnotations()[plan]}
	live := blank(desired)

	switch err := w.Client.Get(ctx, key, live); {
	case Absent(err):
		if err := w.DriftBackoff.throttled(to); err != nil {
			return none, err
		}
		created, err := create(ctx, w, to, desired)
		if !apierrors.IsAlreadyExists(err) {
			return created, err
		}
		// The cache does not show it: either it is foreign and filtered out, or
		// another process wrote it a moment ago.
	case err != nil:
		return none, err
	case !owner.Owns(live):
		// It may be what another custom resource has left under this name, and gone by now:
		// the caches of two kinds are not of the same moment. The API server is asked.
	default:
		if err := writable(owner, kind.Kind, live); err != nil {
			return none, err
		}
		if inPlace(w, owner, desired, live) {
			return live, nil
		}
		to.rollout = isRollout(w, owner, to, live)
		if err := w.DriftBackoff.throttled(to); err != nil {
			return none, err
		}
	}
	return update(ctx, w, owner, to, desired)
}

// writable returns why an object must not be written.
func writable(owner ownership.Owner, kind string, live client.Object) error {
	if !owner.Owns(live) {
		return &ownership.RefusedError{Kind: kind, Namespace: live.GetNamespace(), Name: live.GetName()}
	}
	if live.GetDeletionTimestamp() != nil {
		return &TerminatingError{Kind: kind, Name: live.GetName()}
	}
	return nil
}

// inPlace reports whether an object needs no write.
func inPlace(w Writer, owner ownership.Owner, desired, live client.Object) bool {
	if !Unmodified(w.Manager, live) {
		return false
	}
	return Contains(desired, live) || w.DriftBackoff.accepts(owner, desired, live)
}

// asMade reports whether an object is what the API server made of this plan, nobody else
// having touched it: where it is not what the plan says, an admission webhook or the API
// server itself has changed it, as the labels of a Job's pods. Of a plan that asks for node
// ports the checksum does not tell.
func writtenAsPlanned(w Writer, owner ownership.Owner, desired, live client.Object) bool {
	if service, ok := desired.(*corev1.Service); ok && asksForNodePorts(service) {
		return false
	}
	annotation := ChecksumAnnotation(owner.Annotation)
	return Unmodified(w.Manager, live) && live.GetAnnotations()[annotation] == desired.GetAnnotations()[annotation]
}

// rollsOut reports whether an object is written because its plan is another one now, and not
// because somebody has changed it: it stands as it was written last.
func isRollout(w Writer, owner ownership.Owner, to write, live client.Object) bool {
	last := w.DriftBackoff.plan(to.object)
	return last != "" && last != to.plan && last == live.GetAnnotations()[ChecksumAnnotation(owner.Annotation)] && Unmodified(w.Manager, live)
}

func create[T client.Object](ctx context.Context, w Writer, to write, desired T) (T, error) {
	var none T
	created := desired.DeepCopyObject().(T)
	if err := w.Client.Create(ctx, created, client.FieldOwner(w.Manager)); err != nil {
		return none, err
	}
	noteWritten(ctx, w, "created", to, desired, created, nil)
	return created, nil
}

// update replaces what the API server has. It reads that first: the cache knows
// neither who claims which field nor the last change of a busy object's status.
func update[T client.Object](ctx context.Context, w Writer, owner ownership.Owner, to write, desired T) (T, error) {
	var none, out T
	kind, key := kindOf(w.Client.Scheme(), desired), client.ObjectKeyFromObject(desired)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		live := blank(desired)
		// What stood there may be gone by now: then the caller looks again. No event
		// need come, since the cache may never have shown it.
		err := w.Live.Get(ctx, key, live)
		if err != nil {
			return err
		}
		if err := writable(owner, kind.Kind, live); err != nil {
			return err
		}
		if inPlace(w, owner, desired, live) {
			out = live
			return nil
		}
		to.rollout = isRollout(w, owner, to, live)
		made := writtenAsPlanned(w, owner, desired, live)
		if w.Replace && immutable(desired, live) && !made {
			out, err = replace(ctx, w, to, desired, live)
			return err
		}
		updated, err := successor(w, owner, desired, live)
		if err != nil {
			return err
		}
		err = w.Client.Update(ctx, updated, client.FieldOwner(w.Manager))
		switch {
		case err == nil:
		case made && changeRefused(err):
			w.DriftBackoff.accept(desired, live)
			out = live
			return nil
		case w.Replace && replaceable(ctx, w, desired, err):
			out, err = replace(ctx, w, to, desired, live)
			return err
		default:
			return err
		}
		noteWritten(ctx, w, "updated", to, desired, updated, fieldOwners(w.Manager, live))
		out = updated
		return nil
	})
	if err != nil {
		return none, err
	}
	return out, nil
}

// successor is what is written in place of live: all that is desired, and of
// the rest what belongs to others.
func successor[T client.Object](w Writer, owner ownership.Owner, desired, live T) (T, error) {
	gvk, err := apiutil.GVKForObject(desired, w.Client.Scheme())
	if err != nil {
		return desired, err
	}
	updated := desired.DeepCopyObject().(T)
	updated.SetResourceVersion(live.GetResourceVersion())
	updated.SetUID(live.GetUID())
	noted := w.noted(live)
	updated.SetLabels(merged(live.GetLabels(), noted.Labels, desired.GetLabels()))
	updated.SetAnnotations(merged(live.GetAnnotations(), noted.Annotations, desired.GetAnnotations()))
	updated.SetFinalizers(live.GetFinalizers())
	_, foreign := splitOwners(desired, live)
	updated.SetOwnerReferences(append(foreign, desired.GetOwnerReferences()...))
	if u, ok := any(updated).(*unstructured.Unstructured); ok {
		// Where the Kind has no status subresource, an update writes the status too.
		keepStatus(u, any(live).(*unstructured.Unstructured))
	}
	updated.SetManagedFields(releaseOthers(live.GetManagedFields(), ownEntry(w.Manager, gvk.GroupVersion().String(), owner.Annotation)))
	return updated, nil
}

// noteWritten takes note of a write and of what the API server made of it.
func noteWritten(ctx context.Context, w Writer, verb string, to write, desired, made client.Object, by []string) {
	w.DriftBackoff.wrote(to, by)
	log := log.FromContext(ctx)
	log.V(2).Info(verb, "kind", to.kind.Kind, "object", to.name)
	if !Contains(desired, made) && w.DriftBackoff.accept(desired, made) {
		log.Info("the API server stores something else than what was written, probably because of an admission webhook: it is left so", "kind", to.kind.Kind, "object", to.name)
	}
}
