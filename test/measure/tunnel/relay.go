package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"

	"github.com/bergctf/berg-operator/internal/tunnel/pki"
)

// relay is a program that passes on what it gets, and does nothing else: what each tunnel is
// compared with. Two of them make the two hops of a tunnel. The middle connection has the same
// TLS as that of a tunnel, with tickets, if it has any.
func relay(ctx context.Context, listen, to string, secureIn, secureOut bool, dir string) error {
	var identity *pki.Identity
	if secureIn || secureOut {
		var err error
		if identity, err = pki.Files(dir); err != nil {
			return err
		}
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	if secureIn {
		listener = tls.NewListener(listener, identity.Serve(pki.ServerProxy, protocol))
	}
	for {
		in, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer in.Close()
			out, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			if secureOut {
				shaken := tls.Client(out, identity.Dial(pki.ClientProxy, protocol))
				if shaken.HandshakeContext(ctx) != nil {
					_ = out.Close()
					return
				}
				out = shaken
			}
			defer out.Close()
			done := make(chan struct{})
			go func() {
				defer close(done)
				pass(out, in)
			}()
			pass(in, out)
			<-done
		}()
	}
}

const protocol = "relay"

// pass copies until one side ends, and passes the end on.
func pass(to, from net.Conn) {
	_, err := io.Copy(to, from)
	end, ok := to.(interface{ CloseWrite() error })
	if err != nil || !ok || errors.Is(end.CloseWrite(), net.ErrClosed) {
		_ = to.Close()
		_ = from.Close()
	}
}
