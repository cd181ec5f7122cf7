package dataconn

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

// configs returns those of a client proxy and of a server proxy.
func configs(t testing.TB) (client, server *tls.Config) {
	t.Helper()
	authority, err := pki.NewAuthority("test", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	of := func(role pki.Role) *pki.Identity {
		pair, err := authority.Issue(role, time.Now(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		identity, err := pki.NewIdentity(authority.Certificate, pair)
		if err != nil {
			t.Fatal(err)
		}
		return identity
	}
	const protocol = "test/1"
	return of(pki.ClientProxy).Serve(pki.ServerProxy, protocol), of(pki.ServerProxy).Dial(pki.ClientProxy, protocol)
}

// bothEnds returns both ends of a data connection.
func bothEnds(t testing.TB) (dials, serves *Conn) {
	t.Helper()
	client, server := configs(t)
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
			serves, err = Accept(c.(*net.TCPConn), client, func(w net.Conn) net.Conn { return w })
		}
		serving = err
	})
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if dials, dialling = Dial(c.(*net.TCPConn), server); dialling == nil {
		dialling = dials.records.release(false) // the last flight of the handshake
	}
	all.Wait()
	if err := errors.Join(serving, dialling); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dials.Close(); _ = serves.Close() })
	return dials, serves
}

// Bytes arrive unchanged in frames of any size, and each stream ends where it ended.
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
	if !serves.Quiet() || serves.plain != nil || serves.records.buffer != nil || dials.records.out != nil {
		t.Error("a buffer is held while the stream is idle")
	}
}

func TestInvalidFrames(t *testing.T) {
	dials, serves := bothEnds(t)
	if err := dials.Send(binary.BigEndian.AppendUint32(nil, framePayload+1)); err != nil {
		t.Fatal(err)
	}
	if err := serves.readFrames(func([]byte) error { return nil }); !errors.Is(err, errFrame) {
		t.Errorf("a frame that is too long: %v", err)
	}
	dials, serves = bothEnds(t)
	if err := dials.Send([]byte{0, 0, 0, 9, 1, 2}); err != nil {
		t.Fatal(err)
	}
	_ = dials.Close()
	if err := serves.readFrames(func([]byte) error { return nil }); err == nil {
		t.Error("a frame that is cut is taken for a complete one")
	}
	dials, serves = bothEnds(t)
	if err := dials.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := serves.readFrames(func([]byte) error { return nil }); err == nil {
		t.Error("a TLS close is taken for the end of a stream")
	}
}

// An incomplete record does not hold up the complete one before it.
func TestIncompleteRecords(t *testing.T) {
	dials, serves := bothEnds(t)
	if err := dials.Send([]byte{0, 0, 0, 1, 'x'}); err != nil {
		t.Fatal(err)
	}
	for tick := time.Tick(time.Millisecond); serves.Quiet(); {
		select {
		case <-tick:
		case <-t.Context().Done():
			t.Fatal("the record did not arrive")
		}
	}
	if err := serves.records.fill(); err != nil {
		t.Fatal(err)
	}
	// Half of a record behind a whole one.
	whole := serves.records.to
	copy(serves.records.buffer[whole:], []byte{23, 3, 3, 0, 100, 1, 2, 3})
	serves.records.to += 8
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
	client, _ := configs(t)
	var header tls.RecordHeaderError
	if _, err := Accept(c.(*net.TCPConn), client, func(w net.Conn) net.Conn { return w }); !errors.As(err, &header) {
		t.Errorf("%v", err)
	}
}
