package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bergctf/berg-operator/internal/tunnel/pki"
	"github.com/bergctf/berg-operator/internal/tunnel/proxy"
)

// The exit codes of the program. docs/tunnel/proxy.md lists them.
const (
	// ExitOK: the proxy was asked to end, and has drained.
	ExitOK = 0
	// ExitFailed: the program failed while it ran, or a call was refused.
	ExitFailed = 1
	// ExitUsage: a flag, or a file that a flag names, cannot be used.
	ExitUsage = 2
	// ExitPeerGone: the other proxy is gone.
	ExitPeerGone = 3
	// ExitNotStarted: a port is in use, or the client proxy was not reached in time.
	ExitNotStarted = 4
)

// usageError is an error in flags or arguments.
type usageError struct{ error }

// Unwrap returns the error itself.
func (e usageError) Unwrap() error { return e.error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Code returns the exit code of an error.
func Code(err error) int {
	var wrong usageError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &wrong):
		return ExitUsage
	case errors.Is(err, proxy.ErrPeerGone):
		return ExitPeerGone
	case errors.Is(err, proxy.ErrNotStarted):
		return ExitNotStarted
	default:
		return ExitFailed
	}
}

// program holds the streams and functions that all commands share.
type program struct {
	version string
	out     io.Writer
	err     io.Writer
}

