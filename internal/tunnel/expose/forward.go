package expose

import (
	"context"
	"fmt"
	"io"
	"net"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"

	"github.com/bergctf/berg-operator/internal/kit/podport"
	"github.com/bergctf/berg-operator/internal/tunnel/proxy"
)

// freePorts returns ports of the loopback that nothing listens at. All connections to the pod use the same ones, so that the server proxy
// finds the client proxy again. Another program may take a port between this function and the listener. Then the connection
// fails, and is made again.
func freePorts() (control, data int, err error) {
	var ports [2]int
	var listeners [2]net.Listener
	for i := range ports {
		if listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return 0, 0, err
		}
		ports[i] = listeners[i].Addr().(*net.TCPAddr).Port
	}
	for _, l := range listeners {
		_ = l.Close()
	}
	return ports[0], ports[1], nil
}

// forward forwards both ports of the client proxy until the connection breaks or the context ends. It calls ready when it listens.
func (c cluster) forward(ctx context.Context, config *rest.Config, pod string, control, data int, ready func()) error {
	target := c.Post().Namespace(c.namespace).Resource("pods").Name(pod).SubResource("portforward").URL()
	dialer, err := podport.NewDialer(config, target)
	if err != nil {
		return err
	}
	listening := make(chan struct{})
	ports := []string{fmt.Sprintf("%d:%d", control, proxy.DefaultControlPort), fmt.Sprintf("%d:%d", data, proxy.DefaultDataPort)}
	forwarder, err := portforward.NewOnAddressesForStreaming(dialer, []string{"127.0.0.1"}, ports, ctx.Done(), listening, io.Discard, io.Discard)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case <-listening:
		ready()
		return <-ended
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err() // a kubelet that does not answer must not delay the end
	}
}
