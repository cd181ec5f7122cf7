package prepull

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// Reconciler has images pulled before players need them.
type Reconciler struct {
	// Client reads from the cache, which must wait for the client's own writes.
	Client client.Client
	// Live reads from the API server: the pull secret.
	Live client.Reader
	// Manager is who writes.
	Manager string
	Events  events.EventRecorder
	Clock   clock.PassiveClock
	Config  config.Berg
	// Namespace is that of the operator, where the pull secret is.
	Namespace string

	backoff *outcome.Backoff
	// ledger is in the hands of the one worker.
	ledger *store
}

// These rights are in a role of their own: berg-prepull. What pulling does beside them
// (namespaces, network policies, Deployments, the copy of the pull secret) instances need too.
//
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=node.k8s.io,resources=runtimeclasses,verbs=list;watch
// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challenges/status,verbs=patch

// reconcile brings the images of all Challenges a step further. It returns after how long time
// alone will change something, zero for never.
func (r *Reconciler) reconcile(ctx context.Context, req ctrl.Request) (again time.Duration, err error) {
	r.backoff.ResetIfReplaced(req, "")
	now := r.Clock.Now()
	o, err := r.observe(ctx)
	if err != nil {
		return 0, err
	}
	all := wishes(o, r.Config, now)
	var errs []error
	errs = append(errs, r.settle(ctx, &o, all, now))
	r.ledger.look(o, all, r.Config.Challenge.ImagePullPolicy == corev1.PullAlways)
	starts, untilRetry := next(all, o.Pulls, r.ledger, r.Config.Prepull.Concurrency, now)
	for _, s := range starts {
		errs = append(errs, r.begin(ctx, &o, s, now))
	}
	errs = append(errs, r.tidy(ctx, o, all))

	again = untilRetry
	for i := range all {
		left, err := r.tell(ctx, &all[i], o, now)
		errs = append(errs, err)
		again = sooner(sooner(again, left), all[i].Window.turns(now))
	}
	for _, p := range o.Pulls {
		again = sooner(again, max(time.Second, maxPull-now.Sub(p.Deployment.CreationTimestamp.Time)))
	}
	failing.Store(int64(len(r.ledger.failed)))
	return again, errors.Join(errs...)
}

// settle ends the pulls that are done, and those that nobody wants any more. What goes on stays
// in o.
func (r *Reconciler) settle(ctx context.Context, o *Observed, all []Wish, now time.Time) error {
	of := map[types.UID]*Wish{}
	for i := range all {
		of[all[i].Challenge.UID] = &all[i]
	}
	var going []Pull
	var errs []error
	for _, p := range o.Pulls {
		if w := of[p.Challenge]; w != nil && isWanted(w, p.Target) {
			v := checkPods(p.Deployment.CreationTimestamp.Time, p.Pods, now)
			switch {
			case v.Pulled:
				if r.ledger.pulled(p.Target) {
					pulls.WithLabelValues(bergv1.ImagesPulled).Inc()
				}
			case v.Failed:
				if r.ledger.fail(attempt{p.Challenge, p.Target}, w.Challenge.Generation, p.Deployment.UID, v.Message, now) {
					pulls.WithLabelValues(bergv1.ImagesPullFailed).Inc()
				}
				// The pull secret may be another one by now.
				delete(r.ledger.rooms, o.Rooms[p.Challenge].UID)
			default:
				going = append(going, p)
				continue
			}
		}
		if err := apply.Delete(ctx, r.Client, p.Deployment); err != nil {
			errs = append(errs, fmt.Errorf("end the pull of %s: %w", p.Target.Image, err))
			going = append(going, p) // it has its place until it is gone
		}
	}
	o.Pulls = going
	return errors.Join(errs...)
}

// isWanted reports whether a pull that is under way may go on. When players see the Challenge
// what has begun is of use to them.
func isWanted(w *Wish, t Target) bool {
	return w.Window.Stage == over || w.Window.Stage == open && slices.Contains(w.Targets, t)
}

// begin begins a pull, in a namespace that confines it.
func (r *Reconciler) begin(ctx context.Context, o *Observed, s start, now time.Time) error {
	c := s.Wish.Challenge
	room := o.Rooms[c.UID]
	if room == nil {
		room = namespace(c)
		if err := r.create(ctx, room); err != nil {
			return r.refuse(s, fmt.Errorf("create the namespace in which images are pulled: %w", err), now)
		}
		o.Rooms[c.UID] = room
	}
	secret, err := r.prepare(ctx, c.UID, room)
	if err != nil {
		return r.refuse(s, err, now)
	}
	d := deployment(Inputs{
		Challenge: c.UID, Target: s.Target, Node: o.Nodes[s.Target.Node].Name,
		PullSecret: secret, Config: r.Config.Challenge, Now: now,
	})
	if err := r.create(ctx, d); err != nil {
		return r.refuse(s, fmt.Errorf("create the pull of %s: %w", s.Target.Image, err), now)
	}
	o.Pulls = append(o.Pulls, Pull{Challenge: c.UID, Target: s.Target, Deployment: d})
	return nil
}

