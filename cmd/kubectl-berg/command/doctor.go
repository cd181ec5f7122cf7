package command

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/doctor"
)

var levels = map[doctor.Level]struct {
	mark   string
	colour console.Colour
}{
	doctor.OK:      {"✓", console.Green},
	doctor.Warning: {"!", console.Yellow},
	doctor.Problem: {"✗", console.Red},
	doctor.Unknown: {"?", console.Faint},
}

func (r *root) doctor() *cobra.Command {
	var o doctor.Options
	var strict bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "See whether the cluster is ready: APIs, Gateway, DNS, isolation, images, quotas, rights",
		Long: `See whether the cluster is ready for challenges. Each line is ok, or says what to do; it only looks,
and what you may not read is left out. Exit code 4: there is a problem.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			to, err := r.open()
			if err != nil {
				return err
			}
			o.Namespace, o.Plugin = to.Namespace, r.version
			survey, err := doctor.Look(cmd.Context(), to, o)
			if err != nil {
				return err
			}
			lines := doctor.Check(survey)
			worst := doctor.Worst(lines)
			if r.Format == console.JSON {
				if err := r.WriteJSON(map[string]any{"verdict": worst, "checks": lines}); err != nil {
					return err
				}
			} else {
				r.showLines(lines)
			}
			return verdictOf(worst == doctor.Problem || strict && worst == doctor.Warning)
		},
	}
	f := c.Flags()
	f.StringVar(&o.OperatorNamespace, "operator-namespace", "", "where the operator is; looked for by default")
	f.BoolVar(&o.Offline, "offline", false, "ask nobody but the API server: no DNS, no connection to the Gateway")
	f.BoolVar(&strict, "strict", false, "exit with 4 on a warning, too")
	return c
}

func (r *root) showLines(lines []doctor.Line) {
	widest := 0
	for _, l := range lines {
		widest = max(widest, len(l.Check))
	}
	width := 0
	if r.OutTerminal {
		width = r.Width()
	}
	indent := fmt.Sprintf("%*s", widest+5, "")
	for _, l := range lines {
		m := levels[l.Level]
		r.Printf("%s %-*s   %s\n", r.Paint(m.colour, m.mark), widest, l.Check, console.Wrap(l.Text, width-len(indent), indent))
		if l.Do != "" && l.Level != doctor.OK {
			r.Printf("%s%s %s\n", indent, r.Paint(console.Bold, "→"), console.Wrap(l.Do, width-len(indent)-2, indent+"  "))
		}
	}
	count := func(level doctor.Level) int {
		n := 0
		for _, l := range lines {
			if l.Level == level {
				n++
			}
		}
		return n
	}
	if slices.ContainsFunc(lines, func(l doctor.Line) bool { return l.Level != doctor.OK }) {
		r.Printf("%d ok, %d warnings, %d problems, %d unknown\n", count(doctor.OK), count(doctor.Warning), count(doctor.Problem), count(doctor.Unknown))
		return
	}
	r.Printf("All is well.\n")
}
