// Package precedence lets what can wait come after what somebody waits for.
package precedence

import (
	"context"
	"sync"
	"time"
)

// Precedence knows whether anything urgent is under way. The zero value knows of nothing.
type Precedence struct {
	mu     sync.Mutex
	urgent int
	// calm is closed when the last urgent work is done; nil while there is none.
	calm chan struct{}
}

// Take says that something urgent begins, until done is called.
func (p *Precedence) Take() (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.urgent == 0 {
		p.calm = make(chan struct{})
	}
	p.urgent++
	return sync.OnceFunc(p.release)
}

func (p *Precedence) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.urgent--
	if p.urgent == 0 {
		close(p.calm)
		p.calm = nil
	}
}

// GiveWay returns when nothing urgent is under way, when longest is over, or when ctx ends.
func (p *Precedence) GiveWay(ctx context.Context, longest time.Duration) {
	p.mu.Lock()
	calm := p.calm
	p.mu.Unlock()
	if calm == nil || longest <= 0 {
		return
	}
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case <-calm:
	case <-timer.C:
	case <-ctx.Done():
	}
}