// refuse takes what the API server will refuse again for a failed pull. Everything else is
// returned, to be tried soon.
func (r *Reconciler) refuse(s start, err error, now time.Time) error {
	switch outcome.CauseOf(err) {
	case outcome.Rejected, outcome.NotOwned:
		r.ledger.fail(attempt{s.Wish.Challenge.UID, s.Target}, s.Wish.Challenge.Generation, "", err.Error(), now)
		pulls.WithLabelValues(bergv1.ImagesPullFailed).Inc()
		return nil
	default:
		return err
	}
}

// create makes an object that is never changed. If there is one of its name the cache will show
// it, and the next pass whose it is.
func (r *Reconciler) create(ctx context.Context, o client.Object) error {
	err := r.Client.Create(ctx, o, client.FieldOwner(r.Manager))
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("%w: %w", outcome.ErrConflict, err)
	}
	return err
}

// prepare confines a namespace and copies the pull secret into it, once. It returns the name of
// the copy. A missing source is no reason to stop: the image may be public, and instances tell of it.
func (r *Reconciler) prepare(ctx context.Context, challenge types.UID, room *corev1.Namespace) (secret string, err error) {
	if name, ok := r.ledger.rooms[room.UID]; ok {
		return name, nil
	}
	// None of both may be in a cache that could wait for this write.
	err = r.Client.Create(ctx, networkPolicy(challenge), client.FieldOwner(r.Manager), client.DisableReadYourWritesConsistency)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("close the namespace in which images are pulled: %w", err)
	}
	if name := r.Config.Challenge.PullSecretName; name != "" {
		source := &corev1.Secret{}
		switch err := r.Live.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: name}, source); {
		case apply.Absent(err):
		case err != nil:
			return "", fmt.Errorf("read the pull secret: %w", err)
		default:
			copied := pullSecret(challenge, room.UID, source)
			err := r.Client.Create(ctx, copied, client.FieldOwner(r.Manager), client.DisableReadYourWritesConsistency)
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return "", fmt.Errorf("copy the pull secret: %w", err)
			}
			secret = copied.Name
		}
	}
	r.ledger.rooms[room.UID] = secret
	return secret, nil
}

// tidy takes away the namespaces in which nothing is pulled any more.
func (r *Reconciler) tidy(ctx context.Context, o Observed, all []Wish) error {
	needed := map[types.UID]bool{}
	for i := range all {
		needed[all[i].Challenge.UID] = needsRoom(&all[i], r.ledger)
	}
	for _, p := range o.Pulls {
		needed[p.Challenge] = true
	}
	var errs []error
	for challenge, room := range o.Rooms {
		if needed[challenge] || room.DeletionTimestamp != nil {
			continue
		}
		if err := apply.Delete(ctx, r.Client, room); err != nil {
			errs = append(errs, fmt.Errorf("delete the namespace in which images were pulled: %w", err))
		}
	}
	return errors.Join(errs...)
}

// tell writes the condition of a Challenge, if it says something new. It returns how long news
// have to wait.
func (r *Reconciler) tell(ctx context.Context, w *Wish, o Observed, now time.Time) (left time.Duration, err error) {
	c := w.Challenge
	if len(c.Status.Conditions) == 0 && (w.Window.Stage == never || w.Window.Stage == over) {
		return 0, nil // most Challenges, most of the time
	}
	if refused, ok := r.ledger.refused[c.UID]; ok && refused.Generation == c.Generation {
		if left := refused.again().Sub(now); left > 0 {
			return left, nil
		}
	}
	after := c.DeepCopy()
	news := computeStatus(after, w, o, r.ledger, now)
	if news == sameNews {
		return 0, nil
	}
	if told, ok := r.ledger.told[c.UID]; ok && news == progress {
		if left := told.Add(tellEvery).Sub(now); left > 0 {
			return left, nil
		}
	}
	switch err := r.patchStatus(ctx, c, after); {
	case errors.Is(err, outcome.ErrGone): // its event comes
		return 0, nil
	case outcome.CauseOf(err) == outcome.Rejected: // an event tells it
		r.ledger.refuse(c.UID, c.Generation, now)
		return r.ledger.refused[c.UID].again().Sub(now), nil
	case err != nil:
		return 0, err
	}
	delete(r.ledger.refused, c.UID)
	r.ledger.told[c.UID] = now
	if news == turn {
		r.report(after)
	}
	return 0, nil
}
