package record

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/clockskew"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Sweeper deletes the records whose time is over, and the oldest of more than there may be. Every
// event of a record enqueues it, and a timer at the end of the next one: it remembers nothing.
type Sweeper struct {
	Client client.Client
	Clock  clock.PassiveClock
	Config config.Record

	backoff *outcome.Backoff
}

// listKind is the kind of lists of records.
var listKind = bergv1.GroupVersion.WithKind("ChallengeInstanceRecordList")

// Kind is the object that the cache must keep: the metadata of records.
func Kind() client.Object { return metadata() }

// theSweep is the one request.
var theSweep = []ctrl.Request{{NamespacedName: types.NamespacedName{Name: "records"}}}

// SetupWithManager opens the watch.
func (s *Sweeper) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	s.backoff = outcome.NewBackoff()
	reader := mgr.GetCache()
	stored.Watch(func(ctx context.Context) (float64, error) {
		all, err := list(ctx, reader, s.Config.Namespace)
		return float64(len(all)), err
	}, mgr.Elected())
	storedBytes.Watch(func(ctx context.Context) (float64, error) {
		all, err := list(ctx, reader, s.Config.Namespace)
		var sum int64
		for i := range all {
			sum += sizeAsWritten(&all[i])
		}
		return float64(sum), err
	}, mgr.Elected())
	if err := reconcile.Open(ctx, mgr.GetCache(), metadata()); err != nil {
		return err
	}
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []ctrl.Request { return theSweep })
	return ctrl.NewControllerManagedBy(mgr).
		Named("challengeinstancerecord").
		WatchesMetadata(metadata(), all).
		WatchesRawSource(clockskew.Source(s.Clock, all)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1, ReconciliationTimeout: reconcile.Timeout}).
		Complete(reconcile.New(s.Clock, s.backoff, reconcileMetrics, s.reconcile))
}

func list(ctx context.Context, reader client.Reader, namespace string) ([]metav1.PartialObjectMetadata, error) {
	var all metav1.PartialObjectMetadataList
	all.SetGroupVersionKind(listKind)
	err := reader.List(ctx, &all, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
	return all.Items, err
}

// reconcile goes through all records: the limits are on their number and their sum. An error of one does not keep the others.
func (s *Sweeper) reconcile(ctx context.Context, _ ctrl.Request) (next time.Duration, err error) {
	all, err := list(ctx, s.Client, s.Config.Namespace)
	if err != nil {
		return 0, err
	}
	over, next := sweep(all, s.Config, s.Clock.Now())
	var errs []error
	for _, r := range over {
		gone := metadata()
		gone.Namespace, gone.Name = r.Namespace, r.Name
		// The UID keeps a newer record of the same name from being deleted.
		err := apply.IgnoreAbsent(s.Client.Delete(ctx, gone, client.Preconditions{UID: ptr.To(r.UID)}))
		if err == nil {
			swept.Inc()
		}
		errs = append(errs, err)
	}
	return next, errors.Join(errs...)
}
