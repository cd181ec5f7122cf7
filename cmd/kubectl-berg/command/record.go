package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/doctor"
)

// recordsFlag adds the option for the namespace of the records.
func recordsFlag(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "records", doctor.Defaults["RECORD_NAMESPACE"], "namespace of the records: the operator's RECORD_NAMESPACE")
}

func (r *root) record() *cobra.Command {
	var from string
	c := &cobra.Command{
		Use:   "record NAME",
		Short: "Show the record of an ended instance: why and when it ended, and its last logs",
		Long: `Show the latest record of an ended instance, by its name or its UID. The operator writes records if
RECORD_RETENTION is set. You need permission to list and get challengeinstancerecords in their
namespace.`,
		Example: `  kubectl berg record alice-guestbook -n berg
  kubectl berg record alice-guestbook -n berg -o json`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: firstArgument(func(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
			return r.complete(prefix, func(ctx context.Context, to *cluster.Cluster) (names []string) {
				all, _ := listRecords(ctx, to, from)
				seen := map[string]bool{}
				for _, row := range recordRows(all, to.Namespace, false) {
					if seen[row.Instance] { // rows are newest first
						continue
					}
					seen[row.Instance] = true
					names = append(names, row.Instance+"\t"+row.Challenge+", ended "+row.Written.UTC().Format(time.RFC3339))
				}
				return names
			})
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := r.open()
			if err != nil {
				return err
			}
			return r.showRecord(cmd.Context(), to, from, trimmed(args[0]))
		},
	}
	recordsFlag(c, &from)
	return c
}

func (r *root) records() *cobra.Command {
	var from string
	var everywhere bool
	c := &cobra.Command{
		Use:   "records",
		Short: "List the records of ended instances",
		Example: `  kubectl berg records -n berg
  kubectl berg records -A`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			to, err := r.open()
			if err != nil {
				return err
			}
			all, err := listRecords(cmd.Context(), to, from)
			if err != nil {
				return err
			}
			return r.showRecords(recordRows(all, to.Namespace, everywhere), everywhere)
		},
	}
	c.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "list the records of instances in all namespaces")
	recordsFlag(c, &from)
	return c
}

// listRecords reads the metadata of the records only: a thousand logs are large.
func listRecords(ctx context.Context, c *cluster.Cluster, namespace string) ([]metav1.PartialObjectMetadata, error) {
	var all metav1.PartialObjectMetadataList
	all.SetGroupVersionKind(bergv1.GroupVersion.WithKind("ChallengeInstanceRecordList"))
	if err := c.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		return nil, cluster.Explain("list the records in namespace "+namespace, err)
	}
	return all.Items, nil
}

// latestRecord is the name of the newest record of an instance, "" if there is none.
func latestRecord(all []metav1.PartialObjectMetadata, namespace, name string) string {
	var latest *metav1.PartialObjectMetadata
	for i := range all {
		m := &all[i]
		if m.Annotations[bergv1.AnnotationInstance] != namespace+"/"+name && m.Name != name {
			continue
		}
		if latest == nil || latest.CreationTimestamp.Before(&m.CreationTimestamp) {
			latest = m
		}
	}
	if latest == nil {
		return ""
	}
	return latest.Name
}

// showRecord reads one record whole, after it was found by metadata.
func (r *root) showRecord(ctx context.Context, c *cluster.Cluster, from, name string) error {
	all, err := listRecords(ctx, c, from)
	if err != nil {
		return err
	}
	found := latestRecord(all, c.Namespace, name)
	if found == "" {
		return console.Errorf(console.ExitNotFound, "namespace %[3]s has no record of instance %[1]s of namespace %[2]s. List all records: kubectl berg records -A", name, c.Namespace, from)
	}
	record := &bergv1.ChallengeInstanceRecord{}
	if err := c.Get(ctx, key(from, found), record); err != nil {
		return cluster.Explain("read record "+found, err)
	}
	switch r.Format {
	case console.JSON:
		record.SetGroupVersionKind(bergv1.GroupVersion.WithKind("ChallengeInstanceRecord"))
		return r.WriteJSON(record)
	case console.Name:
		r.Printf("%s\n", record.Name)
		return nil
	case console.Text, console.Wide:
	}
	r.printRecord(record)
	return nil
}

