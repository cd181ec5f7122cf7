package proxy

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/bergctf/berg-operator/internal/tunnel/pki"
)

// bothEnds returns both ends of a data connection.
func bothEnds(t testing.TB) (dials, serves *secure) {
	t.Helper()
	_, dirs := certificates(t, time.Now(), time.Hour)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var all sync.WaitGroup
	var serving, dialling error
	all.Go(func() {
		c, err := l.Accept()
		if err == nil {
			serves, err = secureServer(c.(*net.TCPConn), identityOf(t, dirs[pki.ClientProxy]).Serve(pki.ServerProxy, DataProtocol))
		}
		serving = err
	})
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if dials, dialling = secureClient(c.(*net.TCPConn), identityOf(t, dirs[pki.ServerProxy]).Dial(pki.ClientProxy, DataProtocol)); dialling == nil {
		dialling = dials.wire.release(false) // the last flight of the handshake
	}
	all.Wait()
	if err := errors.Join(serving, dialling); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dials.close(); serves.close() })
	return dials, serves
}

// However bytes are cut, they arrive as they were, and each stream ends where it ended.
func TestFrames(t *testing.T) {
	dials, serves := bothEnds(t)
	random := rand.New(rand.NewPCG(1, 2))
	var streams [][]byte
	for range 50 {
		one := make([]byte, random.IntN(400_000))
		for i := range one {
			one[i] = byte(random.Uint32())
		}
		streams = append(streams, one)
	}
	go func() {
		buffer := new([bufferSize]byte)
		for _, one := range streams {
			for left := one; len(left) > 0; {
				n := min(len(left), 1+random.IntN(framePayload))
				copy(buffer[frameHeader:], left[:n])
				if err := dials.writeFrame(buffer, n); err != nil {
					t.Error(err)
					return
				}
				left = left[n:]
			}
			if err := dials.writeEnd(); err != nil {
				t.Error(err)
			}
		}
	}()
	for n, want := range streams {
		var got bytes.Buffer
		if err := serves.readFrames(func(p []byte) error { got.Write(p); return nil }); err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Fatalf("stream %d: %d bytes of %d, %v", n, got.Len(), len(want), err)
		}
	}
	if !serves.isQuiet() || serves.plain != nil || serves.wire.buffer != nil || dials.wire.out != nil {
		t.Error("a buffer is held while nothing comes")
	}
}

func TestFramesOfAPeerThatIsNotOurs(t *testing.T) {
	dials, serves := bothEnds(t)
	if err := dials.writeBatch(binary.BigEndian.AppendUint32(nil, framePayload+1)); err != nil {
		t.Fatal(err)
	}
	if err := serves.readFrames(func([]byte) error { return nil }); !errors.Is(err, errFrame) {
		t.Errorf("a frame that is too long: %v", err)
	}
	dials, serves = bothEnds(t)
	if err := dials.writeBatch([]byte{0, 0, 0, 9, 1, 2}); err != nil {
		t.Fatal(err)
	}
	dials.close()
	if err := serves.readFrames(func([]byte) error { return nil }); err == nil {
		t.Error("a frame that is cut is taken for a whole one")
	}
	dials, serves = bothEnds(t)
	if err := dials.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := serves.readFrames(func([]byte) error { return nil }); err == nil {
		t.Error("the end of TLS is not that of a stream")
	}
}

// A key update comes between two records and is no reason to wait with what came before.
func TestRecordsThatHoldNothingForUs(t *testing.T) {
	dials, serves := bothEnds(t)
	if err := dials.writeBatch([]byte{0, 0, 0, 1, 'x'}); err != nil {
		t.Fatal(err)
	}
	within(t, "it has come", func() bool { return !serves.isQuiet() })
	if err := serves.wire.fill(); err != nil {
		t.Fatal(err)
	}
	// Half of a record behind a whole one.
	whole := serves.wire.to
	copy(serves.wire.buffer[whole:], []byte{23, 3, 3, 0, 100, 1, 2, 3})
	serves.wire.to += 8
	p := make([]byte, batchSize)
	n, err := serves.readBatch(p)
	if err != nil || !bytes.Equal(p[:n], []byte{0, 0, 0, 1, 'x'}) {
		t.Errorf("%q, %v", p[:n], err)
	}
}

func TestPlainBytesAreNoTLS(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := net.Dial("tcp", l.Addr().String())
		if err == nil {
			_, _ = io.WriteString(c, "this is no handshake at all")
			_ = c.Close()
		}
	}()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, dirs := certificates(t, time.Now(), time.Hour)
	var header tls.RecordHeaderError
	if _, err := secureServer(c.(*net.TCPConn), identityOf(t, dirs[pki.ClientProxy]).Serve(pki.ServerProxy, DataProtocol)); !errors.As(err, &header) {
		t.Errorf("%v", err)
	}
}
