package command

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/localfile"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/why"
)

type connectOptions struct {
	print, insecure bool
	ca, via         string
	wait            time.Duration
}

func (r *root) connect() *cobra.Command {
	var o connectOptions
	c := &cobra.Command{
		Use:   "connect NAME [SERVICE]",
		Short: "Connect to an instance as a player does",
		Long: `Connect to a service of an instance as a player does, through the Gateway or a node port.

The command connects standard input and output to a service with TCP, TLS or UDP, as nc and ncat do. For
a web service it prints the address and checks whether it answers. SERVICE is the name of the port in
the Challenge. It is optional if there is only one.`,
		Example: `  kubectl berg connect alice-guestbook
  kubectl berg connect alice-pwn game < exploit.bin
  kubectl berg connect alice-guestbook --print`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: firstArgument(r.completeInstances),
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := r.open()
			if err != nil {
				return err
			}
			i, err := r.waitRunning(cmd.Context(), to, trimmed(args[0]), o.wait)
			if err != nil {
				return err
			}
			service := ""
			if len(args) > 1 {
				service = args[1]
			}
			if o.print || r.Format == console.JSON {
				return r.printServices(i, service)
			}
			chosen, err := chooseService(i, service)
			if err != nil {
				return err
			}
			return r.connectTo(cmd.Context(), chosen, o)
		},
	}
	f := c.Flags()
	f.BoolVar(&o.print, "print", false, "print the addresses and the commands without connecting")
	f.BoolVar(&o.insecure, "insecure", false, "accept any certificate, such as a self-signed one")
	f.StringVar(&o.ca, "ca", "", "file with the certificate of the authority to trust, instead of the system's")
	f.StringVar(&o.via, "via", "", "connect to this host, such as the Gateway's address if DNS does not resolve to it")
	f.DurationVar(&o.wait, "wait", time.Minute, "how long to wait for the instance to run")
	return c
}

// waitRunning waits until an instance runs. At the end of the time, the error has the first problem and its remedy. An instance
// that ends while it waits is not found.
func (r *root) waitRunning(ctx context.Context, c *cluster.Cluster, name string, timeout time.Duration) (*bergv1.ChallengeInstance, error) {
	i, err := instance(ctx, c, name)
	if err != nil || i.Status.Phase == bergv1.PhaseRunning && i.DeletionTimestamp == nil {
		return i, err
	}
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	latest := i
	err = c.Follow(waiting, cluster.Follower{
		Changed: func(change cluster.Change) (bool, error) {
			latest = change.Instance
			if change.Gone || latest.DeletionTimestamp != nil {
				return true, console.Errorf(console.ExitNotFound, "instance %s has ended", name)
			}
			return latest.Status.Phase == bergv1.PhaseRunning, nil
		},
		Lost: r.reportConnection,
	}, client.InNamespace(c.Namespace), client.MatchingFields{"metadata.name": name})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		f := why.Explain(readView(ctx, c, latest))
		return nil, console.Errorf(console.ExitTimeout, "instance %s is not Running after %s: %s %s", name, console.Duration(timeout), f.Sentence, f.Do)
	}
	return latest, cluster.Explain("wait for instance "+name, err)
}

