// Package command has the commands of the program, one in each file.
package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

// root is what all commands share.
type root struct {
	*console.Console
	flags   *genericclioptions.ConfigFlags
	version string
	clock   clock.WithTicker
	output  string
}

// New makes the program.
func New(out *console.Console, version string) *cobra.Command {
	r := &root{Console: out, flags: genericclioptions.NewConfigFlags(true), version: version, clock: clock.RealClock{}}
	cmd := &cobra.Command{
		Use:   "kubectl-berg",
		Short: "Run an event: challenge instances of berg-operator",
		Long: `kubectl berg looks after challenge instances of berg-operator: list and try them, find out
what is wrong, give more time, end them, and see whether a cluster is ready for an event.

It has no rights of its own: it may do what you may. Exit codes: 0 done, 1 failed, 2 wrong usage,
3 not found, 4 something is wrong, 5 not in time, 6 partly done, 7 not allowed, 8 no API server.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl berg"},
		PersistentPreRunE: func(*cobra.Command, []string) error {
			return r.setFormat()
		},
	}
	cmd.SetIn(out.In)
	cmd.SetOut(out.Out)
	cmd.SetErr(out.Err)
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return console.Errorf(console.ExitUsage, "%w: see %s --help", err, c.CommandPath())
	})
	r.flags.AddFlags(cmd.PersistentFlags())
	cmd.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		// All of kubectl's options are taken; those that are rarely needed would bury the others.
		f.Hidden = !slices.Contains([]string{"namespace", "context", "kubeconfig", "as"}, f.Name)
	})
	cmd.PersistentFlags().StringVarP(&r.output, "output", "o", "", "json, wide or name; text by default")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json", "wide", "name"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("namespace", r.completeNamespaces)
	cmd.AddGroup(&cobra.Group{ID: "look", Title: "Look:"}, &cobra.Group{ID: "play", Title: "Try:"},
		&cobra.Group{ID: "many", Title: "Act on one or many:"}, &cobra.Group{ID: "cluster", Title: "The cluster:"})
	for group, commands := range map[string][]*cobra.Command{
		"look":    {r.list(), r.why(), r.logs(), r.records(), r.record()},
		"play":    {r.try(), r.connect()},
		"many":    {r.end(), r.extend(), r.rollout(), r.freeze(), r.unfreeze()},
		"cluster": {r.doctor(), r.plan()},
	} {
		for _, c := range commands {
			c.GroupID = group
			claimErrors(c)
			cmd.AddCommand(c)
		}
	}
	cmd.AddCommand(r.versionCommand())
	cmd.InitDefaultCompletionCmd()
	cmd.InitDefaultHelpCmd()
	return cmd
}

// Execute runs the program. What is wrong before a command begins is the command line.
func Execute(ctx context.Context, out *console.Console, version string) error {
	err := New(out, version).ExecuteContext(ctx) //nolint:contextcheck // each command takes it from cobra
	var known *console.Error
	if err != nil && !errors.As(err, &known) {
		return console.Errorf(console.ExitUsage, "%w: see kubectl berg --help", err)
	}
	return err
}

// claimErrors marks the errors of a command as its own.
func claimErrors(c *cobra.Command) {
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		err := run(c, args)
		var known *console.Error
		if err != nil && !errors.As(err, &known) {
			return console.Errorf(console.ExitFailed, "%w", err)
		}
		return err
	}
}

func (r *root) setFormat() error {
	switch r.output {
	case "", "text":
		r.Format = console.Text
	case "json", "wide", "name":
		r.Format = console.Format(r.output)
	default:
		return console.Errorf(console.ExitUsage, "-o %s: must be json, wide or name", r.output)
	}
	return nil
}

func (r *root) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of the plugin", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if r.Format == console.JSON {
				return r.WriteJSON(map[string]string{"version": r.version})
			}
			r.Printf("%s\n", r.version)
			return nil
		},
	}
}

// open makes the connection.
func (r *root) open() (*cluster.Cluster, error) {
	c, err := cluster.Connect(r.flags, "kubectl-berg/"+r.version, r.clock, warnings{r.Console})
	return c, cluster.Explain("read the kubeconfig", err)
}

// warnings shows those of the API server.
type warnings struct{ console *console.Console }

var _ rest.WarningHandler = warnings{}

// HandleWarningHeader shows one.
func (w warnings) HandleWarningHeader(code int, _, text string) {
	if code == 299 && text != "" {
		w.console.Notef("%s %s", w.console.PaintErr(console.Yellow, "warning:"), console.OneLine(text))
	}
}

// instance reads one.
func instance(ctx context.Context, c *cluster.Cluster, name string) (*bergv1.ChallengeInstance, error) {
	i := &bergv1.ChallengeInstance{}
	err := c.Get(ctx, key(c.Namespace, name), i)
	if err != nil {
		return nil, cluster.Explain(fmt.Sprintf("read instance %s in namespace %s", name, c.Namespace), err)
	}
	return i, nil
}

// trimmed takes the kind off a name, as in ci/alice.
func trimmed(name string) string {
	return withoutKind(name, "ci/", "instance/", "challengeinstance/", "challengeinstances/", "challengeinstance.berg.norelect.ch/", "challengeinstances.berg.norelect.ch/")
}

// trimmedChallenge takes the kind off a Challenge's name, as in challenge/guestbook.
func trimmedChallenge(name string) string {
	return withoutKind(name, "challenge/", "challenges/", "challenge.berg.norelect.ch/", "challenges.berg.norelect.ch/")
}

func withoutKind(name string, kinds ...string) string {
	for _, kind := range kinds {
		if rest, ok := strings.CutPrefix(name, kind); ok {
			return rest
		}
	}
	return name
}

// namespaceOf is that of an instance's objects.
func namespaceOf(i *bergv1.ChallengeInstance) string {
	if i.Status.Namespace != "" {
		return i.Status.Namespace
	}
	return "challenge-" + i.Spec.OwnerID
}

// ofInstance reports whether a pod is one of this instance, and not of one before it.
func ofInstance(p corev1.Pod, i *bergv1.ChallengeInstance) bool {
	id, marked := p.Annotations[bergv1.LabelInstanceID]
	return p.Labels[bergv1.LabelComponent] == bergv1.ComponentPod && (!marked || id == i.Status.InstanceID)
}

// lifetime parses a time such as 30m or 1h30m, in whole seconds, longer than zero.
func lifetime(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second {
		return 0, console.Errorf(console.ExitUsage, "%q: must be a time such as 30m or 1h30m", text)
	}
	return d.Truncate(time.Second), nil
}

// timeoutText writes a time as spec.timeout takes it.
func timeoutText(d time.Duration) string {
	return fmt.Sprintf("%ds", int64(d/time.Second))
}
