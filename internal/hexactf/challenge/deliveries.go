package challenge

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/backoff"
)

// sendDelays are the delays between attempts to send a message of one challenge.
var sendDelays = backoff.Exponential{First: 100 * time.Millisecond, Max: 5 * time.Second}

// deliveries are what is known of the messages of challenges and is in no status yet. Each is forgotten when its
// challenge is gone. The zero value is ready for use. Nothing of it survives the process: a successor sends again what no status
// has removed, with the same bytes.
type deliveries struct {
	off bool
	mu  sync.Mutex
	all map[types.NamespacedName]delivery
}

type delivery struct {
	uid          types.UID
	acknowledged int64
	problem      string
	// waitingSince is when the deletion of the challenge began to wait for the broker, as far as this process knows.
	waitingSince time.Time
	// lost: the messages were given up.
	lost bool
}

// get returns the delivery of a challenge.
func (d *deliveries) get(c *hexactfv1.Challenge) Delivery {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.known(c)
	return Delivery{Off: d.off, Acknowledged: known.acknowledged, Problem: known.problem}
}

// known is called with the lock held. What is known of an earlier challenge of that name does not count.
func (d *deliveries) known(c *hexactfv1.Challenge) delivery {
	known := d.all[client.ObjectKeyFromObject(c)]
	if known.uid != c.UID {
		return delivery{uid: c.UID}
	}
	return known
}

// update changes a copy, and stores it under the name of the challenge: known gives nothing of an earlier one of that name.
func (d *deliveries) update(c *hexactfv1.Challenge, change func(*delivery)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.known(c)
	change(&known)
	if d.all == nil {
		d.all = map[types.NamespacedName]delivery{}
	}
	d.all[client.ObjectKeyFromObject(c)] = known
}

// acknowledged records that the broker has a message, and reports whether the attempt before had failed.
func (d *deliveries) acknowledged(c *hexactfv1.Challenge, sequence int64) (recovered bool) {
	d.update(c, func(known *delivery) {
		recovered = known.problem != ""
		// A late answer to an earlier attempt never lowers it.
		known.acknowledged, known.problem = max(known.acknowledged, sequence), ""
	})
	return recovered
}

// failed records why a message was not sent, and reports whether that is news.
func (d *deliveries) failed(c *hexactfv1.Challenge, cause string) (fresh bool) {
	d.update(c, func(known *delivery) {
		fresh = known.problem != cause
		known.problem = cause
	})
	return fresh
}

// since returns when the deletion of a challenge began to wait for the broker: now, if it did not begin before.
func (d *deliveries) since(c *hexactfv1.Challenge, now time.Time) (began time.Time) {
	d.update(c, func(known *delivery) {
		if known.waitingSince.IsZero() {
			known.waitingSince = now
		}
		began = known.waitingSince
	})
	return began
}

// lost records that the messages of a challenge were given up, and reports whether that is news.
func (d *deliveries) lost(c *hexactfv1.Challenge) (fresh bool) {
	d.update(c, func(known *delivery) { fresh, known.lost = !known.lost, true })
	return fresh
}

func (d *deliveries) forget(key types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.all, key)
}

// delayedQueue adds requests to the queue of the controller of challenges. Before the controller has started they are
// dropped: it starts with a reconciliation of every challenge.
type delayedQueue struct {
	// The sender is another controller, which may start first.
	queue atomic.Pointer[workqueue.TypedRateLimitingInterface[ctrl.Request]]
}

func (d *delayedQueue) source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		d.queue.Store(&queue)
		return nil
	})
}

func (d *delayedQueue) addAfter(req ctrl.Request, delay time.Duration) {
	if queue := d.queue.Load(); queue != nil {
		(*queue).AddAfter(req, delay)
	}
}
