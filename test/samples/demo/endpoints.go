package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/samples/images/solve"
)

// dialTimeout is how long an address may take to accept a connection before it counts as out of reach.
const dialTimeout = 3 * time.Second

// useEndpoints shows what players get to see, and solves the challenges as they would.
func (d *demo) useEndpoints(ctx context.Context) error {
	if err := d.listEndpoints(ctx); err != nil {
		return err
	}
	if d.target.simulated {
		return nil
	}
	for _, game := range []struct {
		title, instance string
		solve           func(context.Context, *bergv1.ChallengeInstance) (string, error)
	}{
		{"pwn: buy the golden ticket over TCP", pwnInstance, d.solvePwn},
		{"web: climb out of the archive over HTTP", webInstance, d.solveWeb},
		{"shop: let the moderator tell its secret over HTTP", shopInstance, d.solveShop},
	} {
		look := []string{d.kubectlLine("get services,endpointslices -A -l app.kubernetes.io/managed-by=berg")}
		if err := d.checkFlag(ctx, game.title, look, game.instance, game.solve); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) listEndpoints(ctx context.Context) error {
	return d.show.step(ctx, "read the addresses for players in status.services", nil, func(ctx context.Context) (outcome, error) {
		count := 0
		for _, name := range []string{webInstance, pwnInstance, shopInstance} {
			instance, err := d.instance(ctx, name)
			if err != nil {
				return "", err
			}
			if len(instance.Status.Services) == 0 {
				return "", fmt.Errorf("instance %s has no address", name)
			}
			for _, service := range instance.Status.Services {
				count++
				d.show.note("%-5s %-6s %s", name, service.Name, service.URL)
			}
		}
		return outcome(fmt.Sprint(count)), nil
	})
}

// solvePwn connects to the NodePort on the first node that can be reached from here, and through a
// port-forward where none can.
func (d *demo) solvePwn(ctx context.Context, instance *bergv1.ChallengeInstance) (string, error) {
	if len(instance.Status.Services) != 1 {
		return "", fmt.Errorf("want one address in status.services, found %d", len(instance.Status.Services))
	}
	port := strconv.Itoa(int(instance.Status.Services[0].Port))
	nodes, err := d.target.nodeAddresses(ctx)
	if err != nil {
		return "", err
	}
	for _, node := range nodes {
		address := net.JoinHostPort(node, port)
		if reach(ctx, address) == nil {
			d.show.note("connecting to %s, the NodePort that status.services names", address)
			return solve.Pwn(ctx, address)
		}
	}
	if d.target.own {
		return "", fmt.Errorf("NodePort %s does not answer at %s", port, strings.Join(nodes, ", "))
	}
	d.show.note("no node can be reached from here at port %s: connecting through a port-forward instead", port)
	return d.solvePwnForwarded(ctx, instance)
}

func (d *demo) solvePwnForwarded(ctx context.Context, instance *bergv1.ChallengeInstance) (flag string, err error) {
	const kioskPort = 1337
	pod, err := d.runningPod(ctx, instance, "kiosk")
	if err != nil {
		return "", err
	}
	clientset, err := kubernetes.NewForConfig(d.target.config)
	if err != nil {
		return "", err
	}
	transport, upgrader, err := spdy.RoundTripperFor(d.target.config)
	if err != nil {
		return "", err
	}
	address := clientset.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, address),
		[]string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", kioskPort)}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	defer func() {
		close(stop)
		err = errors.Join(err, <-ended)
	}()
	select {
	case <-ready:
	case err := <-ended:
		ended <- nil
		return "", fmt.Errorf("forward a port to pod %s: %w", pod.Name, err)
	case <-ctx.Done():
		return "", ctx.Err()
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return "", err
	}
	return solve.Pwn(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local))))
}

func (d *demo) solveWeb(ctx context.Context, instance *bergv1.ChallengeInstance) (string, error) {
	browser, base, err := d.browse(ctx, instance, "web", 8080)
	if err != nil {
		return "", err
	}
	return solve.Web(ctx, browser, base, flagFile)
}

func (d *demo) solveShop(ctx context.Context, instance *bergv1.ChallengeInstance) (string, error) {
	browser, base, err := d.browse(ctx, instance, "web", 8080)
	if err != nil {
		return "", err
	}
	return solve.Shop(ctx, browser, base)
}

// browse returns an HTTP client and the address of the front page of an instance's Service. Without a
// Gateway of the demo it uses the API server's proxy: the host names of status.services only
// resolve where DNS and a Gateway are set up for them.
func (d *demo) browse(ctx context.Context, instance *bergv1.ChallengeInstance, service string, port int) (*http.Client, string, error) {
	if d.target.gateway {
		return d.browseGateway(ctx, instance)
	}
	browser, err := rest.HTTPClientFor(d.target.config)
	if err != nil {
		return nil, "", err
	}
	server, _, err := rest.DefaultServerUrlFor(d.target.config)
	if err != nil {
		return nil, "", err
	}
	d.show.note("going to Service %s through the API server: a gateway and DNS for %s would lead there too", service, instance.Status.Services[0].Hostname)
	return browser, server.JoinPath(fmt.Sprintf("/api/v1/namespaces/%s/services/http:%s:%d/proxy", instance.Status.Namespace, service, port)).String(), nil
}
