package sealkey

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	kitcache "github.com/bergctf/berg-operator/internal/kit/cache"
)

// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=berg-operator-snapshot-key,verbs=list;watch;update,namespace=system

// SecretName is the name of the Secret in the operator's namespace, and Entry that of the key in it.
const (
	SecretName = "berg-operator-snapshot-key"
	Entry      = "key"
)

// The label of the operator's objects in the manifests.
const (
	labelName    = "app.kubernetes.io/name"
	operatorName = "berg-operator"
)

// Store keeps the key in a Secret. The leader creates it when it first needs one, and puts it back when it is deleted or
// emptied. Every replica remembers the key that it has seen, so that a deletion loses nothing while one of them runs.
type Store struct {
	client client.Client
	live   client.Reader
	// secrets has the one Secret and no other.
	secrets client.Reader
	secret  types.NamespacedName

	// mu is held while the Secret is read and written.
	mu      sync.Mutex
	ring    atomic.Pointer[Ring]
	changed chan event.GenericEvent
}

// NewStore adds the Store of a namespace to a manager.
func NewStore(mgr ctrl.Manager, namespace string) (*Store, error) {
	// A cache of its own: that of the family has no Secrets, and would list all of them.
	secrets, err := kitcache.OfReplica(mgr, ctrlcache.Options{
		DefaultTransform: ctrlcache.TransformStripManagedFields(),
		ByObject: map[client.Object]ctrlcache.ByObject{
			&corev1.Secret{}: {Namespaces: map[string]ctrlcache.Config{namespace: {FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, SecretName)}}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make the cache of the key: %w", err)
	}
	s := &Store{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), secrets: secrets,
		secret: types.NamespacedName{Namespace: namespace, Name: SecretName}, changed: make(chan event.GenericEvent, 1),
	}
	for name, c := range map[string]struct {
		do     func(context.Context, ctrl.Request) (ctrl.Result, error)
		leader bool
	}{"snapshot-key-reader": {s.read, false}, "snapshot-key": {s.restore, true}} {
		if err := ctrl.NewControllerManagedBy(mgr).
			Named(name).
			WatchesRawSource(source.Kind(secrets, &corev1.Secret{}, &handler.TypedEnqueueRequestForObject[*corev1.Secret]{})).
			WithOptions(controller.Options{NeedLeaderElection: ptr.To(c.leader)}).
			Complete(ctrlreconcile.Func(c.do)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Source sends one event when another key takes the place of one.
func (s *Store) Source(to handler.EventHandler) source.Source { return source.Channel(s.changed, to) }

// Ring returns the keys. Only the leader may call it: it creates the Secret if there is none.
func (s *Store) Ring(ctx context.Context) (*Ring, error) {
	if ring := s.ring.Load(); ring != nil {
		return ring, nil
	}
	if err := s.ensure(ctx); err != nil {
		return nil, err
	}
	return s.ring.Load(), nil
}

// read remembers the key.
func (s *Store) read(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	secret := &corev1.Secret{}
	if err := s.secrets.Get(ctx, s.secret, secret); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // the leader puts it back
	}
	_ = s.note(secret.Data[Entry]) // the leader reports a wrong one
	return ctrl.Result{}, nil
}

// restore puts the key back. Without one that is remembered, none is needed yet.
func (s *Store) restore(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if s.ring.Load() == nil {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, s.ensure(ctx)
}

// ensure makes the Secret and this process have the same key.
func (s *Store) ensure(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	secret := &corev1.Secret{}
	switch err := s.secrets.Get(ctx, s.secret, secret); {
	case apierrors.IsNotFound(err):
		return s.create(ctx)
	case err != nil:
		return fmt.Errorf("read the key of snapshots: %w", err)
	case s.note(secret.Data[Entry]) == nil:
		return nil
	case secret.Labels[labelName] != operatorName:
		return fmt.Errorf("the Secret %s has no key of %d bytes in its entry %s, and does not have the label %s=%s of the operator, so it was left unchanged: delete it",
			s.secret, Size, Entry, labelName, operatorName)
	}
	log.FromContext(ctx).Info("the Secret with the key of snapshots has no valid key: a key is written to it", "secret", s.secret)
	updated := secret.DeepCopy()
	updated.Data = map[string][]byte{Entry: s.key()}
	if err := s.client.Update(ctx, updated, client.DisableReadYourWritesConsistency); err != nil {
		return fmt.Errorf("write the key of snapshots: %w", err)
	}
	return s.note(updated.Data[Entry])
}

// create never replaces a key: of two replicas that start at the same time, one reads what the other has created.
func (s *Store) create(ctx context.Context) error {
	created := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.secret.Namespace, Name: s.secret.Name, Labels: map[string]string{labelName: operatorName}},
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{Entry: s.key()},
	}
	// There is no cache of Secrets that could wait for this write.
	err := s.client.Create(ctx, created, client.DisableReadYourWritesConsistency)
	if apierrors.IsAlreadyExists(err) {
		created = &corev1.Secret{}
		err = s.live.Get(ctx, s.secret, created)
	}
	if err != nil {
		return fmt.Errorf("create the key of snapshots: %w", err)
	}
	return s.note(created.Data[Entry])
}

// key returns the one that is remembered, or a new one.
func (s *Store) key() []byte {
	if ring := s.ring.Load(); ring != nil {
		return ring.Key()
	}
	return NewKey()
}

// note makes a key the one that seals.
func (s *Store) note(secret []byte) error {
	before := s.ring.Load()
	if before != nil && bytes.Equal(before.Key(), secret) {
		return nil
	}
	ring := before
	if ring == nil {
		ring = &Ring{}
	}
	ring, err := ring.With(secret)
	if err != nil {
		return fmt.Errorf("the Secret %s: %w", s.secret, err)
	}
	s.ring.Store(ring)
	if before == nil {
		return nil
	}
	select {
	case s.changed <- event.GenericEvent{Object: &bergv1.ChallengeInstance{}}:
	default: // the event before has not been read, and those that it enqueues read this one
	}
	return nil
}
