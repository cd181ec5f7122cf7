package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/bergctf/berg-operator/test/lib/strangers"
)

const (
	// maxDisturbed is how much the p99 of others may grow.
	maxDisturbed = 1.5
	crowd        = 10_000
	// comeback is how many connections attackers make in a second.
	comeback = 500
	// maxGuests is how many connections may wait for a first request: an eighth of the default of GATE_MAX_CONNECTIONS, and those whose end
	// the attacker has not noticed yet.
	maxGuests = 20_000/8 + comeback
	// settle is the time until an attacker has all connections that the gate lets him have.
	settle = 6 * time.Second
)

// attacks by their names, each at a bounded pace. They run until they are interrupted. Of its attempts, the gate may let pass allowed: an
// attack that reaches nothing, or is not refused, says nothing about the gate.
var attacks = []struct {
	name, what string
	allowed    int64
	run        func(context.Context, target, *tally)
}{
	{"half-open", "10,000 connections that send nothing, from 100 addresses", maxGuests, func(ctx context.Context, t target, done *tally) {
		gather(ctx, &strangers.Crowd{Address: t.secure}, done)
	}},
	{"slow", "10,000 connections whose headers do not end, from 100 addresses", maxGuests, func(ctx context.Context, t target, done *tally) {
		gather(ctx, &strangers.Crowd{Address: t.secure, TLS: true, Request: "GET / HTTP/1.1\r\nHost: "}, done)
	}},
	{"header", "headers of a megabyte, ten each second", 0, func(ctx context.Context, t target, done *tally) {
		paced(ctx, 10, func() { done.add(t.largeHeader(ctx)) })
	}},
	{"reset", "HTTP/2 requests that are reset, 5,000 each second", math.MaxInt64, func(ctx context.Context, t target, done *tally) {
		paced(ctx, 50, func() {
			done.add(t.flood(func(f *http2.Framer, header []byte) error { return resetMany(f, header, 100) }))
		})
	}},
	{"continuation", "HTTP/2 headers without an end, ten each second", 0, func(ctx context.Context, t target, done *tally) {
		paced(ctx, 10, func() { done.add(t.flood(continueLong)) })
	}},
	{"renegotiation", "second handshakes within a connection, ten each second", 0, func(ctx context.Context, t target, done *tally) {
		paced(ctx, 10, func() { done.add(t.renegotiate()) })
	}},
	{"names", "500 unknown server names each second", 0, func(ctx context.Context, t target, done *tally) {
		var n atomic.Int64
		paced(ctx, comeback, func() { done.add(t.scan(int(n.Add(1)))) })
	}},
	{"bytes", "one address downloads over 32 connections", math.MaxInt64, func(ctx context.Context, t target, done *tally) {
		p := path{address: t.secure, host: t.host}
		c := p.newClient(32)
		c.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 9, 9, 9)}}).DialContext(ctx, network, t.secure)
		}
		_ = inParallel(32, 32, func(int) error {
			for ctx.Err() == nil {
				_, err := ask(ctx, c, "https://"+t.host+"/?n=67108864")
				done.add(err)
			}
			return nil
		})
	}},
}

// tally counts attempts, and those that the gate refused or ended.
type tally struct{ attempts, refused atomic.Int64 }

func (t *tally) add(refusal error) {
	t.attempts.Add(1)
	if refusal != nil {
		t.refused.Add(1)
	}
}

type target struct{ secure, raw, host string }

// newTarget is the gate that has an address of the loopback.
func (b *bench) newTarget(address string) target {
	return target{fmt.Sprintf("%s:%d", address, b.gate.secure), fmt.Sprintf("%s:%d", address, b.gate.raw), "gate." + domain}
}

// attack is what the process of an attacker does. It prints its tally when it is interrupted.
func attack(ctx context.Context, name, secure, raw, host string) error {
	for _, a := range attacks {
		if a.name == name {
			var done tally
			a.run(ctx, target{secure, raw, host}, &done)
			_, err := fmt.Println(done.attempts.Load(), done.refused.Load())
			return err
		}
	}
	return fmt.Errorf("there is no attack %q", name)
}

