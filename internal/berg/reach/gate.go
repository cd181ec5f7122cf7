package reach

import (
	"context"
	"crypto/tls"
	"net/netip"

	"k8s.io/apimachinery/pkg/types"
)

// Target is a listener of a Gateway.
type Target struct {
	Address netip.AddrPort
	// Host is the name of a TLS handshake, "" for a connection without TLS.
	Host string
}

// gateStage connects to the one Gateway of all instances, so one trust serves them all.
type gateStage struct {
	slots chan struct{}
	waits map[types.NamespacedName]*gateWait
	trust trust
}

type gateWait struct {
	uid types.UID
	// over: the wait is over. reached: all listeners have accepted a connection.
	over, reached bool
}

func newGateStage() gateStage {
	return gateStage{slots: make(chan struct{}, maxConnecting), waits: map[types.NamespacedName]*gateWait{}}
}

// Gate reports whether an instance need not be waited for any more, and whether all listeners of its Gateway have accepted a
// connection with its host names. Otherwise requeue is called when that changes. It does not block. It sends no request: a
// challenge might count it.
func (r *Waiter) Gate(key types.NamespacedName, uid types.UID, targets []Target, requeue func()) (over, reached bool) {
	if r == nil || r.timeout <= 0 {
		return true, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.gate.waits[key]; w != nil && w.uid == uid {
		return w.over, w.reached
	}
	select {
	case r.gate.slots <- struct{}{}:
	default:
		return true, false
	}
	if !r.gate.trust.begin(r.clock.Now()) {
		<-r.gate.slots
		return true, false
	}
	w := &gateWait{uid: uid}
	r.gate.waits[key] = w
	dials := make([]dial, 0, len(targets))
	for _, t := range targets {
		dials = append(dials, func(ctx context.Context) error { return r.handshake(ctx, t) })
	}
	go func() {
		got := r.connect(dials)
		r.mu.Lock()
		<-r.gate.slots
		w.over, w.reached = true, got == connected
		r.gate.trust.end(w.reached, r.clock.Now())
		r.mu.Unlock()
		requeue()
	}()
	return false, false
}

// handshake connects to a listener. Its certificate is not checked: kubectl berg doctor does that.
func handshake(ctx context.Context, to Target) error {
	if to.Host == "" {
		return connect(ctx, to.Address)
	}
	//nolint:gosec // nothing is sent, and an event may use its own certificate authority
	dialer := &tls.Dialer{Config: &tls.Config{ServerName: to.Host, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(ctx, "tcp", to.Address.String())
	if err != nil {
		return err
	}
	return conn.Close()
}
