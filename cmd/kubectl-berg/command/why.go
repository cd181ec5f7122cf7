package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/why"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

func (r *root) why() *cobra.Command {
	s := selection{prepared: true}
	c := &cobra.Command{
		Use:   "why NAME",
		Short: "Explain the first problem of an instance, and what to do about it",
		Long: `Explain the first problem of an instance, and what to do about it.

It reads the status, and the pods, events and the end of the logs of the instance as far as your
permissions allow.
With --all it checks all instances and groups those with the same problem. Exit code 4: a problem was
found.`,
		Example: `  kubectl berg why alice-guestbook -n berg
  kubectl berg why --all -A`,
		ValidArgsFunction: r.completeInstances,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.check(args, true); err != nil {
				return err
			}
			to, err := r.open()
			if err != nil {
				return err
			}
			found, err := s.find(cmd.Context(), to)
			if err != nil {
				return err
			}
			single := len(args) == 1
			findings := make([]why.Finding, 0, len(found))
			for _, i := range found {
				if !single && view.IsHealthy(i) {
					continue
				}
				findings = append(findings, why.Explain(readView(cmd.Context(), to, i)))
				if cmd.Context().Err() != nil {
					return cluster.Explain("read the instances", cmd.Context().Err())
				}
			}
			if single {
				return r.showFinding(findings[0])
			}
			return r.showFindings(findings, len(found))
		},
	}
	s.add(c, r, true)
	return c
}

// readView reads the objects of an instance that the user may read. Each read that fails leaves its part empty, and only a lack
// of rights is named: the finding is then less exact, and not wrong.
func readView(ctx context.Context, c *cluster.Cluster, i *bergv1.ChallengeInstance) why.View {
	v := why.View{Instance: i, Now: c.Now()}
	if i.Status.InstanceID == "" {
		return v // it has no objects yet
	}
	namespace := why.InstanceNamespace(i)
	readable := func(kind string, err error) bool {
		if apierrors.IsForbidden(err) {
			v.Unreadable = append(v.Unreadable, kind+" in "+namespace)
		}
		return err == nil
	}
	var pods corev1.PodList
	if readable("pods", c.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{bergv1.LabelComponent: bergv1.ComponentPod})) {
		v.Pods = pods.Items
	}
	if view.IsHealthy(i) {
		return v
	}
	var events corev1.EventList
	if readable("events", c.List(ctx, &events, client.InNamespace(namespace), client.Limit(500))) {
		v.Events = events.Items
	}
	v.LogEnds = logEnds(ctx, c, namespace, why.Logs(v), readable)
	v.Architectures = map[string]string{}
	for _, name := range why.Nodes(v) {
		var node corev1.Node
		if c.Get(ctx, client.ObjectKey{Name: name}, &node) == nil { // crews may not read nodes
			v.Architectures[name] = node.Status.NodeInfo.Architecture
		}
	}
	return v
}

// The end of a log that is read.
const (
	logLines = 10
	logBytes = 4096
)

// logEnds reads the last lines of logs. One that is gone with its container is left out.
func logEnds(ctx context.Context, c *cluster.Cluster, namespace string, logs []why.Log, readable func(string, error) bool) map[string]string {
	ends := map[string]string{}
	raw, err := c.Raw(corev1.SchemeGroupVersion)
	if err != nil {
		return ends
	}
	for _, l := range logs {
		options := corev1.PodLogOptions{Container: l.Container, Previous: l.Previous, TailLines: ptr.To[int64](logLines), LimitBytes: ptr.To[int64](logBytes)}
		text, err := raw.Get().Namespace(namespace).Resource("pods").Name(l.Pod).SubResource("log").VersionedParams(&options, scheme.ParameterCodec).DoRaw(ctx)
		if !readable("logs", err) && apierrors.IsForbidden(err) {
			break
		}
		if err == nil {
			ends[l.Container] = why.ReadLog(string(text))
		}
	}
	return ends
}

// showFinding is for one instance that was named, also without a problem.
func (r *root) showFinding(f why.Finding) error {
	if r.Format == console.JSON {
		if err := r.WriteJSON(f); err != nil {
			return err
		}
		return problemError(f.Level == console.Problem)
	}
	r.writeFinding(f, "")
	return problemError(f.Level == console.Problem)
}

// writeFinding writes subject below the sentence, for the names of several instances.
func (r *root) writeFinding(f why.Finding, subject string) {
	width := r.TextWidth()
	r.Printf("%s %s\n", r.paintSymbol(levelSymbols[f.Level]), console.Wrap(f.Sentence, width-2, "  "))
	if subject != "" {
		r.Printf("  %s\n", r.Paint(console.Faint, console.Wrap(subject, width-2, "  ")))
	}
	if f.Do != "" {
		r.Printf("  %s %s\n", r.Paint(console.Bold, "→"), console.Wrap(f.Do, width-4, "    "))
	}
	for _, e := range f.Evidence {
		r.Printf("  %s\n", r.Paint(console.Faint, console.Wrap(e, width-2, "    ")))
	}
	if f.Cause != "" {
		r.Printf("  %s\n", r.Paint(console.Faint, "shown to players: "+string(f.Cause)))
	}
	if took := view.FormatStages(f.Start); took != "" {
		r.Printf("  %s\n", r.Paint(console.Faint, console.Wrap("start: "+took, width-2, "    ")))
	}
	for _, u := range f.Unreadable {
		r.Printf("  %s\n", r.Paint(console.Faint, "you may not read "+u+", which could have more details"))
	}
}

// namesShown is the number of instances with the same problem that are named.
const namesShown = 8

// showFindings shows groups as text, and each finding as JSON.
func (r *root) showFindings(findings []why.Finding, total int) error {
	slices.SortStableFunc(findings, func(a, b why.Finding) int { return a.Level.Order() - b.Level.Order() })
	wrong := slices.ContainsFunc(findings, func(f why.Finding) bool { return f.Level == console.Problem })
	if r.Format == console.JSON {
		if err := r.WriteJSON(findings); err != nil {
			return err
		}
		return problemError(wrong)
	}
	groups := why.Groups(findings)
	bad := 0
	for _, f := range findings {
		if f.Level == console.Problem {
			bad++
		}
	}
	for _, g := range groups {
		names := strings.Join(g.Names[:min(len(g.Names), namesShown)], ", ")
		if hidden := len(g.Names) - namesShown; hidden > 0 {
			names += fmt.Sprintf(" and %d more", hidden)
		}
		if len(g.Names) > 1 {
			g.First.Evidence = g.First.Evidence[:min(1, len(g.First.Evidence))]
			g.First.Start = nil // it differs between them
		}
		r.writeFinding(g.First, names)
	}
	if bad == 0 {
		r.Printf("%s no problem found in %d instances\n", r.paintSymbol(okSymbol), total)
		return nil
	}
	r.Printf("%d of %d instances have a problem\n", bad, total)
	return problemError(true)
}
