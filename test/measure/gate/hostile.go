package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
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
)

// attacks by their names, each at a bounded pace. They run until they are killed.
var attacks = []struct {
	name, what string
	run        func(context.Context, target) error
}{
	{"half-open", "10,000 connections that send nothing, from 100 addresses", func(ctx context.Context, t target) error {
		return gather(ctx, &strangers.Crowd{Address: t.secure})
	}},
	{"slow", "10,000 connections whose headers do not end, from 100 addresses", func(ctx context.Context, t target) error {
		return gather(ctx, &strangers.Crowd{Address: t.secure, TLS: true, Request: "GET / HTTP/1.1\r\nHost: "})
	}},
	{"header", "headers of a megabyte, ten each second", func(ctx context.Context, t target) error {
		return paced(ctx, 10, func() { t.largeHeader(ctx) })
	}},
	{"reset", "HTTP/2 requests that are reset, 5,000 each second", func(ctx context.Context, t target) error {
		return paced(ctx, 50, func() { t.flood(func(f *http2.Framer, header []byte) error { return resetMany(f, header, 100) }) })
	}},
	{"continuation", "HTTP/2 headers without an end, ten each second", func(ctx context.Context, t target) error {
		return paced(ctx, 10, func() { t.flood(continueLong) })
	}},
	{"names", "500 unknown server names each second", func(ctx context.Context, t target) error {
		n := 0
		return paced(ctx, comeback, func() { n++; t.scan(n) })
	}},
	{"bytes", "one address downloads over 32 connections", func(ctx context.Context, t target) error {
		p := path{address: t.secure, host: t.host}
		c := p.newClient(32)
		c.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 9, 9, 9)}}).DialContext(ctx, network, t.secure)
		}
		return inParallel(32, 32, func(int) error {
			for ctx.Err() == nil {
				_, _ = ask(ctx, c, "https://"+t.host+"/?n=67108864")
			}
			return nil
		})
	}},
}

type target struct{ secure, raw, host string }

func (b *bench) newTarget() target {
	return target{fmt.Sprintf("127.0.0.1:%d", b.gate.secure), fmt.Sprintf("127.0.0.1:%d", b.gate.raw), "gate." + domain}
}

// attack is what the process of an attacker does.
func attack(ctx context.Context, name, secure, raw, host string) error {
	for _, a := range attacks {
		if a.name == name {
			return a.run(ctx, target{secure, raw, host})
		}
	}
	return fmt.Errorf("there is no attack %q", name)
}

// paced calls do so often in a second, in goroutines.
func paced(ctx context.Context, perSecond int, do func()) error {
	ticker := time.NewTicker(time.Second / time.Duration(perSecond))
	defer ticker.Stop()
	slots := make(chan struct{}, 64)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		select {
		case slots <- struct{}{}:
			go func() { do(); <-slots }()
		default:
		}
	}
}

// gather holds connections, and makes new ones in place of those that were ended.
func gather(ctx context.Context, c *strangers.Crowd) error {
	return paced(ctx, comeback, func() {
		if c.Open() < crowd {
			_ = c.Join(ctx, 1) // a refusal is what the gate is for
		}
	})
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

func (t target) largeHeader(ctx context.Context) {
	c := path{address: t.secure, host: t.host}.newClient(1)
	defer c.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+t.host+"/", nil)
	if err != nil {
		return
	}
	req.Header.Set("X-Large", strings.Repeat("a", 1<<20))
	if answer, err := c.Do(req); err == nil {
		_ = answer.Body.Close()
	}
}

// flood opens a connection of HTTP/2, and sends what send writes until the gate ends it.
func (t target) flood(send func(*http2.Framer, []byte) error) {
	conn, err := t.dial("h2")
	if err != nil {
		return
	}
	defer conn.Close()
	framer := http2.NewFramer(conn, bufio.NewReader(conn))
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil || framer.WriteSettings() != nil {
		return
	}
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	var block strings.Builder
	encoder := hpack.NewEncoder(&block)
	for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", t.host}, {":path", "/"}} {
		_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	_ = send(framer, []byte(block.String()))
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
func (t target) scan(n int) {
	conn, err := net.DialTimeout("tcp", t.raw, 10*time.Second)
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_ = tls.Client(conn, clientTLS(fmt.Sprintf("scan-%d.%s", n, domain))).Handshake() // refused
}

// hostile compares the p99 of others without an attack and during each, with the limits that the gate has by default. Attackers have the
// lowest priority of the CPUs: usually they have machines of their own.
func hostile(ctx context.Context, b *bench) ([]figure, error) {
	b.stopGate()
	if err := b.startGate(ctx, "GATE_ADDRESS_CONNECTIONS=512", "GATE_HOST_CONNECTIONS=1024", "GATE_ADDRESS_RATE=64", "GATE_ADDRESS_REQUESTS=1000"); err != nil {
		return nil, err
	}
	t := b.newTarget()
	var all []figure
	for _, a := range attacks {
		var quiet, during []float64
		f := figure{What: "others' p99 with " + a.what, Unit: "ms"}
		m := figure{What: "memory with " + a.what, Unit: "MB"}
		for range b.rounds {
			before, err := b.others(ctx, t)
			if err != nil {
				return all, err
			}
			attacker, err := b.startAttack(a.name, t)
			if err != nil {
				return all, err
			}
			<-time.After(b.traffic) // until it has its connections
			after, err := b.others(ctx, t)
			m.Gate = max(m.Gate, b.resident(b.gate))
			ended := attacker.ProcessState != nil
			_ = attacker.Process.Kill()
			_ = attacker.Wait()
			if err != nil || ended {
				return all, fmt.Errorf("%s: others were not served, or the attack has ended itself (%v): %w", a.name, ended, err)
			}
			quiet, during = append(quiet, before), append(during, after)
		}
		f.Gate, f.Bare = median(during), median(quiet)
		all = append(all, f.ratio("quiet", f.Bare, maxDisturbed, true), m.atMost(2*maxMemory))
	}
	before := b.resident(b.gate)
	if err := inParallel(b.names, workers, func(n int) error { t.scan(n); return ctx.Err() }); err != nil {
		return all, err
	}
	f := figure{What: fmt.Sprintf("memory after %d unknown server names", b.names), Unit: "MB", Gate: b.resident(b.gate), Bare: before}
	return append(all, f.ratio("before", before, 1.5, true)), nil
}

func (b *bench) startAttack(name string, t target) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	attacker := exec.Command("nice", "-n", "19", self, "attack", name, t.secure, t.raw, t.host)
	attacker.Stderr = os.Stderr
	attacker.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return attacker, attacker.Start()
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
