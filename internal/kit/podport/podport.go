// Package podport connects to ports of pods through the API server and the kubelet, which no network policy prevents.
package podport

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// NewDialer returns a dialer for the subresource portforward of a pod. It uses WebSockets, or SPDY where a proxy refuses them.
func NewDialer(config *rest.Config, target *url.URL) (httpstream.Dialer, error) {
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, fmt.Errorf("prepare a connection to a pod: %w", err)
	}
	older := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, target)
	newer, err := portforward.NewSPDYOverWebsocketDialerForStreaming(target, config)
	if err != nil {
		return nil, fmt.Errorf("prepare a connection to a pod: %w", err)
	}
	return portforward.NewFallbackDialerForStreaming(newer, older, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

// Transport sends each request to a port of a pod over a connection of its own.
type Transport struct {
	Config *rest.Config
	// Target is the subresource portforward of the pod.
	Target *url.URL
	Port   int32
}

// RoundTrip sends a request. It ends with the context of the request, also while the connection is made.
func (t Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	config := rest.CopyConfig(t.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return bounded{req.Context(), next} })
	dialer, err := NewDialer(config, t.Target)
	if err != nil {
		return nil, err
	}
	conn, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller names the pod
	}
	stop := context.AfterFunc(req.Context(), func() { _ = conn.Close() })
	answer, err := send(conn, t.Port, req)
	if err != nil {
		stop()
		_ = conn.Close()
		return nil, err
	}
	answer.Body = body{answer.Body, func() error { stop(); return conn.Close() }}
	return answer, nil
}

// send writes a request to a stream, and reads the answer.
func send(conn httpstream.Connection, port int32, req *http.Request) (*http.Response, error) {
	header := http.Header{}
	header.Set(corev1.PortHeader, strconv.Itoa(int(port)))
	header.Set(corev1.PortForwardRequestIDHeader, "0")
	header.Set(corev1.StreamType, corev1.StreamTypeError)
	failures, err := conn.CreateStream(header)
	if err != nil {
		return nil, fmt.Errorf("open a stream to the pod: %w", err)
	}
	_ = failures.Close() // nothing is written to it
	header.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := conn.CreateStream(header)
	if err != nil {
		return nil, fmt.Errorf("open a stream to the pod: %w", err)
	}
	if err := req.Write(data); err != nil {
		return nil, fmt.Errorf("send the request to the pod: %w", err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(data), req)
	if err != nil {
		return nil, fmt.Errorf("read the answer of the pod: %w", err)
	}
	return answer, nil
}

// bounded ends requests with a context, for dialers that take none.
type bounded struct {
	ctx  context.Context // of the one request that the transport is made for
	next http.RoundTripper
}

// RoundTrip sends a request.
func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	return b.next.RoundTrip(req.WithContext(b.ctx)) //nolint:wrapcheck // http.RoundTripper has the text
}

// body is a body whose end closes the connection.
type body struct {
	io.ReadCloser

	end func() error
}

// Close closes the connection.
func (b body) Close() error { return b.end() }
