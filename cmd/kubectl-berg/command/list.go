package command

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/doctor"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

// listed is an instance in the output of list.
type listed struct {
	// Event is for a watch: seen, changed or gone.
	Event string `json:"event,omitempty"`
	view.Row
	SecondsLeft *int64 `json:"secondsLeft,omitempty"`
	// Use is how players have used it, with --usage and behind the gate.
	Use  *view.Use `json:"use,omitempty"`
	used string
}

// addUse adds how players have used the instance.
func (l *listed) addUse(uses *view.Uses, now time.Time) {
	use := uses.Find(&l.Row, now)
	if !use.Known {
		return
	}
	l.Use, l.used = &use, use.Words()
	switch {
	case !use.Last.IsZero():
		l.used += " " + console.Duration(now.Sub(use.Last)) + " ago"
	case !use.Since.IsZero():
		l.used += " " + use.Since.Format(time.RFC3339)
	}
}

// newListed leaves out the time of a frozen instance, which does not expire.
func newListed(i *bergv1.ChallengeInstance, now time.Time) listed {
	row := listed{Row: view.NewRow(i)}
	if !row.Expires.IsZero() && !row.Frozen {
		left := int64(row.Expires.Sub(now) / time.Second)
		row.SecondsLeft = &left
	}
	return row
}

// sortKeys compare rows by a column. Rows without a value in this column come last.
var sortKeys = map[string]func(a, b listed) int{
	"name":      func(a, b listed) int { return strings.Compare(a.Name, b.Name) },
	"challenge": func(a, b listed) int { return strings.Compare(a.Challenge, b.Challenge) },
	"phase": func(a, b listed) int {
		return slices.Index(bergv1.Phases, a.Phase) - slices.Index(bergv1.Phases, b.Phase)
	},
	"problem": func(a, b listed) int { return compareTexts(string(a.Reason), string(b.Reason)) },
	"cause":   func(a, b listed) int { return compareTexts(string(a.Cause), string(b.Cause)) },
	"left":    func(a, b listed) int { return compareLeft(a.SecondsLeft, b.SecondsLeft) },
	"owner":   func(a, b listed) int { return strings.Compare(a.Owner, b.Owner) },
	"source":  func(a, b listed) int { return compareTexts(a.Source, b.Source) },
	"created": func(a, b listed) int { return compareTimes(a.Created, b.Created) },
	"started": func(a, b listed) int { return compareTimes(a.Started, b.Started) },
}

// sortNames is for help and errors.
func sortNames() string { return strings.Join(slices.Sorted(maps.Keys(sortKeys)), ", ") }

// compareTimes compares two times; none comes last.
func compareTimes(a, b time.Time) int {
	if a.IsZero() || b.IsZero() {
		return b.Compare(a)
	}
	return a.Compare(b)
}

// compareTexts compares two texts; an empty one comes last.
func compareTexts(a, b string) int {
	if a == "" || b == "" {
		return strings.Compare(b, a)
	}
	return strings.Compare(a, b)
}

// compareLeft compares the seconds left; an instance that does not expire comes last.
func compareLeft(a, b *int64) int {
	return cmp.Compare(ptr.Deref(a, math.MaxInt64), ptr.Deref(b, math.MaxInt64))
}

