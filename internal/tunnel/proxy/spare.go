package proxy

import (
	"crypto/tls"
	"sync"
	"time"
)

const (
	// spareLimit is how many data connections are kept while no stream uses them, spareIdle for how
	// long, and spareAge is when they are not used any more, however busy.
	spareLimit = 128
	spareIdle  = 30 * time.Second
	spareAge   = 10 * time.Minute
)

// spares are data connections of the server proxy that no stream uses. Which ones are too old is
// looked at from time to time while there are any.
type spares struct {
	mu      sync.Mutex
	all     []*secure // the one that was used last comes last
	closed  bool
	janitor *time.Timer
}

// get returns a connection that was made with a config and is still open; nil if there is none.
// The one that was used last comes first, so that the others can grow old.
func (s *spares) get(config *tls.Config) *secure {
	for {
		s.mu.Lock()
		if len(s.all) == 0 {
			s.mu.Unlock()
			return nil
		}
		last := s.all[len(s.all)-1]
		s.all = s.all[:len(s.all)-1]
		s.mu.Unlock()
		// Another config: the certificate has been renewed since.
		if last.config == config && time.Since(last.born) < spareAge && last.isQuiet() {
			return last
		}
		last.close()
	}
}

// put keeps a connection, or closes it.
func (s *spares) put(c *secure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.all) >= spareLimit {
		c.close()
		return
	}
	c.idle = time.Now()
	s.all = append(s.all, c)
	if s.janitor == nil {
		s.janitor = time.AfterFunc(spareIdle, s.clean)
	}
}

// clean closes those that nobody has wanted for a while.
func (s *spares) clean() {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := 0
	for old < len(s.all) && time.Since(s.all[old].idle) >= spareIdle {
		s.all[old].close()
		old++
	}
	s.all = append([]*secure(nil), s.all[old:]...)
	s.janitor = nil
	if len(s.all) > 0 && !s.closed {
		s.janitor = time.AfterFunc(spareIdle/2, s.clean)
	}
}

// close closes all, and keeps no more.
func (s *spares) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.janitor != nil {
		s.janitor.Stop()
	}
	for _, c := range s.all {
		c.close()
	}
	s.all = nil
}
