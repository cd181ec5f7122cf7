// Package family defines a family of APIs: the one value that it adds to the operator. The
// process around it (manager, election, fencing, events, metrics) is shared by all families
// and imports none of them.
package family

import (
	"context"
	"io"
	"net/http"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/admissionpolicy"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/cache"
	"github.com/bergctf/berg-operator/internal/kit/optional"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
	"github.com/bergctf/berg-operator/internal/kit/settings"
)

// Family is a family of APIs. A disabled family costs nothing: no watch, no cache, no
// controller.
type Family struct {
	// API is the group of its custom resources, as in ENABLED_APIS.
	API string
	// Settings are read before any function of the family is called, also if it is disabled,
	// so that errors are reported immediately.
	Settings settings.Section
	// AddToScheme registers every kind that the family reads or writes.
	AddToScheme runtime.SchemeBuilder
	// Cache limits the memory of this family's cache.
	Cache func() cache.Options
	// Setup adds the controllers of the family, and its webhooks, to its manager.
	Setup func(context.Context, Dependencies) error
	// Webhooks are the admission webhooks of the family. The webhooks of a disabled family admit
	// everything.
	Webhooks []Webhook
	// Busy is the work that an upgrade of the operator should wait for. The zero value: none.
	Busy Busy
	// Commands are programs that the operator's image runs instead of the operator if the
	// first argument names one: each gets the other arguments and returns its exit code.
	Commands map[string]func(args []string, errs io.Writer) int
}

// Webhook is an admission webhook. Every replica answers, also while another one leads.
type Webhook struct {
	// Path of the webhook in its configuration in the cluster.
	Path string
	// Handler returns the handler. It is called after Setup; the handler may read from the cache.
	Handler func(Dependencies) http.Handler
}

// Busy is work that a restart of the operator would delay.
type Busy struct {
	// Kind is the kind of the objects whose changes begin and end work.
	Kind client.Object
	// Since lists when each job in flight began.
	Since func(context.Context, client.Reader) ([]time.Time, error)
}

// NewBusy returns the work on the resources T of a list: it began when a resource was deleted, or was created and working
// reports that it is not complete yet.
func NewBusy[T client.Object](list func() client.ObjectList, working func(T) bool) Busy {
	return Busy{
		Kind: reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T),
		Since: func(ctx context.Context, reader client.Reader) (since []time.Time, err error) {
			all := list()
			if err := reader.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
				return nil, err
			}
			err = meta.EachListItem(all, func(item runtime.Object) error {
				if obj := item.(T); obj.GetDeletionTimestamp() != nil {
					since = append(since, obj.GetDeletionTimestamp().Time)
				} else if working(obj) {
					since = append(since, obj.GetCreationTimestamp().Time)
				}
				return nil
			})
			return since, err
		},
	}
}

// Access returns what a reconciler of the family reaches the cluster by. Its events name recorder as their source.
func (d Dependencies) Access(recorder string) reconcile.Access {
	return reconcile.Access{
		Client: d.Manager.GetClient(), Writer: d.Writer, Events: d.Manager.GetEventRecorder(recorder), Clock: d.Clock, Workers: d.Workers,
	}
}

// Dependencies are the clients and values that a family gets. A family keeps no other way to the API server, so that the fence
// and the knowledge of missing kinds hold for all of its requests.
type Dependencies struct {
	// Manager is the manager of the process with the cache, clients, indexes and scheme of
	// the family.
	Manager ctrl.Manager
	// NewClient returns another client over the cache of the family. Its reads wait for its own writes alone.
	NewClient func() (client.Client, error)
	// Writer writes objects. It knows missing kinds as the Manager's client does, and all
	// families share its drift backoff.
	Writer apply.Writer
	// Presence holds the missing kinds for the client, the reader and the Writer. Direct reads
	// from the API server past it, to find out whether a kind is served by now.
	Presence *optional.Presence
	Direct   client.Reader
	// Policies follows the admission policies that a family relies on.
	Policies *admissionpolicy.Policies
	// Clock is the time of day.
	Clock clock.PassiveClock
	// Workers is how many resources of a kind are worked on at the same time.
	Workers int
	// Namespace is the operator's namespace.
	Namespace string
	// Probes and Metrics are the addresses at which the process serves them; Metrics is "0"
	// if it does not.
	Probes, Metrics string
}