// sortRows sorts rows by a key of sortKeys, or by the namespace if it is empty, and then by namespace and name.
func sortRows(rows []listed, column string) {
	compare := sortKeys[column]
	slices.SortFunc(rows, func(a, b listed) int {
		first := 0
		if compare != nil {
			first = compare(a, b)
		}
		return cmp.Or(first, strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
}

func (r *root) list() *cobra.Command {
	s := selection{prepared: true}
	var watch, problems, usage bool
	var column, operatorNamespace string
	c := &cobra.Command{
		Use: "list [NAME...]", Aliases: []string{"ls", "get"},
		Short: "List instances with their addresses, time left and problems",
		Example: `  kubectl berg list -n berg
  kubectl berg list -A --phase Starting,Failed -w
  kubectl berg list --sort-by left
  kubectl berg list -A --usage
  kubectl berg list --challenge guestbook -o json`,
		ValidArgsFunction: r.completeInstances,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.check(args, false); err != nil {
				return err
			}
			if column != "" && sortKeys[column] == nil {
				return console.Errorf(console.ExitUsage, "--sort-by %s: must be one of %s", column, sortNames())
			}
			to, err := r.open()
			if err != nil {
				return err
			}
			if watch {
				return r.watchInstances(cmd, to, &s, problems)
			}
			found, err := s.find(cmd.Context(), to)
			if err != nil {
				return err
			}
			var uses *view.Uses
			if usage {
				if uses, err = r.readUses(cmd.Context(), to, operatorNamespace); err != nil {
					return err
				}
			}
			rows := []listed{}
			for _, i := range found {
				row := newListed(i, to.Now())
				if uses != nil {
					row.addUse(uses, to.Now())
				}
				if !problems || row.Reason != "" {
					rows = append(rows, row)
				}
			}
			sortRows(rows, column)
			return writeRows(r, rows, "No instances found.", r.table(s.allNamespaces, usage), func(row listed) (string, []console.Cell) {
				return row.Name, r.cells(row, s.allNamespaces, usage)
			})
		},
	}
	s.add(c, r, false)
	c.Flags().BoolVarP(&watch, "watch", "w", false, "keep watching and show every change")
	c.Flags().BoolVar(&problems, "problems", false, "only instances with a problem")
	c.Flags().StringVar(&column, "sort-by", "", "sort by "+sortNames()+" (default: by namespace and name)")
	c.Flags().BoolVar(&usage, "usage", false, "also show how players use each instance behind the gate: in use, last used, never opened")
	c.Flags().StringVar(&operatorNamespace, "operator-namespace", "", "namespace of the operator and its gate, for --usage (default: search all)")
	c.MarkFlagsMutuallyExclusive("watch", "sort-by") // a watch shows instances as they change
	c.MarkFlagsMutuallyExclusive("watch", "usage")
	_ = c.RegisterFlagCompletionFunc("operator-namespace", r.completeNamespaces)
	_ = c.RegisterFlagCompletionFunc("sort-by", cobra.FixedCompletions(slices.Sorted(maps.Keys(sortKeys)), cobra.ShellCompDirectiveNoFileComp))
	return c
}

// readUses fails if it is not known how players use instances.
func (r *root) readUses(ctx context.Context, to *cluster.Cluster, operatorNamespace string) (*view.Uses, error) {
	uses, missing, err := doctor.ReadUses(ctx, to, operatorNamespace)
	if err == nil && missing != "" {
		err = console.Errorf(console.ExitFailed, "--usage: %s", console.OneLine(missing))
	}
	return uses, err
}

// table shrinks the names of instances and Challenges, and the addresses.
func (r *root) table(namespaces, usage bool) *console.Table {
	header := []string{"NAME", "CHALLENGE", "PHASE", "LEFT", "ADDRESS"}
	if r.Format == console.Wide {
		header = []string{"NAME", "CHALLENGE", "PHASE", "CAUSE", "LEFT", "OWNER", "SOURCE", "STARTED", "ADDRESS"}
	}
	if usage {
		header = slices.Insert(header, len(header)-1, "USE")
	}
	first := 0
	if namespaces {
		header, first = append([]string{"NAMESPACE"}, header...), 1
	}
	return &console.Table{Console: r.Console, Header: header, Shrink: []int{first, first + 1, len(header) - 1}}
}

// cells must have as many cells as the header of table, in the same order.
func (r *root) cells(row listed, namespaces, usage bool) []console.Cell {
	phase := console.Cell{Text: string(row.Phase), Colour: phaseColour(row.Phase)}
	if row.Reason != "" {
		phase = console.Cell{Text: string(row.Phase) + " " + string(row.Reason), Colour: console.Red}
	}
	if row.Event == "gone" {
		phase = console.Cell{Text: "gone", Colour: console.Faint}
	}
	left := console.Cell{Text: "-"}
	switch {
	case row.Prepared:
		left = console.Cell{Text: "prepared", Colour: console.Cyan}
	case row.Frozen:
		left = console.Cell{Text: "frozen", Colour: console.Cyan}
	case row.SecondsLeft != nil:
		left.Text = console.Duration(time.Duration(*row.SecondsLeft) * time.Second)
		if *row.SecondsLeft < 300 {
			left.Colour = console.Yellow
		}
	}
	addresses := make([]string, 0, len(row.Services))
	for _, s := range row.Services {
		addresses = append(addresses, console.OneLine(s.URL))
	}
	cells := []console.Cell{{Text: row.Name, Colour: console.Bold}, {Text: row.Challenge}, phase, left}
	if r.Format == console.Wide {
		cells = slices.Insert(cells, 3, console.Cell{Text: cmp.Or(string(row.Cause), "-")})
		started := "-"
		if !row.Started.IsZero() {
			started = row.Started.Format(time.RFC3339)
		}
		cells = append(cells, console.Cell{Text: cmp.Or(row.Owner, "-")}, console.Cell{Text: cmp.Or(row.Source, "-")}, console.Cell{Text: started})
	}
	if usage {
		cells = append(cells, console.Cell{Text: cmp.Or(row.used, "-")})
	}
	cells = append(cells, console.Cell{Text: cmp.Or(strings.Join(addresses, " "), "-")})
	if namespaces {
		cells = append([]console.Cell{{Text: row.Namespace}}, cells...)
	}
	return cells
}

// phaseColour is yellow for every phase that ends by itself.
func phaseColour(p bergv1.Phase) console.Colour {
	switch p {
	case bergv1.PhaseRunning:
		return console.Green
	case bergv1.PhaseFailed:
		return console.Red
	case bergv1.PhaseTerminating, bergv1.PhaseTerminated:
		return console.Faint
	case bergv1.PhasePending, bergv1.PhaseCreating, bergv1.PhaseStarting:
	}
	return console.Yellow
}

// watchInstances shows instances as they change. An instance that no longer matches is shown once more, so that its
// last state is visible.
func (r *root) watchInstances(cmd *cobra.Command, to *cluster.Cluster, s *selection, problems bool) error {
	ctx := cmd.Context()
	onNode, err := s.onNode(ctx, to)
	if err != nil {
		return err
	}
	table := r.table(s.allNamespaces, false)
	shown := map[string]bool{}
	err = to.Follow(ctx, cluster.Follower{
		Changed: func(change cluster.Change) (bool, error) {
			i := change.Instance
			id := string(i.UID)
			row := newListed(i, to.Now())
			wanted := s.matches(i, onNode) && (!problems || row.Reason != "")
			if !wanted && !shown[id] {
				return false, nil
			}
			row.Event = "changed"
			switch {
			case change.Gone:
				row.Event = "gone"
			case !shown[id]:
				row.Event = "seen"
			}
			shown[id] = wanted && !change.Gone
			switch r.Format {
			case console.JSON:
				return false, r.WriteLine(row)
			case console.Name:
				r.Printf("%s\n", row.Name)
			case console.Text, console.Wide:
				table.Write(r.cells(row, s.allNamespaces, false))
			}
			return false, nil
		},
		Lost: r.reportConnection,
	}, s.options(to)...)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // a watch ends by Ctrl-C
	}
	return cluster.Explain("watch instances", err)
}
