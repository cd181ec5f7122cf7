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

// preamble begins a stream on a data connection: the IDs of tunnel and stream, both big-endian, and the stream's token.
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

// opening is a stream that waits for its data connection. The token is drawn by the client proxy and travels to the server proxy
// over the control connection alone, so only that server proxy can bring the data connection.
type opening struct {
	id     uint64
	tunnel *tunnel
	token  [tokenSize]byte
	client *net.TCPConn

	mu      sync.Mutex
	done    bool
	timeout *time.Timer
	begin   *time.Timer // begins to watch
	watch   *watch      // nil before
}

// arm calls late if the stream waits for too long, and gone if its client disconnects before.
func (o *opening) arm(timeout time.Duration, late, gone func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	// The stream waits from add on: its data connection may have come before this call.
	if o.done {
		return
	}
	o.timeout = time.AfterFunc(timeout, late)
	// Most streams are made before, and need no watch.
	o.begin = time.AfterFunc(watchAfter, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if !o.done {
			o.watch = newWatch(o.client, gone)
		}
	})
}

// disarm stops both, so that the client can be read. It waits for the watch, which peeks at the same connection.
func (o *opening) disarm() {
	o.mu.Lock()
	defer o.mu.Unlock()
	// begin may have fired and wait for the lock: it then finds done, and begins no watch.
	o.done = true
	if o.timeout != nil {
		o.timeout.Stop()
		o.begin.Stop()
	}
	if o.watch != nil {
		o.watch.stop()
	}
}

// ref returns the stream's ID for messages.
func (o *opening) ref() *control.StreamRef {
	return &control.StreamRef{StreamId: o.id, TunnelId: o.tunnel.id}
}

// openings are the streams that wait. Only the caller that takes one out may join or fail it, so
// that exactly one does.
type openings struct {
	mu   sync.Mutex
	last uint64
	all  map[uint64]*opening
}

// add adds a client that waits for its stream.
func (s *openings) add(owner *tunnel, client *net.TCPConn) *opening {
	o := &opening{tunnel: owner, client: client}
	_, _ = rand.Read(o.token[:]) // it never fails
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	o.id = s.last
	s.all[o.id] = o
	return o
}

// find returns a stream that waits; nil if there is none of this ID.
func (s *openings) find(id uint64) *opening {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[id]
}

// take removes a stream that waits; nil if there is none of this ID.
func (s *openings) take(id uint64) *opening {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.all[id]
	delete(s.all, id)
	return o
}

var (
	errUnknownStream = errors.New("no stream of this ID waits: it never existed, exists already, or has failed")
	errWrongToken    = errors.New("the token does not match the stream")
)

// authenticate removes and returns the stream whose token a preamble has.
func (s *openings) authenticate(p *preamble) (*opening, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.all[p.stream()]
	if o == nil || o.tunnel.id != p.tunnel() {
		return nil, errUnknownStream
	}
	// After a wrong guess the stream keeps waiting for the right token.
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
