package frontend

import "sync"

// buffers are reused between answers.
type buffers struct{ pool sync.Pool }

const bufferSize = 128 << 10

func newBuffers() *buffers {
	return &buffers{sync.Pool{New: func() any { b := make([]byte, bufferSize); return &b }}}
}

// Get returns a buffer.
func (b *buffers) Get() []byte { return *b.pool.Get().(*[]byte) } //nolint:forcetypeassert // only these are put

// Put takes a buffer back.
func (b *buffers) Put(buffer []byte) { b.pool.Put(&buffer) }
