package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// plan is how long, and how much.
type plan struct {
	duration time.Duration
	limit    time.Duration
	streams  int
	idle     int
	workers  int
}

// result is what was found out about one tunnel, in one round or as a median of all. What could not
// be measured is 0.
type result struct {
	// Gbit/s of one stream and of many.
	One, Many float64
	// New connections per second, each with a byte there and back.
	Connections float64
	// Round trips of 64 bytes over one stream, in µs.
	P50, P99 float64
	// Memory of all processes of the tunnel that 1,000 idle streams add, in bytes.
	Memory float64
	// Memory that all processes have with 1,000 idle streams after all else was measured, in bytes:
	// what bulk and rushes have left behind is in it.
	MemoryAfter float64

	failures []error
}

// measure measures one tunnel. What fails is noted, and the rest is measured all the same: an
// error is returned if nothing works.
func (p plan) measure(t *tunnel) (r result, err error) {
	// What 1,000 streams add comes first, while the processes are fresh: later there would be garbage to make room in.
	// And the warm-up is measured for none of them.
	for _, f := range []struct {
		what string
		take func() error
	}{
		{"idle streams", func() (err error) { r.Memory, _, err = p.memory(t); return err }},
		{"warm up", func() error { _, err := p.throughput(t.at, 1, p.duration/10); return err }},
		{"one stream", func() (err error) { r.One, err = p.throughput(t.at, 1, p.duration); return err }},
		{fmt.Sprint(p.streams, " streams"), func() (err error) { r.Many, err = p.throughput(t.at, p.streams, p.duration); return err }},
		{"latency", func() (err error) { r.P50, r.P99, err = p.latency(t.at); return err }},
		{"connections", func() (err error) { r.Connections, err = p.connections(t.at); return err }},
		{"idle streams after bulk", func() (err error) { _, r.MemoryAfter, err = p.memory(t); return err }},
	} {
		if err := f.take(); err != nil {
			r.failures = append(r.failures, fmt.Errorf("%s: %w", f.what, err))
		}
	}
	if r.One == 0 && r.Many == 0 && r.P50 == 0 && r.Connections == 0 {
		return r, errors.Join(r.failures...)
	}
	return r, nil
}

// throughput reads from so many streams concurrently, and returns Gbit/s.
func (p plan) throughput(at string, streams int, duration time.Duration) (float64, error) {
	all := make([]net.Conn, streams)
	defer closeAll(all)
	for i := range all {
		c, err := open(at, sendMe)
		if err != nil {
			return 0, err
		}
		all[i] = c
		// The clock runs when bytes flow.
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			return 0, err
		}
	}
	var sum atomic.Int64
	var running sync.WaitGroup
	var broken atomic.Value
	// What buffers held before does not count: some tunnels have megabytes for each stream.
	begin := time.Now().Add(duration / 4)
	end := begin.Add(duration)
	var early int64
	counting := time.AfterFunc(time.Until(begin), func() { atomic.StoreInt64(&early, sum.Load()) })
	defer counting.Stop()
	for _, c := range all {
		running.Go(func() {
			_ = c.SetReadDeadline(end)
			chunk := make([]byte, 256<<10)
			for {
				n, err := c.Read(chunk)
				sum.Add(int64(n))
				if err != nil {
					if !os.IsTimeout(err) {
						broken.Store(err)
					}
					return
				}
			}
		})
	}
	running.Wait()
	if err, ok := broken.Load().(error); ok {
		return 0, err
	}
	return float64(sum.Load()-atomic.LoadInt64(&early)) * 8 / time.Since(begin).Seconds() / 1e9, nil
}

// latency sends 64 bytes and waits until they are back, again and again, and returns µs.
func (p plan) latency(at string) (p50, p99 float64, err error) {
	c, err := open(at, repeatAfterMe)
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	words := make([]byte, 64)
	var all []time.Duration
	for end := time.Now().Add(p.duration); time.Now().Before(end); {
		begin := time.Now()
		if _, err := c.Write(words); err != nil {
			return 0, 0, err
		}
		if _, err := io.ReadFull(c, words); err != nil {
			return 0, 0, err
		}
		all = append(all, time.Since(begin))
	}
	all = all[len(all)/10:]
	slices.Sort(all)
	return micro(all[len(all)/2]), micro(all[len(all)*99/100]), nil
}

func micro(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// connections opens a connection, sends a byte, waits for it, closes, again and again, and
// returns how many per second.
func (p plan) connections(at string) (float64, error) {
	var count atomic.Int64
	var running sync.WaitGroup
	var broken atomic.Value
	begin := time.Now()
	end := begin.Add(p.duration)
	for range p.workers {
		running.Go(func() {
			word := make([]byte, 1)
			for time.Now().Before(end) && broken.Load() == nil {
				c, err := open(at, repeatAfterMe)
				if err == nil {
					_ = c.SetDeadline(time.Now().Add(10 * time.Second))
					if _, err = c.Write(word); err == nil {
						_, err = io.ReadFull(c, word)
					}
					_ = c.Close()
				}
				if err != nil {
					broken.Store(err)
					return
				}
				count.Add(1)
			}
		})
	}
	running.Wait()
	if err, ok := broken.Load().(error); ok {
		return 0, err
	}
	return float64(count.Load()) / time.Since(begin).Seconds(), nil
}

// memory opens streams that do nothing, and returns how much memory a thousand of them add, and
// how much there is of it then.
func (p plan) memory(t *tunnel) (added, all float64, err error) {
	if len(t.pids()) == 0 {
		return 0, 0, nil
	}
	settle := 2 * time.Second
	<-time.After(settle)
	before, err := t.memory()
	if err != nil {
		return 0, 0, err
	}
	streams := make([]net.Conn, p.idle)
	defer closeAll(streams)
	for i := range streams {
		c, err := open(t.at, repeatAfterMe)
		if err != nil {
			return 0, 0, err
		}
		streams[i] = c
		// Each was used once.
		if _, err := c.Write([]byte{1}); err != nil {
			return 0, 0, err
		}
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			return 0, 0, err
		}
	}
	<-time.After(settle)
	after, err := t.memory()
	if err != nil {
		return 0, 0, err
	}
	return float64(after-before) * 1000 / float64(p.idle), float64(after), nil
}

func closeAll(all []net.Conn) {
	for _, c := range all {
		if c != nil {
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}
	}
}

// median returns the median of each figure.
func median(rounds []result) (m result) {
	of := func(pick func(*result) *float64) {
		var all []float64
		for i := range rounds {
			if value := *pick(&rounds[i]); value != 0 {
				all = append(all, value)
			}
		}
		if len(all) > 0 {
			slices.Sort(all)
			*pick(&m) = all[len(all)/2]
		}
	}
	of(func(r *result) *float64 { return &r.One })
	of(func(r *result) *float64 { return &r.Many })
	of(func(r *result) *float64 { return &r.Connections })
	of(func(r *result) *float64 { return &r.P50 })
	of(func(r *result) *float64 { return &r.P99 })
	of(func(r *result) *float64 { return &r.Memory })
	of(func(r *result) *float64 { return &r.MemoryAfter })
	return m
}