// New makes the program.
func New(version string, out, err io.Writer) *cobra.Command {
	p := &program{version: version, out: out, err: err}
	root := &cobra.Command{
		Use:   "berg-tunnel",
		Short: "Connect a container network to servers on a host",
		Long: `berg-tunnel lets clients in a container network reach servers that listen at the loopback of a
host, through a pair of proxies: one in the network, one on the host. The proxy on the host opens all connections
between both, so the network needs no route to the host.

Exit codes: 0 asked to end, 1 failed or refused, 2 wrong usage, 3 the other proxy is gone,
4 could not start.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version,
		Args:          cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usage("no command: want expose, client, server, control or certificates, see berg-tunnel --help")
		},
	}
	root.SetOut(out)
	root.SetErr(err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage("%w: see %s --help", err, c.CommandPath())
	})
	root.AddCommand(p.expose(), p.client(), p.server(), p.control(), p.certificates())
	root.CompletionOptions.HiddenDefaultCmd = true
	strict(root)
	return root
}

// strict makes unexpected arguments a usage error, as unknown flags are.
func strict(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				if c.HasParent() && cobra.NoArgs(c, args) == nil { // cobra counts arguments; it does not name the missing one
					_, missing, _ := strings.Cut(strings.TrimSuffix(c.UseLine(), " [flags]"), c.CommandPath()+" ")
					return usage("%s is missing: want %s, see %s --help", missing, c.UseLine(), c.CommandPath())
				}
				return usage("%w: see %s --help", err, c.CommandPath())
			}
			return nil
		}
	}
	for _, child := range c.Commands() {
		strict(child)
	}
}

// shared are the flags of both proxies.
type shared struct {
	tlsDir     string
	maxStreams int
	peerGrace  time.Duration
	reconnect  bool
	drain      time.Duration
	logLevel   string
}

func (s *shared) add(flags *pflag.FlagSet) {
	flags.StringVar(&s.tlsDir, "tls-dir", "", "folder with ca.crt, tls.crt and tls.key; read again when they change (required)")
	flags.IntVar(&s.maxStreams, "max-streams", proxy.DefaultMaxStreams, "maximum of concurrent streams, over all tunnels")
	flags.DurationVar(&s.peerGrace, "peer-grace", proxy.DefaultPeerGrace, "how long the other proxy may be unreachable before this one ends")
	flags.BoolVar(&s.reconnect, "reconnect", false, "never end because the other proxy is unreachable or was replaced: connect again, and prepare the tunnels again")
	flags.DurationVar(&s.drain, "drain", proxy.DefaultDrain, "how long streams may continue after SIGTERM or shutdown")
	flags.StringVar(&s.logLevel, "log-level", "info", "debug, info, warn or error")
}

// common returns the options of both proxies.
func (s *shared) common(p *program) (proxy.Common, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.logLevel)); err != nil {
		return proxy.Common{}, usage("--log-level is %q: want debug, info, warn or error", s.logLevel)
	}
	if s.maxStreams < 1 {
		return proxy.Common{}, usage("--max-streams is %d: want 1 or more", s.maxStreams)
	}
	if s.peerGrace <= 0 || s.drain < 0 {
		return proxy.Common{}, usage("--peer-grace must be above 0, and --drain 0 or more")
	}
	identity, err := readIdentity(s.tlsDir)
	if err != nil {
		return proxy.Common{}, err
	}
	return proxy.Common{
		Identity:   identity,
		MaxStreams: s.maxStreams,
		PeerGrace:  s.peerGrace,
		Reconnect:  s.reconnect,
		Drain:      s.drain,
		Version:    p.version,
		Log:        slog.New(slog.NewJSONHandler(p.err, &slog.HandlerOptions{Level: level})),
		Ready:      func(r proxy.Ready) { _ = json.NewEncoder(p.out).Encode(r) },
		Now:        time.Now,
	}, nil
}

func readIdentity(dir string) (*pki.Identity, error) {
	if dir == "" {
		return nil, usage("--tls-dir is missing: set it to a folder with %s, %s and %s", pki.AuthorityFile, pki.CertificateFile, pki.KeyFile)
	}
	identity, err := pki.Files(dir)
	if err != nil {
		return nil, usage("--tls-dir: %w", err)
	}
	return identity, nil
}

// addEndpoint adds the flags for an address and a port.
func addEndpoint(flags *pflag.FlagSet, e *proxy.Endpoint, name, address string, port int, description string) {
	flags.StringVar(&e.Address, name+"-address", address, "address "+description)
	flags.IntVar(&e.Port, name+"-port", port, "port "+description)
}

// checkPorts returns an error for an invalid port. lowest is 0 if a random port is accepted.
func checkPorts(lowest int, ports map[string]int) error {
	for name, port := range ports {
		if port < lowest || port > 65535 {
			return usage("--%s is %d: want %d to 65535", name, port, lowest)
		}
	}
	return nil
}

func (p *program) client() *cobra.Command {
	var s shared
	o := proxy.ClientOptions{}
	c := &cobra.Command{
		Use:   "client",
		Short: "Run the proxy in the container network",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if err := checkPorts(0, map[string]int{"client-control-port": o.Control.Port, "client-data-port": o.Data.Port}); err != nil {
				return err
			}
			if o.MaxTunnels < 1 || o.MaxTunnelStreams < 1 || o.MaxOpening < 1 || o.OpeningTimeout <= 0 || o.IdleTimeout < 0 {
				return usage("--max-tunnels, --max-tunnel-streams and --max-opening must be 1 or more, --opening-timeout above 0, and --idle-timeout 0 or more")
			}
			if o.Common, err = s.common(p); err != nil {
				return err
			}
			return proxy.RunClient(c.Context(), o)
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	s.add(flags)
	addEndpoint(flags, &o.Control, "client-control", "0.0.0.0", proxy.DefaultControlPort, "to listen at for the server proxy's control connection")
	addEndpoint(flags, &o.Data, "client-data", "0.0.0.0", proxy.DefaultDataPort, "to listen at for data connections")
	flags.IntVar(&o.MaxTunnels, "max-tunnels", proxy.DefaultMaxTunnels, "maximum of tunnels")
	flags.IntVar(&o.MaxTunnelStreams, "max-tunnel-streams", proxy.DefaultTunnelStreams, "maximum of concurrent streams of one tunnel")
	flags.DurationVar(&o.IdleTimeout, "idle-timeout", 0, "how long a stream may carry no bytes in either direction before it is cut; 0 is unlimited")
	flags.IntVar(&o.MaxOpening, "max-opening", proxy.DefaultMaxOpening, "maximum of streams of one tunnel that wait for their server")
	flags.DurationVar(&o.OpeningTimeout, "opening-timeout", proxy.DefaultOpeningTimeout, "how long a stream may wait for its server")
	return c
}

func (p *program) server() *cobra.Command {
	var s shared
	var allowed, denied, deniedPorts string
	o := proxy.ServerOptions{}
	c := &cobra.Command{
		Use:   "server",
		Short: "Run the proxy on the host",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if o.ClientControl.Address == "" {
				return usage("--client-control-address is missing: set it to the address of the client proxy")
			}
			if o.ClientData.Address == "" {
				o.ClientData.Address = o.ClientControl.Address
			}
			if err := checkPorts(0, map[string]int{"server-control-port": o.Control.Port}); err != nil {
				return err
			}
			if err := checkPorts(1, map[string]int{"client-control-port": o.ClientControl.Port, "client-data-port": o.ClientData.Port}); err != nil {
				return err
			}
			if o.CheckInterval < 0 {
				return usage("--check-interval must not be below 0")
			}
			if o.ConnectTimeout <= 0 || o.DialTimeout <= 0 {
				return usage("--connect-timeout and --dial-timeout must be above 0")
			}
			if o.Servers, err = rules(allowed, denied, deniedPorts); err != nil {
				return err
			}
			if o.Common, err = s.common(p); err != nil {
				return err
			}
			o.Names = net.DefaultResolver
			return proxy.RunServer(c.Context(), o)
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	s.add(flags)
	addEndpoint(flags, &o.Control, "server-control", "localhost", 0, "to listen at for controllers; port 0 is a random port")
	addEndpoint(flags, &o.ClientControl, "client-control", "", proxy.DefaultControlPort, "at which the client proxy listens for the control connection")
	addEndpoint(flags, &o.ClientData, "client-data", "", proxy.DefaultDataPort, "at which the client proxy listens for data connections; the default address is that of control")
	addRules(flags, &allowed, &denied, &deniedPorts)
	flags.DurationVar(&o.ConnectTimeout, "connect-timeout", proxy.DefaultConnectTimeout, "how long to try to reach the client proxy at the start")
	flags.DurationVar(&o.CheckInterval, "check-interval", proxy.DefaultCheckInterval, "how often to connect to a server that no stream has used since, to know whether it answers; 0 is never")
	flags.DurationVar(&o.DialTimeout, "dial-timeout", proxy.DefaultDialTimeout, "how long to try to reach a server for a stream")
	return c
}
