package challenge

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
)

// waits are since when deletions wait for the broker, as far as this process knows. Each is forgotten when the challenge
// is gone. The zero value is ready for use.
type waits struct {
	mu  sync.Mutex
	all map[types.NamespacedName]brokerWait
}

type brokerWait struct {
	uid   types.UID
	since time.Time
	lost  bool
}

// since returns when the wait for a challenge began: now, if it did not begin before.
func (w *waits) since(c *hexactfv1.Challenge, now time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := client.ObjectKeyFromObject(c)
	known, ok := w.all[key]
	if !ok || known.uid != c.UID {
		known = brokerWait{uid: c.UID, since: now}
		if w.all == nil {
			w.all = map[types.NamespacedName]brokerWait{}
		}
		w.all[key] = known
	}
	return known.since
}

// lost records that the messages of a challenge were given up, and reports whether that is news.
func (w *waits) lost(c *hexactfv1.Challenge) (fresh bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := client.ObjectKeyFromObject(c)
	known := w.all[key]
	fresh = !known.lost
	known.lost = true
	w.all[key] = known
	return fresh
}

func (w *waits) forget(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, key)
}
