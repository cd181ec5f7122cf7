package proxy

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/bergctf/berg-operator/internal/tunnel/control"
)

const (
	tokenSize    = 32
	preambleSize = 4 + 8 + tokenSize
)

// preamble is what a data connection begins with: the id of the tunnel and that of the stream,
// both big-endian, and the token of the stream.
type preamble [preambleSize]byte

func newPreamble(tunnel uint32, stream uint64, token []byte) (p preamble) {
	binary.BigEndian.PutUint32(p[0:], tunnel)
	binary.BigEndian.PutUint64(p[4:], stream)
	copy(p[12:], token)
	return p
}

func (p *preamble) tunnel() uint32 { return binary.BigEndian.Uint32(p[0:]) }
func (p *preamble) stream() uint64 { return binary.BigEndian.Uint64(p[4:]) }
func (p *preamble) token() []byte  { return p[12:] }

// opening is a stream that waits for its data connection.
type opening struct {
	id     uint64
	tunnel *tunnel
	token  [tokenSize]byte
	client *net.TCPConn

	mu      sync.Mutex
	done    bool
	timeout *time.Timer
	look    *time.Timer
	watch   *watch // nil if nobody watches yet
}

// arm calls late if the stream waits for too long, and gone if its client goes meanwhile.
func (o *opening) arm(patience time.Duration, late, gone func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done {
		return
	}
	o.timeout = time.AfterFunc(patience, late)
	// Most streams are made long before.
	o.look = time.AfterFunc(watchAfter, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if !o.done {
			o.watch = newWatch(o.client, gone)
		}
	})
}

// disarm lets nothing more happen, and the client be read.
func (o *opening) disarm() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done = true
	if o.timeout != nil {
		o.timeout.Stop()
		o.look.Stop()
	}
	if o.watch != nil {
		o.watch.stop()
	}
}

// ref names the stream.
func (o *opening) ref() *control.StreamRef {
	return &control.StreamRef{StreamId: o.id, TunnelId: o.tunnel.id}
}

// openings are the streams that wait. Whoever takes one out of it decides what becomes of it,
// and does so alone.
type openings struct {
	mu   sync.Mutex
	last uint64
	all  map[uint64]*opening
}

// add lets a client wait.
func (s *openings) add(of *tunnel, client *net.TCPConn) *opening {
	o := &opening{tunnel: of, client: client}
	_, _ = rand.Read(o.token[:]) // which never fails
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	o.id = s.last
	s.all[o.id] = o
	return o
}

// take returns a stream that waits, which waits no more then; nil if it does not.
func (s *openings) take(id uint64) *opening {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.all[id]
	delete(s.all, id)
	return o
}

var (
	errUnknownStream = errors.New("no stream of this id waits: it never has, has been made already, or has failed")
	errWrongToken    = errors.New("the token is not that of the stream")
)

// claim returns the stream that a preamble proves to belong to, which waits no more then.
func (s *openings) claim(p *preamble) (*opening, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.all[p.stream()]
	if o == nil || o.tunnel.id != p.tunnel() {
		return nil, errUnknownStream
	}
	// Whoever guesses takes nothing from the one who knows: the stream goes on waiting.
	if subtle.ConstantTimeCompare(o.token[:], p.token()) != 1 {
		return nil, errWrongToken
	}
	delete(s.all, o.id)
	return o, nil
}

// list returns all that wait.
func (s *openings) list() []*opening {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*opening, 0, len(s.all))
	for _, o := range s.all {
		all = append(all, o)
	}
	return all
}
