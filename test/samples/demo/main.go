// Command demo shows the operator at work, from nothing: it starts a cluster, builds and deploys the
// operator, runs the sample challenges, fetches and solves their flags, extends one instance and lets
// another expire.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

const usage = `demo shows the operator at work, from nothing.

  go run ./test/samples/demo [up] [options]
  go run ./test/samples/demo down [options]

up    starts a cluster, deploys the operator, runs the samples and checks what they do.
      What it made stays, to be looked at.
        --profile auto|node|network|simulated
                         node has real pods and needs root; network has a Gateway and Cilium
                         too, so that a browser opens a challenge by https; simulated has no
                         pods and needs no root; auto takes node if this is root       (auto)
        --picture FILE   with --profile network: where to write what the browser shows
                                                                             (dist/demo.png)
        --keep=false     remove everything again at the end, also after a failure     (true)
        --registry PREFIX
                         with KUBECONFIG: where the images are instead of
                         ghcr.io/bergctf, such as registry.example.org/berg
down  removes what the demo made, and nothing else.

        --name NAME      name of the cluster                                          (demo)
        --yes            with KUBECONFIG: do not ask before changing that cluster

With KUBECONFIG set the demo uses that cluster instead of making one.
`

func main() {
	// The first signal is a request; a second one ends the process immediately.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)

	err := run(ctx, os.Args[1:], os.Stdout)
	if err == nil {
		return
	}
	if !errors.Is(err, errShown) {
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
	}
	os.Exit(1)
}

// errShown stands for a failure that the user has already been told.
var errShown = errors.New("a step failed")

// explained reports a failed step immediately, while the objects that it names still exist.
func explained(w io.Writer, err error) error {
	var failed *stepError
	if !errors.As(err, &failed) {
		return err
	}
	failed.print(w)
	return errShown
}

// options are what the command line and the environment can say.
type options struct {
	profile    string
	name       string
	keep       bool
	registry   string
	picture    string
	yes        bool
	kubeconfig string // KUBECONFIG, empty if not set
}

const (
	defaultName      = "demo"
	profileAuto      = "auto"
	profileNode      = "node"
	profileNetwork   = "network"
	profileSimulated = "simulated"

	defaultPicture = "dist/demo.png"
)

func run(ctx context.Context, args []string, stdout io.Writer) error {
	command := "up"
	if len(args) > 0 && (args[0] == "up" || args[0] == "down") {
		command, args = args[0], args[1:]
	}
	opts, err := parseOptions(command, args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, usage)
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: --help lists the options", err)
	}
	// Otherwise the client's library would complain, in the middle of a step, that no logger is set.
	log.SetLogger(logr.Discard())
	show := newShow(stdout)
	if command == "down" {
		return explained(stdout, down(ctx, show, opts))
	}
	err = explained(stdout, up(ctx, show, opts))
	if opts.keep {
		return err
	}
	// Not with the context of the demo: it is done when the user interrupted it.
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), downTimeout)
	defer cancel()
	return errors.Join(err, explained(stdout, down(clean, show, opts)))
}

func parseOptions(command string, args []string) (options, error) {
	opts := options{kubeconfig: os.Getenv("KUBECONFIG"), profile: profileAuto, keep: true, picture: defaultPicture}
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&opts.name, "name", defaultName, "")
	flags.BoolVar(&opts.yes, "yes", false, "")
	if command == "up" {
		flags.StringVar(&opts.profile, "profile", profileAuto, "")
		flags.BoolVar(&opts.keep, "keep", true, "")
		flags.StringVar(&opts.registry, "registry", "", "")
		flags.StringVar(&opts.picture, "picture", defaultPicture, "")
	}
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if flags.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	switch opts.profile {
	case profileAuto, profileNode, profileNetwork, profileSimulated:
	default:
		return options{}, fmt.Errorf("--profile %q: use auto, node, network or simulated", opts.profile)
	}
	return opts, nil
}

// up plays the whole demo. Each step is a method of demo in the file that is named after its matter.
func up(ctx context.Context, show *show, opts options) error {
	d := newDemo(show, opts)
	for _, step := range []func(context.Context) error{
		d.chooseTarget,
		d.startCluster,
		d.connect,
		d.checkSamplesAreOurs,
		d.removeEarlierInstances,
		d.buildImages,
		d.loadImages,
		d.deployOperator,
		d.applySamples,
		d.waitUntilRunning,
		d.listInstances,
		d.checkFlags,
		d.useEndpoints,
		d.extendInstance,
		d.letInstanceExpire,
		d.listInstances,
		d.openInBrowser,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	d.farewell()
	return nil
}

func newDemo(show *show, opts options) *demo {
	return &demo{show: show, opts: opts, seen: map[types.UID]bergv1.ChallengeInstanceStatus{}}
}

// demo is what the steps share.
type demo struct {
	show   *show
	opts   options
	target target
	// page is where the web instance can be looked at: nil on a cluster that the demo gave no Gateway.
	page *page
	// seen is what was last shown of each instance, so that only changes are told.
	seen map[types.UID]bergv1.ChallengeInstanceStatus
}
