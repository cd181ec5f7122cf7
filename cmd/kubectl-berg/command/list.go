package command

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/why"
)

// Row is an instance in the output of list. It never contains the flag.
type Row struct {
	// Event is for a watch: seen, changed or gone.
	Event       string                   `json:"event,omitempty"`
	Namespace   string                   `json:"namespace"`
	Name        string                   `json:"name"`
	Challenge   string                   `json:"challenge"`
	Owner       string                   `json:"owner"`
	Source      string                   `json:"source,omitempty"`
	Phase       bergv1.Phase             `json:"phase"`
	Problem     string                   `json:"problem,omitempty"`
	Cause       bergv1.Cause             `json:"cause,omitempty"`
	Created     *metav1.Time             `json:"createdAt,omitempty"`
	Started     *metav1.Time             `json:"startedAt,omitempty"`
	Expires     *metav1.Time             `json:"expiresAt,omitempty"`
	SecondsLeft *int64                   `json:"secondsLeft,omitempty"`
	Frozen      bool                     `json:"frozen,omitempty"`
	Outdated    bool                     `json:"outdated,omitempty"`
	InNamespace string                   `json:"instanceNamespace,omitempty"`
	Services    []bergv1.ServiceEndpoint `json:"services,omitempty"`
}

func newRow(i *bergv1.ChallengeInstance, now time.Time) Row {
	created := i.CreationTimestamp
	row := Row{
		Namespace: i.Namespace, Name: i.Name, Challenge: i.Spec.ChallengeRef.Name, Owner: i.Spec.OwnerID, Source: i.Labels[bergv1.LabelSource],
		Phase: cmp.Or(i.Status.Phase, bergv1.PhasePending), Problem: why.ProblemReason(i), Cause: i.Status.Cause,
		Created: &created, Started: i.Status.StartedAt, Expires: i.Status.ExpiresAt,
		Frozen: isFrozen(i), InNamespace: i.Status.Namespace, Services: i.Status.Services,
		Outdated: meta.IsStatusConditionFalse(i.Status.Conditions, bergv1.ConditionUpToDate),
	}
	if expiry := i.Status.ExpiresAt; expiry != nil && !row.Frozen {
		left := int64(expiry.Sub(now) / time.Second)
		row.SecondsLeft = &left
	}
	return row
}

// sortKeys compare rows by a column. What a row does not have comes last.
var sortKeys = map[string]func(a, b Row) int{
	"name":      func(a, b Row) int { return strings.Compare(a.Name, b.Name) },
	"challenge": func(a, b Row) int { return strings.Compare(a.Challenge, b.Challenge) },
	"phase":     func(a, b Row) int { return slices.Index(bergv1.Phases, a.Phase) - slices.Index(bergv1.Phases, b.Phase) },
	"problem":   func(a, b Row) int { return compareTexts(a.Problem, b.Problem) },
	"cause":     func(a, b Row) int { return compareTexts(string(a.Cause), string(b.Cause)) },
	"left":      func(a, b Row) int { return compareKnown(a.SecondsLeft, b.SecondsLeft, cmp.Compare) },
	"owner":     func(a, b Row) int { return strings.Compare(a.Owner, b.Owner) },
	"source":    func(a, b Row) int { return compareTexts(a.Source, b.Source) },
	"created":   func(a, b Row) int { return compareKnown(a.Created, b.Created, compareTimes) },
	"started":   func(a, b Row) int { return compareKnown(a.Started, b.Started, compareTimes) },
}

func sortNames() string { return strings.Join(slices.Sorted(maps.Keys(sortKeys)), ", ") }

func compareTimes(a, b metav1.Time) int { return a.Compare(b.Time) }

func compareTexts(a, b string) int {
	if a == "" || b == "" {
		return strings.Compare(b, a)
	}
	return strings.Compare(a, b)
}

// compareKnown compares two values; nil comes last.
func compareKnown[T any](a, b *T, compare func(a, b T) int) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	default:
		return compare(*a, *b)
	}
}