// printRecord cleans each text: a player may have chosen it.
func (r *root) printRecord(record *bergv1.ChallengeInstanceRecord) {
	s := record.Spec
	source := ""
	if s.Source != "" {
		source = ", source " + console.OneLine(s.Source)
	}
	r.Printf("%s of challenge %s, owner %s%s\n", r.Paint(console.Bold, console.OneLine(s.Instance.Namespace+"/"+s.Instance.Name)),
		console.OneLine(s.ChallengeRef.Name), console.OneLine(s.OwnerID), source)
	phase := ""
	if s.Phase != "" {
		phase = ", in phase " + string(s.Phase)
	}
	r.Printf("ended at %s%s: %s\n", s.EndedAt.UTC().Format(time.RFC3339), phase, s.Reason)
	if p := s.Problem; p != nil {
		r.Printf("%s %s: %s\n", r.Paint(console.Red, console.OneLine(p.Condition)), console.OneLine(p.Reason), console.OneLine(p.Message))
	}
	if s.Incomplete != "" {
		r.Printf("%s\n", r.Paint(console.Yellow, console.OneLine(s.Incomplete)))
	}
	r.Printf("\n")
	for _, m := range s.Timeline {
		r.Printf("  %s  %s\n", m.At.UTC().Format(time.RFC3339), console.OneLine(m.Moment))
	}
	for _, c := range s.Containers {
		r.printContainer(c)
	}
}

// printContainer cleans the log on a terminal only, so that a file gets it unchanged.
func (r *root) printContainer(c bergv1.RecordedContainer) {
	parts := []string{c.State}
	if c.WaitingFor != "" {
		parts = append(parts, c.WaitingFor)
	}
	if c.Restarts > 0 {
		parts = append(parts, fmt.Sprintf("%d restarts", c.Restarts))
	}
	if c.Exit != nil {
		parts = append(parts, fmt.Sprintf("last exit %d %s", c.Exit.Code, c.Exit.Reason))
	}
	r.Printf("\n%s %s\n", r.Paint(console.Cyan, console.OneLine(c.Pod+"/"+c.Name)+":"), console.OneLine(strings.TrimSpace(strings.Join(parts, ", "))))
	if c.Message != "" {
		r.Printf("  %s\n", console.OneLine(c.Message))
	}
	switch {
	case c.LogMissing != "":
		r.Printf("  no log: %s\n", console.OneLine(c.LogMissing))
	case c.LogCut:
		r.Printf("  end of the log:\n")
	}
	if c.Log == "" {
		return
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(c.Log, "\n"), "\n") {
		if r.OutTerminal {
			line = console.StripControl(line)
		}
		r.Printf("  │ %s\n", line)
	}
}

// RecordRow is a record in the output of records.
type RecordRow struct {
	Namespace string       `json:"namespace"`
	Instance  string       `json:"instance"`
	Challenge string       `json:"challenge"`
	Owner     string       `json:"owner"`
	Source    string       `json:"source,omitempty"`
	Record    string       `json:"record"`
	Written   metav1.Time  `json:"written"`
	DeleteAt  *metav1.Time `json:"deleteAt,omitempty"`
}

// recordRows returns the records of instances of a namespace, or of all, newest first.
func recordRows(all []metav1.PartialObjectMetadata, namespace string, everywhere bool) []RecordRow {
	rows := []RecordRow{}
	for i := range all {
		m := &all[i]
		instanceNamespace, name, ok := strings.Cut(m.Annotations[bergv1.AnnotationInstance], "/")
		if !ok || !everywhere && instanceNamespace != namespace {
			continue
		}
		row := RecordRow{
			Namespace: instanceNamespace, Instance: name, Challenge: m.Annotations[bergv1.AnnotationChallenge], Owner: m.Labels[bergv1.LabelOwnerID], Source: m.Labels[bergv1.LabelSource],
			Record: m.Name, Written: m.CreationTimestamp,
		}
		if deletion, err := time.Parse(time.RFC3339, m.Annotations[bergv1.AnnotationDeleteAt]); err == nil {
			row.DeleteAt = &metav1.Time{Time: deletion}
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b RecordRow) int {
		return cmp.Or(b.Written.Compare(a.Written.Time), strings.Compare(a.Record, b.Record))
	})
	return rows
}

// showRecords shows the namespace of each instance only where there may be several.
func (r *root) showRecords(rows []RecordRow, namespaces bool) error {
	t := &console.Table{Console: r.Console, Header: []string{"INSTANCE", "CHALLENGE", "ENDED", "KEPT UNTIL", "RECORD"}, Shrink: []int{0, 1}}
	if namespaces {
		t.Header, t.Shrink = append([]string{"NAMESPACE"}, t.Header...), []int{0, 1, 2}
	}
	return writeRows(r, rows, "No records found.", t, func(row RecordRow) (string, []console.Cell) {
		until := "-"
		if row.DeleteAt != nil {
			until = row.DeleteAt.UTC().Format(time.RFC3339)
		}
		cells := []console.Cell{
			{Text: row.Instance, Colour: console.Bold}, {Text: row.Challenge}, {Text: row.Written.UTC().Format(time.RFC3339)}, {Text: until}, {Text: row.Record},
		}
		if namespaces {
			cells = append([]console.Cell{{Text: row.Namespace}}, cells...)
		}
		return row.Record, cells
	})
}
