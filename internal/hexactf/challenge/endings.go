package challenge

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// A player may start a challenge again as soon as the platform has read Deleted, under the same name. So that message is sent when the
// name is free, and is stored outside of the challenge until then: in a Lease in the operator's namespace, which a successor finds.
// A Lease is a small object to which no other right gives access.
//
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=create;list;delete,namespace=system

const (
	labelMessage        = "apps.hexactf.io/message"
	annotationNamespace = "apps.hexactf.io/challenge-namespace"
	annotationName      = "apps.hexactf.io/challenge-name"
	annotationKey       = "apps.hexactf.io/message-key"
	annotationValue     = "apps.hexactf.io/message-value"
)

// endings are the messages Deleted that are stored and not acknowledged.
type endings struct {
	reconcile.Access
	namespace string

	mu     sync.Mutex
	loaded bool
	all    map[types.UID]ending
}

type ending struct {
	challenge  types.NamespacedName
	uid        types.UID
	key, value string
	recorded   time.Time
	// sent: only the Lease is left.
	sent bool
}

// deletedMessage returns the last message of a challenge that is being deleted, if the broker has not acknowledged it.
func deletedMessage(s *hexactfv1.ChallengeStatus, acknowledged int64) (m hexactfv1.Message, found bool) {
	left := pending(s, acknowledged)
	if len(left) == 0 || left[len(left)-1].NewStatus != hexactfv1.StateDeleted {
		return m, false
	}
	return left[len(left)-1], true
}

// pendingBefore are the messages that must be acknowledged before a challenge may go: all but Deleted.
func pendingBefore(s *hexactfv1.ChallengeStatus, acknowledged int64) []hexactfv1.Message {
	left := pending(s, acknowledged)
	if _, found := deletedMessage(s, acknowledged); found {
		return left[:len(left)-1]
	}
	return left
}

// store stores the message Deleted of a challenge. It must come before the removal of the finalizer. It is in the memory only
// after it is in the API server. The sender finds it there when the challenge is gone.
func (e *endings) store(ctx context.Context, c *hexactfv1.Challenge, acknowledged int64) error {
	m, found := deletedMessage(&c.Status, acknowledged)
	if !found {
		return nil
	}
	key, value, err := encode(c, m)
	if err != nil {
		return fmt.Errorf("encode the message: %w", err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: e.namespace, Name: leaseName(c.UID), Labels: map[string]string{labelMessage: string(hexactfv1.StateDeleted)},
		Annotations: map[string]string{annotationNamespace: c.Namespace, annotationName: c.Name, annotationKey: key, annotationValue: string(value)},
	}}
	err = e.Client.Create(ctx, lease, client.FieldOwner(e.Writer.Manager), client.DisableReadYourWritesConsistency)
	// The Lease exists if the answer to an earlier attempt was lost, or if the process ended before the finalizer was removed.
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("store the message about the end: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all[c.UID] = ending{challenge: client.ObjectKeyFromObject(c), uid: c.UID, key: key, value: string(value), recorded: m.Timestamp.Time}
	return nil
}

func leaseName(uid types.UID) string { return "hexactf-deleted-" + string(uid) }

// source finds the messages that an earlier process has stored, and enqueues their challenges.
func (e *endings) source() source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		// A source must not block the start of its controller. Until the list is read, find says that it is not ready.
		go func() {
			for attempt := 1; ; attempt++ {
				err := e.load(ctx, queue)
				if err == nil {
					return
				}
				log.FromContext(ctx).Error(err, "listing the stored messages about ended challenges failed, trying again")
				select {
				case <-time.After(sendDelays.After(attempt)):
				case <-ctx.Done():
					return
				}
			}
		}()
		return nil
	})
}

// load reads the stored messages of earlier processes. It must succeed before a message is sent: an older one of the same name
// goes first.
func (e *endings) load(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	var leases coordinationv1.LeaseList
	err := e.Writer.Live.List(ctx, &leases, client.InNamespace(e.namespace), client.MatchingLabels{labelMessage: string(hexactfv1.StateDeleted)})
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range leases.Items {
		l := &leases.Items[i]
		uid := types.UID(l.Name[min(len(leaseName("")), len(l.Name)):])
		stored := ending{
			challenge: types.NamespacedName{Namespace: l.Annotations[annotationNamespace], Name: l.Annotations[annotationName]},
			uid:       uid, key: l.Annotations[annotationKey], value: l.Annotations[annotationValue], recorded: l.CreationTimestamp.Time,
		}
		// store may have added a message since the list was read, and knows more about it.
		if _, known := e.all[uid]; !known && stored.value != "" {
			e.all[uid] = stored
			queue.Add(ctrl.Request{NamespacedName: stored.challenge})
		}
	}
	e.loaded = true
	return nil
}

// find returns the stored messages of challenges that had a name before the present one, the oldest first; ready is false before the
// messages of an earlier process are known. present is empty if the name is free. Before all are known, no message of the name
// may be sent: one of them may have to come first.
func (e *endings) find(name types.NamespacedName, present types.UID) (former []ending, ready bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, stored := range e.all {
		if stored.challenge == name && stored.uid != present {
			former = append(former, stored)
		}
	}
	slices.SortFunc(former, func(a, b ending) int { return a.recorded.Compare(b.recorded) })
	return former, e.loaded
}

// acknowledged removes a message that the broker has. The order matters: first it counts as sent, then the Lease goes, then the
// memory.
func (e *endings) acknowledged(ctx context.Context, stored ending) error {
	// If the Lease cannot be deleted now, the next attempt deletes it, and does not send the message again.
	stored.sent = true
	e.mu.Lock()
	e.all[stored.uid] = stored
	e.mu.Unlock()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: leaseName(stored.uid)}}
	if err := apply.IgnoreAbsent(e.Client.Delete(ctx, lease, client.DisableReadYourWritesConsistency)); err != nil {
		return err
	}
	e.mu.Lock()
	delete(e.all, stored.uid)
	e.mu.Unlock()
	return nil
}

// unsent returns how many messages wait, and since when the oldest does.
func (e *endings) unsent() (count int, oldest time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, stored := range e.all {
		if stored.sent {
			continue
		}
		if count++; oldest.IsZero() || stored.recorded.Before(oldest) {
			oldest = stored.recorded
		}
	}
	return count, oldest
}
