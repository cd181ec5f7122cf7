package command

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/bergctf/berg-operator/internal/kit/connection"
	"github.com/bergctf/berg-operator/internal/tunnel/expose"
	"github.com/bergctf/berg-operator/internal/tunnel/proxy"
)

// images is where the images of releases are; each has this program.
const images = "ghcr.io/bergctf/berg-operator"

// unreleased begins the version of a program that is no release.
const unreleased = "v0.0.0"

func (p *program) expose() *cobra.Command {
	var kubeconfig, kubeContext, logLevel string
	o := expose.Options{Out: p.out, Version: p.version}
	c := &cobra.Command{
		Use:   "expose PORT[:PORT-IN-CLUSTER]...",
		Short: "Let pods reach servers of this machine, until Ctrl-C",
		Long: `expose lets pods reach servers that listen at the loopback of this machine: it makes a pod with the client
proxy, a Secret with its certificate and a Service with its name, connects to the pod as kubectl port-forward does, and
prints the address that pods use. It connects again when the connection breaks, also after this machine has slept. Ctrl-C removes all
three objects. It needs no operator, no kubectl and no route from the cluster to this machine.`,
		Example: `  berg-tunnel expose 8080
  berg-tunnel expose 8080:80 5432 --as laptop -n development`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) (err error) {
			if o.Ports, err = exposedPorts(args); err != nil {
				return err
			}
			if wrong := validation.IsDNS1035Label(o.Name); len(wrong) > 0 {
				return usage("--as is %q: want the name of a Service: %s", o.Name, strings.Join(wrong, "; "))
			}
			if o.Image == "" {
				if strings.HasPrefix(p.version, unreleased) {
					return usage("--image is missing: this program is no release, so it does not know its image")
				}
				o.Image = images + ":" + p.version
			}
			var level slog.Level
			if err := level.UnmarshalText([]byte(logLevel)); err != nil {
				return usage("--log-level is %q: want debug, info, warn or error", logLevel)
			}
			o.Log = slog.New(slog.NewTextHandler(p.err, &slog.HandlerOptions{Level: level}))
			if level > slog.LevelDebug {
				klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // client-go writes each connection that breaks
			}
			files := clientcmd.NewDefaultClientConfigLoadingRules()
			files.ExplicitPath = kubeconfig
			config := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(files, &clientcmd.ConfigOverrides{CurrentContext: kubeContext})
			if o.Config, err = config.ClientConfig(); err != nil {
				return usageError{fmt.Errorf("find the cluster: %w", err)}
			}
			o.Config = connection.Configure(o.Config)
			if o.Namespace == "" {
				if o.Namespace, _, err = config.Namespace(); err != nil {
					return usageError{fmt.Errorf("find the namespace: %w", err)}
				}
			}
			return expose.Run(c.Context(), o)
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.Name, "as", "laptop", "name by which pods reach this machine")
	flags.StringVarP(&o.Namespace, "namespace", "n", "", "namespace to make the pod in; the default is that of the context")
	flags.StringVar(&o.Image, "image", "", "image with this program at /berg-tunnel; the default is that of the operator of the same version")
	flags.BoolVar(&o.Replace, "replace", false, "take the name over from another berg-tunnel that still uses it")
	flags.StringVar(&kubeconfig, "kubeconfig", "", "file that says how the cluster is reached; the default is that of kubectl")
	flags.StringVar(&kubeContext, "context", "", "context of that file; the default is the current one")
	flags.StringVar(&logLevel, "log-level", "error", "debug, info, warn or error")
	return c
}

// exposedPorts reads PORT or PORT:PORT-IN-CLUSTER.
func exposedPorts(args []string) (all []expose.Port, err error) {
	local, inCluster := map[int32]bool{}, map[int32]bool{}
	for _, arg := range args {
		here, there, both := strings.Cut(arg, ":")
		if !both {
			there = here
		}
		var p expose.Port
		if p.Local, err = portNumber(here); err == nil {
			p.InCluster, err = portNumber(there)
		}
		switch {
		case err != nil:
			return nil, usage("%q: want PORT or PORT:PORT-IN-CLUSTER, each from 1 to 65535", arg)
		case p.InCluster == proxy.DefaultControlPort || p.InCluster == proxy.DefaultDataPort:
			return nil, usage("%q: the pod uses the ports %d and %d itself: choose another port, as %d:PORT-IN-CLUSTER", arg, proxy.DefaultControlPort, proxy.DefaultDataPort, p.Local)
		case local[p.Local] || inCluster[p.InCluster]:
			return nil, usage("%q: a port is given twice", arg)
		}
		local[p.Local], inCluster[p.InCluster] = true, true
		all = append(all, p)
	}
	return all, nil
}

func portNumber(text string) (int32, error) {
	number, err := strconv.ParseUint(text, 10, 16)
	if err == nil && number == 0 {
		err = errors.New("zero")
	}
	return int32(number), err
}
