package dataconn

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// BenchmarkStream copies a stream between plain connections through a data connection, and in the same way through crypto/tls
// and io.Copy, which is what this package replaces. cpu-ns/KiB is the CPU time of both ends together.
func BenchmarkStream(b *testing.B) {
	const size = 64 << 20
	for name, through := range map[string]func(testing.TB, *net.TCPConn, *net.TCPConn) error{"dataconn": throughDataConn, "tls": throughTLS} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			before := cpuTime(b)
			for b.Loop() {
				sender, from := plainPair(b)
				to, receiver := plainPair(b)
				var all sync.WaitGroup
				var sending, receiving error
				var received int64
				all.Go(func() {
					chunk := make([]byte, 64<<10)
					for range size / len(chunk) {
						if _, sending = sender.Write(chunk); sending != nil {
							return
						}
					}
					sending = sender.CloseWrite()
				})
				all.Go(func() { received, receiving = io.Copy(io.Discard, struct{ io.Reader }{receiver}) })
				err := through(b, from, to)
				all.Wait()
				if err := errors.Join(err, sending, receiving); err != nil || received != size {
					b.Fatalf("%d of %d bytes: %v", received, size, err)
				}
				for _, c := range []*net.TCPConn{sender, from, to, receiver} {
					_ = c.Close()
				}
			}
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N)/(size>>10), "cpu-ns/KiB")
		})
	}
}

func throughDataConn(t testing.TB, from, to *net.TCPConn) error {
	dials, serves := bothEnds(t)
	var all sync.WaitGroup
	var sending error
	all.Go(func() { sending = dials.CopyFrom(from, func(int) {}, func() {}) })
	receiving := serves.CopyTo(to, func(int) {})
	all.Wait()
	return errors.Join(sending, receiving)
}

func throughTLS(t testing.TB, from, to *net.TCPConn) error {
	client, server := configs(t)
	a, b := plainPair(t)
	defer a.Close()
	defer b.Close()
	dials, serves := tls.Client(a, server), tls.Server(b, client)
	var all sync.WaitGroup
	var sending error
	all.Go(func() {
		_, err := io.Copy(dials, from)
		sending = errors.Join(err, dials.CloseWrite())
	})
	_, receiving := io.Copy(to, serves)
	all.Wait()
	return errors.Join(sending, receiving, to.CloseWrite())
}

// BenchmarkIdleStreams has streams over which nothing is sent for the moment. KiB/stream is what both ends together keep in
// memory for one.
func BenchmarkIdleStreams(b *testing.B) {
	const streams = 200
	for name, through := range map[string]func(testing.TB, *net.TCPConn, *net.TCPConn) error{"dataconn": throughDataConn, "tls": throughTLS} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				before := memoryInUse()
				var all sync.WaitGroup
				var ends, senders []*net.TCPConn
				for range streams {
					sender, from := plainPair(b)
					to, receiver := plainPair(b)
					ends, senders = append(ends, sender, from, to, receiver), append(senders, sender)
					all.Go(func() { _ = through(b, from, to) })
					if _, err := sender.Write([]byte("x")); err != nil {
						b.Fatal(err)
					}
					if _, err := receiver.Read(make([]byte, 1)); err != nil { // it has begun
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(memoryInUse()-before)/streams/1024, "KiB/stream")
				for _, sender := range senders {
					_ = sender.CloseWrite()
				}
				all.Wait()
				for _, end := range ends {
					_ = end.Close()
				}
			}
		})
	}
}

func memoryInUse() int64 {
	runtime.GC()
	runtime.GC() // a pool is emptied by the second one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// plainPair returns both ends of a TCP connection.
func plainPair(t testing.TB) (dialled, accepted *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return a.(*net.TCPConn), b.(*net.TCPConn)
}

// cpuTime is the CPU time of this process so far.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