// paced calls do so often in a second, in goroutines, and returns when these have ended.
func paced(ctx context.Context, perSecond int, do func()) {
	ticker := time.NewTicker(time.Second / time.Duration(perSecond))
	defer ticker.Stop()
	var doing sync.WaitGroup
	defer doing.Wait()
	slots := make(chan struct{}, 64)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		select {
		case slots <- struct{}{}:
			doing.Go(func() { do(); <-slots })
		default:
		}
	}
}

// gather holds connections, and makes new ones in place of those that were ended.
func gather(ctx context.Context, c *strangers.Crowd, done *tally) {
	const addresses = 100 // of the crowd: each joins with one more connection
	paced(ctx, comeback/addresses, func() {
		if c.Open() < crowd {
			_ = c.Join(ctx, addresses) // a refusal is what the gate is for
			done.attempts.Add(addresses)
		}
	})
	done.refused.Store(done.attempts.Load() - int64(c.Open()))
}

func (t target) dial(protocols ...string) (*tls.Conn, error) {
	config := clientTLS(t.host)
	config.NextProtos = protocols
	conn, err := tls.Dial("tcp", t.secure, config)
	if err == nil {
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	}
	return conn, err
}

func (t target) largeHeader(ctx context.Context) error {
	c := path{address: t.secure, host: t.host}.newClient(1)
	defer c.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+t.host+"/", nil)
	if err != nil {
		return nil // no request was sent
	}
	req.Header.Set("X-Large", strings.Repeat("a", 1<<20))
	answer, err := c.Do(req)
	if err != nil {
		return err
	}
	_ = answer.Body.Close()
	if answer.StatusCode == http.StatusRequestHeaderFieldsTooLarge {
		return errors.New(answer.Status)
	}
	return nil
}

func (t target) renegotiate() error {
	conn, err := net.DialTimeout("tcp", t.secure, 10*time.Second)
	if err != nil {
		return nil // nothing was tried
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	return strangers.Renegotiate(conn, clientTLS(t.host))
}

// flood opens a connection of HTTP/2, and sends what send writes until the gate ends it.
func (t target) flood(send func(*http2.Framer, []byte) error) error {
	conn, err := t.dial("h2")
	if err != nil {
		return nil // nothing was tried
	}
	defer conn.Close()
	framer := http2.NewFramer(conn, bufio.NewReader(conn))
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil || framer.WriteSettings() != nil {
		return err
	}
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	var block strings.Builder
	encoder := hpack.NewEncoder(&block)
	for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", t.host}, {":path", "/"}} {
		_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	return send(framer, []byte(block.String()))
}

func resetMany(framer *http2.Framer, header []byte, n uint32) error {
	for id := uint32(1); id < 2*n; id += 2 {
		if err := errors.Join(framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: header, EndStream: true, EndHeaders: true}),
			framer.WriteRSTStream(id, http2.ErrCodeCancel)); err != nil {
			return err
		}
	}
	return nil
}

func continueLong(framer *http2.Framer, header []byte) error {
	err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: header, EndStream: true})
	for filler := make([]byte, 16<<10); err == nil; {
		err = framer.WriteContinuation(1, false, filler)
	}
	return err
}

