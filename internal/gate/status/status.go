package status

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/bergctf/berg-operator/internal/gate/follow"
	"github.com/bergctf/berg-operator/internal/gate/routing"
)

// writers is how many statuses are written at a time. The API server's own priorities and fairness bound them.
const writers = 16

// Writer writes statuses. The queue has a key once, so a route that changes often is written with its latest state. Keys wait
// while another replica leads, and are compared when this one does: most need no write then.
type Writer struct {
	Client     client.Client
	State      *follow.State
	Controller gatewayv1.GatewayController
	// Features that the class claims.
	Features []gatewayv1.SupportedFeature
	Now      func() time.Time

	queue workqueue.TypedRateLimitingInterface[routing.Key]

	lead    sync.Mutex // held by Lead: a lost lease may be won again before Lead has returned
	mu      sync.Mutex
	leading chan struct{} // closed while this replica leads
}

// NewWriter returns a Writer that State tells of changes. Start and Lead begin to write.
func NewWriter(c client.Client, state *follow.State, controller gatewayv1.GatewayController) *Writer {
	w := &Writer{
		Client: c, State: state, Controller: controller, Now: time.Now,
		leading: make(chan struct{}), queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[routing.Key]()),
	}
	state.Changed = func(key routing.Key) { w.queue.Add(key) }
	return w
}

// Start writes until ctx is done, while this replica leads.
func (w *Writer) Start(ctx context.Context) {
	defer w.queue.ShutDown()
	for range writers {
		go w.work(ctx)
	}
	<-ctx.Done()
}

// Lead lets this replica write until ctx is done.
func (w *Writer) Lead(ctx context.Context) {
	w.lead.Lock()
	defer w.lead.Unlock()
	close(w.leads())
	<-ctx.Done()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leading = make(chan struct{})
}

func (w *Writer) leads() chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leading
}

// work takes a key before it is leader, and keeps it until then, so that the first status after a change of leaders is written
// immediately. A conflict is no error: the next attempt reads the object again.
func (w *Writer) work(ctx context.Context) {
	for {
		key, shutdown := w.queue.Get()
		if shutdown {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-w.leads():
		}
		err := w.write(ctx, key)
		switch {
		case err == nil, apierrors.IsNotFound(err):
			w.queue.Forget(key)
		default:
			if !apierrors.IsConflict(err) && ctx.Err() == nil {
				log.FromContext(ctx).Error(err, "a status was not written", "kind", key.Kind, "namespace", key.Namespace, "name", key.Name)
			}
			w.queue.AddRateLimited(key)
		}
		w.queue.Done(key)
	}
}

func (w *Writer) write(ctx context.Context, key routing.Key) error {
	switch key.Kind {
	case follow.ClassKind:
		return w.writeClass(ctx, key.Name)
	case follow.GatewayKind:
		return w.writeGateway(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name})
	case routing.TLSRoute:
		route := &gatewayv1.TLSRoute{}
		return w.writeRoute(ctx, key, route, func() *gatewayv1.RouteStatus { return &route.Status.RouteStatus })
	default:
		route := &gatewayv1.HTTPRoute{}
		return w.writeRoute(ctx, key, route, func() *gatewayv1.RouteStatus { return &route.Status.RouteStatus })
	}
}

// writeClass leaves classes of other controllers alone.
func (w *Writer) writeClass(ctx context.Context, name string) error {
	class := &gatewayv1.GatewayClass{}
	if err := w.Client.Get(ctx, client.ObjectKey{Name: name}, class); err != nil {
		return fmt.Errorf("read GatewayClass %s: %w", name, err)
	}
	if class.Spec.ControllerName != w.Controller {
		return nil
	}
	before := class.DeepCopy()
	accepted := metav1.Condition{Type: string(gatewayv1.GatewayClassConditionStatusAccepted), Status: metav1.ConditionTrue, Reason: string(gatewayv1.GatewayClassReasonAccepted), Message: "Gateways of this class are served", ObservedGeneration: class.Generation}
	if class.Spec.ParametersRef != nil {
		accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionFalse, string(gatewayv1.GatewayClassReasonInvalidParameters), "parametersRef is not supported: remove it"
	}
	class.Status.Conditions = w.merge(class.Status.Conditions, []metav1.Condition{accepted})
	class.Status.SupportedFeatures = w.Features
	return w.patch(ctx, before, class, equality.Semantic.DeepEqual(before.Status, class.Status))
}

