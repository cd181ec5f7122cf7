package apply

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	// Live reads from the API server. It is used only if a create conflicts with an
	// object that the cache does not show, and before an update.
	Live client.Reader
	// Manager is the operator's name in metadata.managedFields. Under another
	// name every object in every cluster would be written once more.
	Manager string
	// DriftBackoff is shared by all Writers. Nil throttles nothing.
	DriftBackoff *DriftBackoff
	// Record names an annotation that records the wanted labels and annotations, so that keys that are
	// no longer wanted are removed and keys of others are kept. Empty: nothing is recorded, and
	// nothing is removed.
	Record string
	// Replace allows deleting an object, with everything that it owns, and creating it again,
	// if the API server rejects the update. Otherwise the object stays as it is, and the
	// rejection is returned.
	Replace bool
}

// TerminatingError says that a wanted object is being deleted. Its
// deletion event is the moment to try again. It is no failure: outcome.Classify makes it a problem that waits.
type TerminatingError struct {
	Kind, Name string
}

func (e *TerminatingError) Error() string {
	return fmt.Sprintf("%s %s is being deleted and will be created again", e.Kind, e.Name)
}

// Apply creates or updates one object and returns it as the API server has it. An object that is up
// to date costs no request.
//
// It returns an *ownership.RefusedError for an object that is not owned, a
// *TerminatingError for one that is being deleted, a *ContestedError for one that others
// keep changing, or the API server's error. If the API server rejects an update, the object
// is replaced if the Writer allows it, else the rejection is returned. An update costs a read of the API server and a write, a
// creation one write. Apply sets labels, annotations and the checksum of the plan on desired, so the caller must not share it.
func Apply[T client.Object](ctx context.Context, w Writer, owner ownership.Owner, desired T) (T, error) {
	var none T
	owner.SetOn(desired)
	w.note(desired)
	plan := ChecksumAnnotation(owner.Annotation)
	if err := setChecksum(desired, plan); err != nil {
		return none, err
	}
	kind, key := objectKind(w.Client.Scheme(), desired), client.ObjectKeyFromObject(desired)
	to := write{object: object{kind, key, owner.UID}, plan: desired.GetAnnotations()[plan]}
	live := blank(desired)

	switch err := w.Client.Get(ctx, key, live); {
	case Absent(err):
		if err := w.DriftBackoff.throttled(to); err != nil {
			return none, err
		}
		created, err := create(ctx, w, owner, to, desired)
		if !apierrors.IsAlreadyExists(err) {
			return created, err
		}
		// The cache does not show it: either it is not owned and filtered out, or
		// another process wrote it just now.
	case err != nil:
		return none, err
	// The refusal is not decided here: update repeats the question with the object of the API server.
	case !owner.Owns(live):
		// It may belong to an earlier custom resource of this name and be gone by now: the
		// caches of two kinds are not of the same moment. The API server is asked.
	default:
		if err := writable(owner, kind.Kind, live); err != nil {
			return none, err
		}
		if upToDate(w, owner, desired, live) {
			return live, nil
		}
		// update asks again with the live object. Here the cached one decides whether a throttled repair may pass.
		to.rollout = isRollout(w, owner, to, live)
		if err := w.DriftBackoff.throttled(to); err != nil {
			return none, err
		}
	}
	return update(ctx, w, owner, to, desired)
}

// errGone stops a reconciliation that began when the object existed: the next one draws a new secret.
var errGone = errors.New("the object is gone, and only a new proof in the status allows to create it again")

// writable returns an error if an object must not be written.
func writable(owner ownership.Owner, kind string, live client.Object) error {
	if !owner.Owns(live) {
		return &ownership.RefusedError{Kind: kind, Namespace: live.GetNamespace(), Name: live.GetName()}
	}
	if live.GetDeletionTimestamp() != nil {
		return &TerminatingError{Kind: kind, Name: live.GetName()}
	}
	return nil
}

// upToDate reports whether an object needs no write. All three questions are needed:
//   - Unmodified finds fields that others have set, also fields that the plan leaves out. It does
//     not find fields that others have removed: then no entry of managedFields is left.
//   - Contains finds fields that others have removed or changed, and another plan by its checksum. The
//     comparison cannot be left to equality.Semantic.DeepDerivative: that counts an unset number
//     as zero, so that an allotted node port or a defaulted timeout would be a difference.
//   - accepts finds changes of an admission webhook to our own write. Without it such an
//     object would be written again in every reconciliation.
func upToDate(w Writer, owner ownership.Owner, desired, live client.Object) bool {
	if !Unmodified(w.Manager, live) {
		return false
	}
	return Contains(desired, live) || w.DriftBackoff.accepts(owner, desired, live)
}

// writtenAsPlanned reports whether an object was written from this plan and not modified by
// others. If it differs from the plan, an admission webhook or the API server itself has
// changed it, for example the labels of a Job's pods. The checksum does not cover node ports. Such an object is never replaced
// and never written again: each restart of the operator would otherwise write it once, and a Job would run once more.
func writtenAsPlanned(w Writer, owner ownership.Owner, desired, live client.Object) bool {
	if service, ok := desired.(*corev1.Service); ok && asksForNodePorts(service) {
		return false
	}
	annotation := ChecksumAnnotation(owner.Annotation)
	return Unmodified(w.Manager, live) && live.GetAnnotations()[annotation] == desired.GetAnnotations()[annotation]
}

