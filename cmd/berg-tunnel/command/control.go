package command

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/bergctf/berg-operator/internal/tunnel/control"
	"github.com/bergctf/berg-operator/internal/tunnel/pki"
	"github.com/bergctf/berg-operator/internal/tunnel/proxy"
)

// callTimeout is how long a call may take.
const callTimeout = 10 * time.Second

// caller makes calls to a server proxy.
type caller struct {
	dir      string
	endpoint proxy.Endpoint
	wait     time.Duration
}

// call makes one call, and returns the error of the server proxy. Each call has a connection of its own.
func (o *caller) call(c *cobra.Command, do func(context.Context, *control.Client, ...grpc.CallOption) error) error {
	if err := checkPorts(1, map[string]int{"server-control-port": o.endpoint.Port}); err != nil {
		return err
	}
	identity, err := readIdentity(o.dir)
	if err != nil {
		return err
	}
	client, err := control.Dial(o.endpoint.String(), identity, pki.ServerProxy)
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // the call is over
	ctx, cancel := context.WithTimeout(c.Context(), callTimeout+o.wait)
	defer cancel()
	if err := do(ctx, client, grpc.WaitForReady(o.wait > 0)); err != nil {
		if s, ok := status.FromError(err); ok {
			return fmt.Errorf("the server proxy at %s: %s: %s", o.endpoint, s.Code(), s.Message())
		}
		return err
	}
	return nil
}

func (p *program) control() *cobra.Command {
	o := &caller{}
	c := &cobra.Command{Use: "control", Short: "Call a server proxy", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		return usage("no call: want prepare, delete, list or shutdown, see berg-tunnel control --help")
	}}
	c.PersistentFlags().StringVar(&o.dir, "tls-dir", "", "folder with the controller's ca.crt, tls.crt and tls.key (required)")
	addEndpoint(c.PersistentFlags(), &o.endpoint, "server-control", "127.0.0.1", 0, "of the server proxy")
	c.PersistentFlags().DurationVar(&o.wait, "wait", 0, "how long to wait for a server proxy that is not ready yet")
	c.AddCommand(p.prepareTunnel(o), p.deleteTunnel(o), p.listTunnels(o), p.shutdown(o))
	return c
}

func (p *program) prepareTunnel(o *caller) *cobra.Command {
	request := &control.TunnelRequest{}
	prepare := &cobra.Command{
		Use: "prepare", Short: "Make a tunnel ready", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.call(c, func(ctx context.Context, client *control.Client, options ...grpc.CallOption) error {
				spec, err := client.PrepareTunnel(ctx, request, options...)
				if err == nil {
					show(p, &control.TunnelState{Spec: spec})
				}
				return err
			})
		},
	}
	flags := prepare.Flags()
	flags.SortFlags = false
	flags.StringVar(&request.Name, "name", "", "name of the tunnel (required)")
	flags.StringVar(&request.ServerAddress, "server-address", "localhost", "where the server listens, as seen from the host")
	flags.Int32Var(&request.ServerPort, "server-port", 0, "port of the server (required)")
	flags.StringVar(&request.ClientProxyAddress, "client-proxy-address", "0.0.0.0", "address that the client proxy listens at")
	flags.Int32Var(&request.ClientProxyPort, "client-proxy-port", 0, "port that the client proxy listens at; 0 is a random port")
	return prepare
}

func (p *program) deleteTunnel(o *caller) *cobra.Command {
	return &cobra.Command{
		Use: "delete ID", Short: "Close a tunnel; its streams continue", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := strconv.ParseUint(args[0], 10, 32)
			if err != nil || id == 0 {
				return usage("%q is not the ID of a tunnel: berg-tunnel control list shows the IDs", args[0])
			}
			return o.call(c, func(ctx context.Context, client *control.Client, options ...grpc.CallOption) error {
				_, err := client.DeleteTunnel(ctx, &control.TunnelRef{TunnelId: uint32(id)}, options...)
				return err
			})
		},
	}
}

func (p *program) listTunnels(o *caller) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "Show all tunnels", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.call(c, func(ctx context.Context, client *control.Client, options ...grpc.CallOption) error {
				all, err := client.ListTunnels(ctx, &control.ListTunnelsRequest{}, options...)
				if err == nil {
					show(p, all.GetTunnels()...)
				}
				return err
			})
		},
	}
}

func (p *program) shutdown(o *caller) *cobra.Command {
	return &cobra.Command{
		Use: "shutdown", Short: "End both proxies", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.call(c, func(ctx context.Context, client *control.Client, options ...grpc.CallOption) error {
				_, err := client.Shutdown(ctx, &control.ShutdownRequest{}, options...)
				return err
			})
		},
	}
}

// answers says whether the server of a tunnel answers.
func answers(t *control.TunnelState) string {
	switch {
	case !t.GetServerChecked():
		return "not checked"
	case t.GetServerError() != "":
		return "no: " + t.GetServerError()
	default:
		return "yes"
	}
}

// show prints tunnels as a table.
func show(p *program, tunnels ...*control.TunnelState) {
	table := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tNAME\tSERVER\tCLIENTS CONNECT TO\tSTREAMS\tTO SERVER\tTO CLIENT\tSERVER ANSWERS\tLAST FAILURE")
	for _, t := range tunnels {
		spec := t.GetSpec()
		var addresses []string
		for _, address := range spec.GetClientProxyAddresses() {
			addresses = append(addresses, proxy.Endpoint{Address: address, Port: int(spec.GetClientProxyPort())}.String())
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%d of %d\t%d\t%d\t%s\t%s\n", spec.GetTunnelRef().GetTunnelId(), spec.GetName(),
			proxy.Endpoint{Address: spec.GetServerAddress(), Port: int(spec.GetServerPort())},
			strings.Join(addresses, ","), t.GetActiveStreams(), t.GetTraffic().GetStreams(),
			t.GetTraffic().GetBytesToServer(), t.GetTraffic().GetBytesToClient(), answers(t), t.GetLastFailure())
	}
	_ = table.Flush()
}
