package command

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/utils/clock"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

// New returns the program.
func New(out *console.Console, version string) *cobra.Command {
	r := &root{Console: out, flags: genericclioptions.NewConfigFlags(true), version: version, clock: clock.RealClock{}}
	cmd := &cobra.Command{
		Use:   "kubectl-berg",
		Short: "Run an event: challenge instances of berg-operator",
		Long: `kubectl berg manages challenge instances of berg-operator: list and try them, find problems,
extend and end them, and check whether a cluster is ready for an event.

It uses your own permissions. Exit codes: 0 done, 1 failed, 2 invalid usage, 3 not found,
4 problem found, 5 timed out, 6 partly done, 7 not allowed, 8 API server unreachable.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl berg"},
		PersistentPreRunE: func(c *cobra.Command, _ []string) (err error) {
			if r.retryTimeout, err = c.Flags().GetDuration(retryFlag); err != nil {
				return err
			}
			if r.output == string(console.SARIF) && c.Name() == "lint" {
				r.Format = console.SARIF
				return nil
			}
			return r.setFormat(c)
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
		// All options of kubectl work. Help shows the common ones only.
		f.Hidden = !slices.Contains([]string{"namespace", "context", "kubeconfig", "as"}, f.Name)
	})
	cmd.PersistentFlags().StringVarP(&r.output, "output", "o", "", "output format: json, yaml, wide or name (default text)")
	cmd.PersistentFlags().Duration(retryFlag, 0, retryHelp+"; 0: not at all")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json", "yaml", "wide", "name"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("namespace", r.completeNamespaces)
	cmd.AddGroup(&cobra.Group{ID: "look", Title: "Inspect:"}, &cobra.Group{ID: "play", Title: "Try:"},
		&cobra.Group{ID: "many", Title: "Change one or many:"}, &cobra.Group{ID: "cluster", Title: "Cluster:"}, &cobra.Group{ID: "write", Title: "Write Challenges:"})
	for group, commands := range map[string][]*cobra.Command{
		"look":    {r.status(), r.list(), r.why(), r.logs(), r.records(), r.record()},
		"play":    {r.try(), r.connect()},
		"many":    {r.end(), r.extend(), r.rollout(), r.freeze(), r.unfreeze()},
		"cluster": {r.doctor(), r.plan(), r.report()},
		"write":   {r.importFiles(), r.lint()},
	} {
		for _, c := range commands {
			c.GroupID = group
			claimErrors(c)
			cmd.AddCommand(c)
		}
	}
	cmd.AddCommand(r.versionCommand())
	cmd.InitDefaultCompletionCmd()
	refuseUnknownShells(cmd)
	cmd.InitDefaultHelpCmd()
	return cmd
}

// Execute runs the program. An error before a command runs is an error in the command line.
func Execute(ctx context.Context, out *console.Console, version string) error {
	return usageError(New(out, version).ExecuteContextC(ctx)) //nolint:contextcheck // each command takes it from cobra
}

// usageError returns the error with which a command ended: cobra's own are of the command line.
func usageError(c *cobra.Command, err error) error {
	var known *console.Error
	if err != nil && !errors.As(err, &known) {
		return console.Errorf(console.ExitUsage, "%w: see %s --help", err, c.CommandPath())
	}
	return err
}

// claimErrors gives the errors of a command the exit code of a failure, to distinguish them from errors of
// the command line. Those say how the command is used. It must wrap every command: cobra returns errors of both kinds in the same
// way.
func claimErrors(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if check(c, args) != nil {
				return console.Errorf(console.ExitUsage, "wrong number of arguments: %d. Use: %s", len(args), c.UseLine())
			}
			return nil
		}
	}
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

// refuseUnknownShells makes a shell that completion does not know an error. Without a function of its own the command would show its
// help for any argument, and succeed.
func refuseUnknownShells(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		if c.Name() == "completion" {
			c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
		}
	}
}

// setFormat turns yaml into JSON with YAML set, so that commands know one format for programs.
func (r *root) setFormat(c *cobra.Command) error {
	switch r.output {
	case "", "text":
		r.Format = console.Text
	case "json", "wide", "name":
		r.Format = console.Format(r.output)
	case "yaml":
		r.Format, r.YAML = console.JSON, true
	default:
		formats := "json, yaml, wide or name"
		if c.Name() == "lint" {
			formats = "json, yaml, sarif, wide or name"
		}
		return console.Errorf(console.ExitUsage, "-o %s: must be %s", r.output, formats)
	}
	return nil
}

// versionCommand needs no cluster.
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