// untouched reports whether an object is as the API server stored the write of this plan, although
// it differs from the plan: an admission webhook or policy changed it in that write. It decides from
// the object alone, so a new leader writes nothing where its predecessor would not have. live must be
// read from the API server: the cache does not have the fields that each manager owns.
//
// An owner reference of a network policy is no work of admission, and not in the checksum: an earlier version of the operator set it.
func untouched(w Writer, owner ownership.Owner, desired, live client.Object) bool {
	owners, _ := splitOwners(desired, live)
	return len(owners) == len(desired.GetOwnerReferences()) && writtenAsPlanned(w, owner, desired, live) && ownsAll(w.Manager, desired, live)
}

// isRollout reports whether an object is written because its plan has changed, and not because
// others have changed it: it is as it was last written. The history tells the two apart, so after a restart the first rollout of
// an object counts as a repair. One repair is never throttled.
func isRollout(w Writer, owner ownership.Owner, to write, live client.Object) bool {
	last := w.DriftBackoff.plan(to.object)
	return last != "" && last != to.plan && last == live.GetAnnotations()[ChecksumAnnotation(owner.Annotation)] && Unmodified(w.Manager, live)
}

// create needs the secret of the owner's Token, where one is required: without it the object would not be owned.
func create[T client.Object](ctx context.Context, w Writer, owner ownership.Owner, to write, desired T) (T, error) {
	var none T
	if !owner.MayCreate() {
		return none, apierrors.NewConflict(schema.GroupResource{Group: to.kind.Group, Resource: to.kind.Kind}, to.name.Name, errGone)
	}
	created := desired.DeepCopyObject().(T)
	owner.SetTokenOn(created)
	if err := w.Client.Create(ctx, created, client.FieldOwner(w.Manager)); err != nil {
		return none, err
	}
	noteWritten(ctx, w, "created", to, desired, created, nil)
	return created, nil
}

// update replaces the object in the API server. It reads it first: the cache has neither
// the field owners nor the last change of a busy object's status.
func update[T client.Object](ctx context.Context, w Writer, owner ownership.Owner, to write, desired T) (T, error) {
	var none, out T
	kind, key := objectKind(w.Client.Scheme(), desired), client.ObjectKeyFromObject(desired)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		live := blank(desired)
		// The object may be gone by now: then the caller reconciles again. There may be no
		// event for that, since the cache may never have shown the object.
		err := w.Live.Get(ctx, key, live)
		if err != nil {
			return err
		}
		if err := writable(owner, kind.Kind, live); err != nil {
			return err
		}
		if upToDate(w, owner, desired, live) {
			out = live
			return nil
		}
		if !w.DriftBackoff.knows(live) && untouched(w, owner, desired, live) {
			w.DriftBackoff.accept(desired, live)
			out = live
			return nil
		}
		to.rollout = isRollout(w, owner, to, live)
		made := writtenAsPlanned(w, owner, desired, live)
		if w.Replace && immutable(desired, live) && !made {
			out, err = replace(ctx, w, owner, to, desired, live)
			return err
		}
		updated, err := successor(w, owner, desired, live)
		if err != nil {
			return err
		}
		err = w.Client.Update(ctx, updated, client.FieldOwner(w.Manager))
		switch {
		case err == nil:
		// The object is as this plan once wrote it, and the API server refuses to change it back: it made the difference itself. A
		// condition about it could never be resolved.
		case made && changeRefused(err):
			w.DriftBackoff.accept(desired, live)
			out = live
			return nil
		case w.Replace && replaceable(ctx, w, desired, err):
			out, err = replace(ctx, w, owner, to, desired, live)
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

// successor returns the object that replaces live: all desired fields, and the metadata and status
// of others.
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
		// If the Kind has no status subresource, an update writes the status too.
		keepStatus(u, any(live).(*unstructured.Unstructured))
	}
	// The API server takes managedFields from an update as they are sent, and computes the owners of changed fields from there.
	updated.SetManagedFields(releaseOthers(live.GetManagedFields(), ownManagedFields(w.Manager, gvk.GroupVersion().String(), owner.Annotation)))
	return updated, nil
}

// noteWritten records a write and its result. It runs after the API server has accepted the write: a write that fails costs none
// of the writes that are never throttled.
func noteWritten(ctx context.Context, w Writer, verb string, to write, desired, made client.Object, cause []string) {
	w.DriftBackoff.wrote(to, cause)
	log := log.FromContext(ctx)
	log.V(2).Info(verb, "kind", to.kind.Kind, "object", to.name)
	if !Contains(desired, made) && w.DriftBackoff.accept(desired, made) {
		log.Info("the API server stored something else than was written, probably because of an admission webhook. It is left so", "kind", to.kind.Kind, "object", to.name)
	}
}
