// Command cluster runs a real Kubernetes on one Linux machine: built from pinned Go modules,
// started with one command and removed without a trace by another.
//
// It uses the standard library alone. What it runs is built from modules of their own under components/,
// so that their dependencies never reach the operator.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bergctf/berg-operator/test/cluster/build"
	"github.com/bergctf/berg-operator/test/cluster/disk"
	"github.com/bergctf/berg-operator/test/cluster/kube"
	"github.com/bergctf/berg-operator/test/cluster/progress"
)

const usage = `cluster runs a real Kubernetes on this machine.

Usage: go run ./test/cluster COMMAND [--name NAME] [options]

Clusters
  up          start a cluster and wait until it is ready; on a running one, check and repair it
                --profile simulated   real control plane, nodes and pods played by kwok; no root (default)
                --profile node        real containers on a real node; Linux with root
                --profile olm         node, with the Operator Lifecycle Manager on it
                --profile network     node, with Cilium, a Gateway, and a network outside
                --profile tekton      node, with Tekton Pipelines, a git server, and a registry that wants a login
                --nodes N             simulated nodes                                   (4)
                --audit               write an audit log of every request, without bodies
                --without-optional-apis
                                      do not install the Cilium and Gateway API CRDs
                --timeout D           give up after D, builds not counted               (5m)
  down        stop a cluster, remove everything that belongs to it, and check that nothing is left
  status      processes, API server, nodes; exits 1 when something is missing
  list        all clusters of this user

Work with one
  kubeconfig  print the path of the administrator's kubeconfig
  kubectl     run the cluster's own kubectl: kubectl [--name NAME] ARGS...
  registry    print where a node's registry is and which authority signs for it, as shell variables
  load        put images into the node's registry: load [--name NAME] IMAGE.tar...
  restart     kill one component and start it again, as after a crash: restart [--name NAME] COMPONENT
  logs        list the log files, or print that of one component: logs [--name NAME] [COMPONENT]

Binaries
  build       fill the cache only, for all profiles or for one: build [--profile PROFILE];
              with --check build nothing, and exit with 1 when something is missing
  bin         print the directory that holds kubectl and the control plane, building them if needed

The name of a cluster is "berg" unless --name says otherwise.

Environment
  BERG_CLUSTER_CACHE  where binaries and clusters live      (the user's cache directory, berg-operator)
  BERG_CLUSTER_BIN    where binaries are kept; may be read-only once filled, so that users can share it
                                                            ($BERG_CLUSTER_CACHE/bin)
  BERG_CLUSTER_KUBERNETES
                      an older minor version, such as 1.33       (the newest one)
  BERG_CLUSTER_GOGC   GOGC of what runs in a cluster: 400 saves a tenth of the CPU time for twice the memory
                                                            (Go's default)
`

const (
	defaultName    = "berg"
	defaultTimeout = 5 * time.Minute
)