// scan asks for a server name that no route has.
func (t target) scan(n int) error {
	conn, err := net.DialTimeout("tcp", t.raw, 10*time.Second)
	if err != nil {
		return nil // nothing was tried
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	return tls.Client(conn, clientTLS(fmt.Sprintf("scan-%d.%s", n, domain))).Handshake()
}

// hostile compares the p99 of others during each attack with that of others at a replica that is not attacked, at the same time: the
// attackers take CPUs from both. The limits are those that the gate has by default. Attackers get CPUs that nothing else wants: usually
// they have machines of their own.
func hostile(ctx context.Context, b *bench) ([]figure, error) {
	limits := []string{"GATE_ADDRESS_CONNECTIONS=512", "GATE_HOST_CONNECTIONS=1024", "GATE_ADDRESS_RATE=64", "GATE_ADDRESS_REQUESTS=1000"}
	b.stopGate()
	const spare = "127.0.0.2"
	if _, err := b.startReplica(ctx, spare, limits...); err != nil {
		return nil, err
	}
	if err := b.startGate(ctx, limits...); err != nil {
		return nil, err
	}
	t, calm := b.newTarget(loopback), b.newTarget(spare)
	var all []figure
	for _, a := range attacks {
		if b.attacks != "" && !slices.Contains(strings.Split(b.attacks, ","), a.name) {
			continue
		}
		var quiet, during, apart []float64
		var attempts, refused int64
		m := figure{What: "memory with " + a.what, Unit: "MB"}
		for range b.rounds {
			before, err := b.others(ctx, t)
			if err != nil {
				return all, err
			}
			end, err := b.startAttack(a.name, t)
			if err != nil {
				return all, err
			}
			<-time.After(settle)
			after, failed := b.others(ctx, t)
			other, missed := b.others(ctx, calm)
			m.Gate = max(m.Gate, b.resident(b.gate))
			tried, stopped, err := end()
			if err := errors.Join(failed, missed, err); err != nil {
				return all, fmt.Errorf("%s: others were not served, or the attack has ended: %w", a.name, err)
			}
			quiet, during, apart = append(quiet, before), append(during, after), append(apart, other)
			attempts, refused = attempts+tried, refused+stopped
		}
		q := figure{What: "others' p99 before that", Unit: "ms", Gate: median(quiet)}
		f := figure{What: "others' p99 with " + a.what, Unit: "ms", Gate: median(during), Bare: median(apart)}
		r := figure{What: fmt.Sprintf("of %d attempts: refused or ended", attempts), Gate: float64(refused)}
		if a.allowed < attempts {
			r.Limit, r.Value, r.Of = float64(attempts-a.allowed*int64(b.rounds)), r.Gate, "gate"
		}
		all = append(all, f.ratio("a replica that is not attacked", f.Bare, maxDisturbed, true), q, r, m.atMost(2*maxMemory))
		if attempts == 0 {
			return all, fmt.Errorf("%s: nothing was attempted", a.name)
		}
	}
	before := b.resident(b.gate)
	if err := inParallel(b.names, workers, func(n int) error { _ = t.scan(n); return ctx.Err() }); err != nil {
		return all, err
	}
	f := figure{What: fmt.Sprintf("memory after %d unknown server names", b.names), Unit: "MB", Gate: b.resident(b.gate), Bare: before}
	return append(all, f.ratio("before", before, 1.5, true)), nil
}

// startAttack starts an attacker. end interrupts it, and returns its tally.
func (b *bench) startAttack(name string, t target) (end func() (attempts, refused int64, err error), err error) {
	attacker, err := strangers.Command("attack", name, t.secure, t.raw, t.host)
	if err != nil {
		return nil, err
	}
	var said strings.Builder
	attacker.Stdout = &said
	return func() (attempts, refused int64, err error) {
		err = errors.Join(attacker.Process.Signal(syscall.SIGTERM), attacker.Wait())
		if _, failed := fmt.Sscan(said.String(), &attempts, &refused); failed != nil {
			err = errors.Join(err, failed)
		}
		return attempts, refused, err
	}, attacker.Start()
}

// others returns the p99 of clients that attack nothing, whose connections are kept. One request in ten has a connection of its own.
func (b *bench) others(ctx context.Context, t target) (float64, error) {
	p := path{address: t.secure, host: t.host}
	kept, fresh := p.newClient(workers), p.newClient(1)
	defer kept.CloseIdleConnections()
	fresh.Transport.(*http.Transport).DisableKeepAlives = true
	url := "https://" + t.host + "/"
	var own []time.Duration
	var failed error
	done := make(chan struct{})
	go func() {
		defer close(done)
		own, failed = steadily(ctx, fresh, url, b.traffic, 10*interval)
	}()
	took, err := steadily(ctx, kept, url, b.traffic, interval)
	<-done
	return rank(append(took, own...), 99), errors.Join(err, failed)
}
