package reach

import (
	"context"
	"crypto/tls"
	"net"
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

func newGateStage(slots int) gateStage {
	return gateStage{slots: make(chan struct{}, slots), waits: map[types.NamespacedName]*gateWait{}}
}

// handshake connects to a listener. Its certificate is not checked: kubectl berg doctor does that.
func handshake(ctx context.Context, to Target) error {
	open := (&net.Dialer{}).DialContext
	if to.Host != "" {
		//nolint:gosec // nothing is sent, and an event may use its own certificate authority
		open = (&tls.Dialer{Config: &tls.Config{ServerName: to.Host, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}}).DialContext
	}
	conn, err := open(ctx, "tcp", to.Address.String())
	if err != nil {
		return err
	}
	return conn.Close()
}
