package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/doctor"
)

// levelSymbols has each level.
var levelSymbols = map[console.Level]symbol{
	console.OK: okSymbol, console.Waiting: waitingSymbol, console.Warning: warningSymbol, console.Problem: problemSymbol, console.Unknown: unknownSymbol,
}

func (r *root) doctor() *cobra.Command {
	var o doctor.Options
	var strict bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether the cluster is ready: APIs, Gateway, DNS, isolation, images, quotas, permissions",
		Long: `Check whether the cluster is ready for challenges. Each line is ok or says what to do. The command
changes nothing, and skips what you may not read. Exit code 4: a problem was found.`,
		Example: `  kubectl berg doctor -n berg
  kubectl berg doctor --offline --strict -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			to, err := r.open()
			if err != nil {
				return err
			}
			o.Namespace, o.Plugin = to.Namespace, r.version
			survey, err := doctor.Inspect(cmd.Context(), to, o)
			if err != nil {
				return err
			}
			results := doctor.Check(survey)
			worst := doctor.Worst(results)
			if r.Format == console.JSON {
				if err := r.WriteJSON(map[string]any{"level": worst, "checks": results}); err != nil {
					return err
				}
			} else {
				r.showResults(results)
			}
			return problemError(worst == console.Problem || strict && worst == console.Warning)
		},
	}
	f := c.Flags()
	f.StringVar(&o.OperatorNamespace, "operator-namespace", "", "namespace of the operator (default: search all)")
	f.BoolVar(&o.Offline, "offline", false, "use the API server only: no DNS, no connection to the Gateway")
	f.BoolVar(&strict, "strict", false, "exit with code 4 on warnings, too")
	return c
}

// showResults aligns the texts behind the longest name, and wraps them on a terminal.
func (r *root) showResults(results []doctor.Result) {
	widest := 0
	count := map[console.Level]int{}
	for _, l := range results {
		widest = max(widest, len(l.Check))
		count[l.Level]++
	}
	indent := fmt.Sprintf("%*s", widest+5, "")
	width := r.TextWidth() - len(indent)
	for _, l := range results {
		r.Printf("%s %-*s   %s\n", r.paintSymbol(levelSymbols[l.Level]), widest, l.Check, console.Wrap(l.Text, width, indent))
		if l.Do != "" && l.Level != console.OK {
			r.Printf("%s%s %s\n", indent, r.Paint(console.Bold, "→"), console.Wrap(l.Do, width-2, indent+"  "))
		}
	}
	if count[console.OK] == len(results) {
		r.Printf("No problems found.\n")
		return
	}
	r.Printf("%d ok, %d warnings, %d problems, %d unknown\n", count[console.OK], count[console.Warning], count[console.Problem], count[console.Unknown])
}
