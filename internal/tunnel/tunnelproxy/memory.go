package tunnelproxy

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/bergctf/berg-operator/internal/tunnel/control"
)

// memory is what is known of pairs and stands nowhere else. All of it can be found out again,
// and each is forgotten when its pair is gone. Its zero value is ready for use.
type memory struct {
	mu  sync.Mutex
	all map[types.UID]*remembered
}

type remembered struct {
	keys *Keys
	// caller calls the server proxy at an address, with the identity of keys.
	caller   *control.Client
	callerAt string
	// attempt counts how often the tunnels of one configuration were tried, and when they may
	// be next.
	attempt   int
	attemptOf string
	next      time.Time
	// imageAttempt and imageNext are the same for the image.
	imageAttempt int
	imageNext    time.Time
	// pingAttempt and pingNext are the same for the registry, and pingFailed is why it did not answer
	// the last time.
	pingAttempt int
	pingNext    time.Time
	pingFailed  string
	// hostPorts are those that were chosen for a pod that may not exist yet.
	hostPorts HostPorts
	// cleaned: nothing of the pair is left.
	cleaned bool
}

// with calls do with what is remembered of a pair, and nobody else looking.
func (m *memory) with(uid types.UID, do func(*remembered)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[types.UID]*remembered{}
	}
	if m.all[uid] == nil {
		m.all[uid] = &remembered{}
	}
	do(m.all[uid])
}

func (m *memory) keys(uid types.UID) (k Keys, known bool) {
	m.with(uid, func(r *remembered) {
		if r.keys != nil {
			k, known = *r.keys, true
		}
	})
	return k, known
}

// setKeys remembers keys. Who was called with others is called anew.
func (m *memory) setKeys(uid types.UID, k Keys) {
	m.with(uid, func(r *remembered) {
		r.keys = &k
		r.hangUp()
	})
}

func (r *remembered) hangUp() {
	if r.caller != nil {
		_ = r.caller.Close()
		r.caller, r.callerAt = nil, ""
	}
}

func (m *memory) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.all[uid]; r != nil {
		r.hangUp()
		delete(m.all, uid)
	}
}