func main() {
	// The first signal is a request; a second one ends the process immediately.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)

	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err == nil:
	case errors.Is(err, kube.ErrUnhealthy):
		os.Exit(1)
	default:
		fmt.Fprintf(os.Stderr, "cluster: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return errors.New(`no command given: try "up"`)
	}
	command, args := args[0], args[1:]

	if ours, err := kube.Reenter(command, args); ours {
		return err
	}
	switch command {
	case "help", "-h", "--help":
		fmt.Fprint(stdout, usage)
		return nil
	}

	var opts kube.Options
	var check bool
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&opts.Name, "name", defaultName, "")
	switch command {
	case "up":
		flags.StringVar(&opts.Profile, "profile", kube.ProfileSimulated, "")
		flags.IntVar(&opts.Nodes, "nodes", 4, "")
		flags.BoolVar(&opts.Audit, "audit", false, "")
		flags.BoolVar(&opts.WithoutOptionalAPIs, "without-optional-apis", false, "")
		flags.DurationVar(&opts.Timeout, "timeout", defaultTimeout, "")
	case "restart":
		flags.DurationVar(&opts.Timeout, "timeout", defaultTimeout, "")
	case "build":
		flags.StringVar(&opts.Profile, "profile", "", "")
		flags.BoolVar(&check, "check", false, "")
	case "down", "status", "list", "kubeconfig", "kubectl", "registry", "load", "logs", "bin":
	default:
		return fmt.Errorf(`unknown command %q: "help" lists them`, command)
	}

	var rest []string
	if command == "kubectl" {
		// Everything but a leading --name is kubectl's own.
		args, rest = splitName(args)
	}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, usage)
		return nil
	} else if err != nil {
		return fmt.Errorf(`%s: %w: "help" lists what it takes`, command, err)
	}
	rest = append(rest, flags.Args()...)
	if err := validate(opts, command, rest); err != nil {
		return err
	}

	places, err := disk.Find()
	if err != nil {
		return err
	}
	show := progress.New(stderr)

	switch command {
	case "up":
		return kube.Up(ctx, places, opts, show)
	case "down":
		return kube.Down(ctx, places, opts.Name, show)
	case "status":
		return kube.Status(ctx, places, opts.Name, stdout)
	case "list":
		return kube.List(places, stdout)
	case "kubeconfig":
		return kube.PrintKubeconfig(places, opts.Name, stdout)
	case "kubectl":
		return kube.Kubectl(places, opts.Name, rest)
	case "registry":
		return kube.PrintRegistry(places, opts.Name, stdout)
	case "load":
		return kube.LoadImages(ctx, places, opts.Name, rest, stdout, show)
	case "restart":
		return kube.Restart(ctx, places, opts, rest[0], show)
	case "logs":
		return kube.Logs(places, opts.Name, rest, stdout)
	case "build":
		if check {
			return kube.CheckBuilds(ctx, places, opts.Profile)
		}
		_, err := kube.Build(ctx, places, opts.Profile, show)
		return err
	default: // bin
		dir, err := build.One(ctx, places, build.ControlPlane, show)
		if err == nil {
			fmt.Fprintln(stdout, dir)
		}
		return err
	}
}

func validate(o kube.Options, command string, rest []string) error {
	if !disk.ValidName.MatchString(o.Name) {
		return fmt.Errorf("--name %q: use one to twenty of a-z, 0-9 and -, beginning with a letter", o.Name)
	}
	if profiles := kube.Profiles(); o.Profile != "" && !slices.Contains(profiles, o.Profile) {
		last := len(profiles) - 1
		return fmt.Errorf("--profile %q: use %s or %s", o.Profile, strings.Join(profiles[:last], ", "), profiles[last])
	}
	if o.WithoutOptionalAPIs && kube.NeedsOptionalAPIs(o.Profile) {
		return fmt.Errorf("--profile %s is made of the optional APIs", o.Profile)
	}
	if command == "up" && (o.Nodes < 1 || o.Nodes > kube.MaxSimulatedNodes) {
		return fmt.Errorf("--nodes %d: use 1 to %d", o.Nodes, kube.MaxSimulatedNodes)
	}
	switch command {
	case "kubectl":
	case "load":
		if len(rest) == 0 {
			return errors.New("load: name at least one image archive, as in: load [--name NAME] web.tar")
		}
	case "restart":
		if len(rest) != 1 {
			return errors.New("restart: name one component, as in: restart [--name NAME] kube-apiserver")
		}
	case "logs":
		if len(rest) > 1 {
			return errors.New("logs: name one component, or none to list them")
		}
	default:
		if len(rest) > 0 {
			return fmt.Errorf("%s: takes no argument %q", command, rest[0])
		}
	}
	return nil
}

// splitName takes a leading --name off the arguments that are meant for another program.
func splitName(args []string) (own, others []string) {
	if len(args) == 0 {
		return nil, nil
	}
	switch first := args[0]; {
	case first == "--name" || first == "-name":
		n := min(2, len(args))
		return args[:n], args[n:]
	case strings.HasPrefix(first, "--name=") || strings.HasPrefix(first, "-name="):
		return args[:1], args[1:]
	default:
		return nil, args
	}
}