// writeGateway computes the status from the object as it is now, and keeps the times of conditions that do not change.
func (w *Writer) writeGateway(ctx context.Context, name types.NamespacedName) error {
	compiled, ours := w.State.GatewayStatus(name)
	if !ours {
		return nil
	}
	gateway := &gatewayv1.Gateway{}
	if err := w.Client.Get(ctx, name, gateway); err != nil {
		return fmt.Errorf("read Gateway %s: %w", name, err)
	}
	before := gateway.DeepCopy()
	gateway.Status.Addresses = w.State.ChooseAddresses(gateway)
	gateway.Status.Conditions = w.merge(gateway.Status.Conditions, compiled.Conditions)
	listeners := make([]gatewayv1.ListenerStatus, 0, len(compiled.Statuses))
	for _, listener := range compiled.Statuses {
		var known []metav1.Condition
		for _, current := range gateway.Status.Listeners {
			if current.Name == listener.Name {
				known = current.Conditions
			}
		}
		listener.Conditions = w.merge(known, listener.Conditions)
		listeners = append(listeners, listener)
	}
	gateway.Status.Listeners = listeners
	return w.patch(ctx, before, gateway, equality.Semantic.DeepEqual(before.Status, gateway.Status))
}

// writeRoute replaces the parents of a route that are Gateways of ours. Those of other controllers stay.
func (w *Writer) writeRoute(ctx context.Context, key routing.Key, route client.Object, status func() *gatewayv1.RouteStatus) error {
	parents := w.State.RouteParents(key)
	if err := w.Client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, route); err != nil {
		return fmt.Errorf("read %s %s/%s: %w", key.Kind, key.Namespace, key.Name, err)
	}
	before, ok := route.DeepCopyObject().(client.Object)
	if !ok {
		return nil
	}
	current := status().Parents
	wanted := slices.DeleteFunc(slices.Clone(current), func(p gatewayv1.RouteParentStatus) bool { return p.ControllerName == w.Controller })
	for _, parent := range parents {
		var known []metav1.Condition
		for i := range current {
			if current[i].ControllerName == w.Controller && equality.Semantic.DeepEqual(current[i].ParentRef, parent.Ref) {
				known = current[i].Conditions
			}
		}
		wanted = append(wanted, gatewayv1.RouteParentStatus{ParentRef: parent.Ref, ControllerName: w.Controller, Conditions: w.merge(known, parent.Conditions)})
	}
	unchanged := equality.Semantic.DeepEqual(current, wanted)
	status().Parents = wanted
	return w.patch(ctx, before, route, unchanged)
}

// merge returns the wanted conditions. One that has not changed keeps its time, and those that others wrote stay.
func (w *Writer) merge(known, wanted []metav1.Condition) []metav1.Condition {
	out := slices.Clone(known)
	for _, condition := range wanted {
		condition.LastTransitionTime = metav1.NewTime(w.Now())
		i := slices.IndexFunc(out, func(c metav1.Condition) bool { return c.Type == condition.Type })
		if i < 0 {
			out = append(out, condition)
			continue
		}
		if out[i].Status == condition.Status {
			condition.LastTransitionTime = out[i].LastTransitionTime
		}
		out[i] = condition
	}
	return out
}

// patch writes a status if it has changed, unless another client wrote in between. The lock refuses a write from an old view. The
// key is queued again, and reads the newer object.
func (w *Writer) patch(ctx context.Context, before, after client.Object, unchanged bool) error {
	if unchanged {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := w.Client.Status().Patch(ctx, after, patch); err != nil {
		return fmt.Errorf("write the status of %s/%s: %w", after.GetNamespace(), after.GetName(), err)
	}
	return nil
}