// sortRows sorts rows by a key of sortKeys, or by the namespace if it is empty, and then by namespace and name.
func sortRows(rows []Row, column string) {
	compare := sortKeys[column]
	slices.SortFunc(rows, func(a, b Row) int {
		first := 0
		if compare != nil {
			first = compare(a, b)
		}
		return cmp.Or(first, strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
}

func (r *root) list() *cobra.Command {
	var s selection
	var watch, problems bool
	var column string
	c := &cobra.Command{
		Use: "list [NAME...]", Aliases: []string{"ls", "get"},
		Short: "List instances with their addresses, time left and problems",
		Example: `  kubectl berg list -n berg
  kubectl berg list -A --phase Starting,Failed -w
  kubectl berg list --sort-by left
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
			rows := []Row{}
			for _, i := range found {
				if row := newRow(i, to.Now()); !problems || row.Problem != "" {
					rows = append(rows, row)
				}
			}
			sortRows(rows, column)
			return writeRows(r, rows, "No instances found.", r.table(s.allNamespaces), func(row Row) (string, []console.Cell) {
				return row.Name, r.cells(row, s.allNamespaces)
			})
		},
	}
	s.add(c, r, false)
	c.Flags().BoolVarP(&watch, "watch", "w", false, "keep watching and show every change")
	c.Flags().BoolVar(&problems, "problems", false, "only instances with a problem")
	c.Flags().StringVar(&column, "sort-by", "", "sort by "+sortNames()+" (default: by namespace and name)")
	c.MarkFlagsMutuallyExclusive("watch", "sort-by") // a watch shows instances as they change
	_ = c.RegisterFlagCompletionFunc("sort-by", cobra.FixedCompletions(slices.Sorted(maps.Keys(sortKeys)), cobra.ShellCompDirectiveNoFileComp))
	return c
}

// table shrinks the names of instances and Challenges, and the addresses.
func (r *root) table(namespaces bool) *console.Table {
	header := []string{"NAME", "CHALLENGE", "PHASE", "LEFT", "ADDRESS"}
	if r.Format == console.Wide {
		header = []string{"NAME", "CHALLENGE", "PHASE", "CAUSE", "LEFT", "OWNER", "SOURCE", "STARTED", "ADDRESS"}
	}
	first := 0
	if namespaces {
		header, first = append([]string{"NAMESPACE"}, header...), 1
	}
	return &console.Table{Console: r.Console, Header: header, Shrink: []int{first, first + 1, len(header) - 1}}
}

func (r *root) cells(row Row, namespaces bool) []console.Cell {
	phase := console.Cell{Text: string(row.Phase), Colour: phaseColour(row.Phase)}
	if row.Problem != "" {
		phase = console.Cell{Text: string(row.Phase) + " " + row.Problem, Colour: console.Red}
	}
	if row.Event == "gone" {
		phase = console.Cell{Text: "gone", Colour: console.Faint}
	}
	left := console.Cell{Text: "-"}
	switch {
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
		if row.Started != nil {
			started = row.Started.UTC().Format(time.RFC3339)
		}
		cells = append(cells, console.Cell{Text: row.Owner}, console.Cell{Text: cmp.Or(row.Source, "-")}, console.Cell{Text: started})
	}
	cells = append(cells, console.Cell{Text: cmp.Or(strings.Join(addresses, " "), "-")})
	if namespaces {
		cells = append([]console.Cell{{Text: row.Namespace}}, cells...)
	}
	return cells
}

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

func (r *root) watchInstances(cmd *cobra.Command, to *cluster.Cluster, s *selection, problems bool) error {
	ctx := cmd.Context()
	onNode, err := s.onNode(ctx, to)
	if err != nil {
		return err
	}
	table := r.table(s.allNamespaces)
	shown := map[string]bool{}
	err = to.Follow(ctx, cluster.Follower{
		Changed: func(change cluster.Change) (bool, error) {
			i := change.Instance
			id := string(i.UID)
			row := newRow(i, to.Now())
			wanted := s.matches(i, onNode) && (!problems || row.Problem != "")
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
				table.Write(r.cells(row, s.allNamespaces))
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
