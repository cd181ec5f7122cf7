package poll

import (
	"maps"
	"sync"
	"time"
)

// Waits are until when a provider is asked nothing with a login, because it said so. A login is the namespace and the name of a Secret, and ""
// for those without: the provider limits them together.
type Waits struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// NewLogin names a login.
func NewLogin(namespace, secret string) string {
	if secret == "" {
		return ""
	}
	return namespace + "/" + secret
}

// Begin has a login wait, unless it waits for longer.
func (w *Waits) Begin(login string, now time.Time, wait time.Duration) {
	if wait <= 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	// Waits that are over go, so the map has only logins that wait now.
	maps.DeleteFunc(w.until, func(_ string, until time.Time) bool { return until.Before(now) })
	if w.until == nil {
		w.until = map[string]time.Time{}
	}
	if until := now.Add(wait); until.After(w.until[login]) {
		w.until[login] = until
	}
}

// For returns for how much longer a login waits.
func (w *Waits) For(login string, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(0, w.until[login].Sub(now))
}