// chooseService needs no name if there is one service. Its errors list the names.
func chooseService(i *bergv1.ChallengeInstance, name string) (bergv1.ServiceEndpoint, error) {
	var names []string
	for _, s := range i.Status.Services {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	switch {
	case len(names) == 0:
		return bergv1.ServiceEndpoint{}, console.Errorf(console.ExitNotFound, "instance %s has internal ports only: players cannot connect to them", i.Name)
	case name == "" && len(names) == 1:
		return i.Status.Services[0], nil
	case name == "":
		return bergv1.ServiceEndpoint{}, console.Errorf(console.ExitUsage, "which service? Choose one of: %s", strings.Join(names, ", "))
	default:
		return bergv1.ServiceEndpoint{}, console.Errorf(console.ExitNotFound, "instance %s has no service %s. Its services: %s", i.Name, name, strings.Join(names, ", "))
	}
}

// serviceCommand is a service with the command to connect to it, in JSON.
type serviceCommand struct {
	bergv1.ServiceEndpoint `json:",inline"`
	Command                string `json:"command"`
	Browser                bool   `json:"browser"`
}

// printServices prints the service of a name, or all if it is empty.
func (r *root) printServices(i *bergv1.ChallengeInstance, name string) error {
	services := i.Status.Services
	if name != "" {
		s, err := chooseService(i, name)
		if err != nil {
			return err
		}
		services = []bergv1.ServiceEndpoint{s}
	}
	if r.Format == console.JSON {
		connections := []serviceCommand{}
		for _, s := range services {
			command, browser := connectCommand(s)
			connections = append(connections, serviceCommand{s, command, browser})
		}
		return r.WriteJSON(connections)
	}
	r.writeServices(i.Status.ConnectionInfo, services)
	return nil
}

// writeServices prints the author's text, the addresses and commands.
func (r *root) writeServices(text string, services []bergv1.ServiceEndpoint) {
	for line := range strings.Lines(text) {
		r.Printf("  %s\n", console.OneLine(line))
	}
	if len(services) == 0 {
		r.Printf("  all ports are internal: players cannot connect to them\n")
		return
	}
	for _, s := range services {
		command, browser := connectCommand(s)
		usage := command
		if browser {
			usage = "in a browser, or " + command
		}
		r.Printf("  %s  %s\n", r.Paint(console.Bold, s.Name), r.Paint(console.Cyan, console.OneLine(s.URL)))
		r.Printf("  %s  %s\n", strings.Repeat(" ", len(s.Name)), console.OneLine(usage))
	}
}

// answerTimeout limits the time to establish a connection.
const answerTimeout = 10 * time.Second

// connectTo connects to a service, or probes it if it is for browsers. With --via the certificate must still be valid
// for the hostname of the service, unless --insecure is given.
func (r *root) connectTo(ctx context.Context, s bergv1.ServiceEndpoint, o connectOptions) error {
	config := &tls.Config{ServerName: s.Hostname, MinVersion: tls.VersionTLS12, InsecureSkipVerify: o.insecure} //nolint:gosec // by --insecure only
	if o.ca != "" {
		pem, err := localfile.Folder{}.Read(o.ca)
		if err != nil {
			return console.Errorf(console.ExitUsage, "--ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return console.Errorf(console.ExitUsage, "--ca %s: the file has no certificate", o.ca)
		}
	}
	host := s.Hostname
	if o.via != "" {
		host = o.via
	}
	address := net.JoinHostPort(host, strconv.Itoa(int(s.Port)))
	if _, browser := connectCommand(s); browser {
		return r.probe(ctx, s, address, config)
	}
	dialer := &net.Dialer{Timeout: answerTimeout}
	network := strings.ToLower(s.Protocol)
	if network == "" {
		network = "tcp"
	}
	connection, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return connectError(s, err)
	}
	if s.TLS {
		secure := tls.Client(connection, config)
		shaking, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		if err := secure.HandshakeContext(shaking); err != nil {
			_ = connection.Close()
			return connectError(s, err)
		}
		connection = secure
	}
	defer func() { _ = connection.Close() }()
	r.Notef("%s %s", r.PaintErr(console.Green, "connected to"), s.URL)
	return r.copyStreams(ctx, connection)
}

// connectError distinguishes a certificate that is not trusted, which was reached, from a service that was not.
func connectError(s bergv1.ServiceEndpoint, err error) error {
	var refused *tls.CertificateVerificationError
	if errors.As(err, &refused) {
		return console.Errorf(console.ExitProblem, "the certificate of %s is not trusted: %w. To test anyway, use --insecure or --ca FILE", s.URL, refused.Err)
	}
	return console.Errorf(console.ExitUnreachable, "no connection to %s: %w. kubectl berg doctor checks DNS and Gateway; --via bypasses DNS", s.URL, err)
}

// copyStreams connects a connection to the streams of the program until the other side ends. At the end of the input it
// closes only its own direction, so that the service can still answer. One of the two goroutines may still wait for input when it
// returns: the program ends then. Datagrams have no end, so an answer to the last one is waited for during a second.
func (r *root) copyStreams(ctx context.Context, connection net.Conn) error {
	received := make(chan error, 1)
	go func() {
		_, err := io.Copy(r.Out, connection)
		received <- err
	}()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.Copy(connection, r.In)
		if half, ok := connection.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}()
	_, stream := connection.(interface{ CloseWrite() error })
	select {
	case <-ctx.Done():
		return nil
	case err := <-received:
		if err != nil && !errors.Is(err, net.ErrClosed) {
			return console.Errorf(console.ExitFailed, "the connection broke: %w", err)
		}
		return nil
	case <-sent:
	}
	// Everything is sent. Whether a datagram is answered is unknown.
	var timedOut <-chan time.Time
	if !stream {
		timedOut = r.clock.After(time.Second)
	}
	select {
	case <-ctx.Done():
	case <-received:
	case <-timedOut:
	}
	return nil
}

// probe sends the request of a browser once. It follows no redirect, and reads no body: any answer below 500 shows that the
// service is reached.
func (r *root) probe(ctx context.Context, s bergv1.ServiceEndpoint, address string, config *tls.Config) error {
	r.Printf("%s\n", s.URL)
	transport := &http.Transport{
		TLSClientConfig: config,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: answerTimeout}).DialContext(ctx, network, address)
		},
	}
	defer transport.CloseIdleConnections()
	asking, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(asking, http.MethodGet, s.URL, nil)
	if err != nil {
		return err
	}
	began := r.clock.Now()
	response, err := (&http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(request)
	if err != nil {
		return connectError(s, err)
	}
	_ = response.Body.Close()
	took := r.clock.Since(began).Round(time.Millisecond)
	if response.StatusCode >= http.StatusInternalServerError {
		return console.Errorf(console.ExitProblem, "the service answered %s after %s", response.Status, took)
	}
	r.Notef("%s", r.PaintErr(console.Green, fmt.Sprintf("the service answered %s after %s", response.Status, took)))
	return nil
}
