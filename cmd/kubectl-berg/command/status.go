package command

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/doctor"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/overview"
	"github.com/bergctf/berg-operator/internal/berg/plan"
)

func (r *root) status() *cobra.Command {
	var o doctor.Options
	var everywhere bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the event on one screen: operator, instances, problems, queue, headroom, checks, images, records",
		Long: `Show the event on one screen: the operator, the instances by phase, what is wrong with them and what to do,
the queue, how many more instances can start; node ports, checks, images that are
pulled in advance, and records.

It shows all namespaces that you may read, or one with -n. It changes nothing. Exit code 4: a problem was
found.`,
		Example: `  kubectl berg status
  watch -n 5 kubectl berg status -n berg`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			to, err := r.open()
			if err != nil {
				return err
			}
			o.Namespace, o.Plugin = to.Namespace, r.version
			o.OneNamespace = cmd.Flags().Changed("namespace") && !everywhere
			survey, err := doctor.Event(cmd.Context(), to, o)
			if err != nil {
				return err
			}
			var settings *plan.Settings
			if found, _, err := planSettings(survey, nil); err == nil {
				settings = &found
			} else {
				r.Notef("%s without the headroom: a setting of the operator is not valid: %s", r.PaintErr(console.Yellow, "warning:"), console.OneLine(err.Error()))
			}
			records, _ := survey.Setting("RECORD_NAMESPACE")
			sum := overview.New(survey, settings, cmp.Or(o.Records, records))
			lines := sum.Lines()
			if r.Format == console.JSON {
				if err := r.WriteJSON(sum); err != nil {
					return err
				}
			} else {
				r.showResults(lines)
			}
			return problemError(doctor.Worst(lines) == console.Problem)
		},
	}
	f := c.Flags()
	f.BoolVarP(&everywhere, "all-namespaces", "A", false, "show all namespaces that you may read, as without -n")
	f.StringVar(&o.OperatorNamespace, "operator-namespace", "", "namespace of the operator (default: search all)")
	f.StringVar(&o.Records, "records", "", "namespace of the records (default: the operator's RECORD_NAMESPACE)")
	_ = c.RegisterFlagCompletionFunc("operator-namespace", r.completeNamespaces)
	_ = c.RegisterFlagCompletionFunc("records", r.completeNamespaces)
	return c
}
