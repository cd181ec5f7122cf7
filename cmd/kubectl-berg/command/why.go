package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/why"
)

func (r *root) why() *cobra.Command {
	var s selection
	c := &cobra.Command{
		Use:   "why NAME",
		Short: "Say the first thing that is wrong with an instance, and what to do",
		Long: `Say the first thing that is wrong with an instance, in a sentence, and what to do.

It reads the status, and the pods, events and routes of the instance as far as you may. With --all
it looks at all instances, and tells alike ones together. Exit code 4: something is wrong.`,
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
				if !single && quiet(i) {
					continue
				}
				findings = append(findings, why.Explain(gather(cmd.Context(), to, i)))
				if cmd.Context().Err() != nil {
					return cluster.Explain("look", cmd.Context().Err())
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

// quiet reports whether the status alone says that all is well: of thousands most are.
func quiet(i *bergv1.ChallengeInstance) bool {
	return i.Status.Phase == bergv1.PhaseRunning && problemOf(i) == "" && i.DeletionTimestamp == nil
}

// gather reads what the user may read about an instance.
func gather(ctx context.Context, c *cluster.Cluster, i *bergv1.ChallengeInstance) why.View {
	v := why.View{Instance: i, Now: c.Now()}
	if i.Status.InstanceID == "" {
		return v // nothing is there that could be its own
	}
	place := namespaceOf(i)
	kept := func(what string, err error) bool {
		if apierrors.IsForbidden(err) {
			v.Unreadable = append(v.Unreadable, what+" in "+place)
		}
		return err == nil
	}
	var pods corev1.PodList
	if kept("pods", c.List(ctx, &pods, client.InNamespace(place), client.MatchingLabels{bergv1.LabelComponent: bergv1.ComponentPod})) {
		v.Pods = pods.Items
	}
	if quiet(i) {
		v.Routes = routes(ctx, c, i, place, kept)
		return v
	}
	var events corev1.EventList
	if kept("events", c.List(ctx, &events, client.InNamespace(place), client.Limit(500))) {
		v.Events = events.Items
	}
	return v
}

// routes are those of an instance that has some.
func routes(ctx context.Context, c *cluster.Cluster, i *bergv1.ChallengeInstance, place string, kept func(string, error) bool) []why.Route {
	var out []why.Route
	if !slices.ContainsFunc(i.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == bergv1.ConditionRoutesCreated && c.Reason == bergv1.ReasonCreated
	}) {
		return nil
	}
	read := func(name string, parents []gatewayv1.RouteParentStatus) {
		route := why.Route{Name: name, Unseen: len(parents) == 0}
		for _, p := range parents {
			for _, kind := range []gatewayv1.RouteConditionType{gatewayv1.RouteConditionAccepted, gatewayv1.RouteConditionResolvedRefs} {
				if c := meta.FindStatusCondition(p.Conditions, string(kind)); c != nil && c.Status == metav1.ConditionFalse {
					route.Refused = fmt.Sprintf("%s: %s", c.Reason, c.Message)
				}
			}
		}
		out = append(out, route)
	}
	var http gatewayv1.HTTPRouteList
	if kept("HTTPRoutes", c.List(ctx, &http, client.InNamespace(place))) {
		for _, h := range http.Items {
			read(h.Name, h.Status.Parents)
		}
	}
	var tls gatewayv1.TLSRouteList
	if kept("TLSRoutes", c.List(ctx, &tls, client.InNamespace(place))) {
		for _, t := range tls.Items {
			read(t.Name, t.Status.Parents)
		}
	}
	return out
}

var marks = map[why.Verdict]struct {
	mark   string
	colour console.Colour
}{
	why.Fine:     {"✓", console.Green},
	why.Underway: {"…", console.Yellow},
	why.Wrong:    {"✗", console.Red},
}

func (r *root) showFinding(f why.Finding) error {
	if r.Format == console.JSON {
		if err := r.WriteJSON(f); err != nil {
			return err
		}
		return verdictOf(f.Verdict == why.Wrong)
	}
	r.writeFinding(f, "")
	return verdictOf(f.Verdict == why.Wrong)
}

func (r *root) writeFinding(f why.Finding, subject string) {
	m := marks[f.Verdict]
	width := 0
	if r.OutTerminal {
		width = r.Width()
	}
	r.Printf("%s %s\n", r.Paint(m.colour, m.mark), console.Wrap(f.Sentence, width-2, "  "))
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
		r.Printf("  %s\n", r.Paint(console.Faint, "players are told: "+string(f.Cause)))
	}
	if took := why.InWords(f.Start); took != "" {
		r.Printf("  %s\n", r.Paint(console.Faint, console.Wrap("its start: "+took, width-2, "    ")))
	}
	for _, u := range f.Unreadable {
		r.Printf("  %s\n", r.Paint(console.Faint, "you may not read "+u+", which may say more"))
	}
}

func verdictOf(wrong bool) error {
	if wrong {
		return console.Warn(console.ExitProblem, "something is wrong")
	}
	return nil
}

// namesShown are how many of those with the same problem are named.
const namesShown = 8

func (r *root) showFindings(findings []why.Finding, looked int) error {
	slices.SortStableFunc(findings, func(a, b why.Finding) int { return order(a.Verdict) - order(b.Verdict) })
	wrong := slices.ContainsFunc(findings, func(f why.Finding) bool { return f.Verdict == why.Wrong })
	if r.Format == console.JSON {
		if err := r.WriteJSON(findings); err != nil {
			return err
		}
		return verdictOf(wrong)
	}
	type group struct {
		first why.Finding
		names []string
	}
	var groups []*group
	byText := map[string]*group{}
	bad := 0
	for _, f := range findings {
		if f.Verdict == why.Fine {
			continue
		}
		if f.Verdict == why.Wrong {
			bad++
		}
		alike := strings.NewReplacer(f.Name, "NAME", f.Namespace, "NAMESPACE").Replace(f.Sentence)
		if byText[alike] == nil {
			byText[alike] = &group{first: f}
			groups = append(groups, byText[alike])
		}
		g := byText[alike]
		g.names = append(g.names, f.Namespace+"/"+f.Name)
	}
	for _, g := range groups {
		names := strings.Join(g.names[:min(len(g.names), namesShown)], ", ")
		if more := len(g.names) - namesShown; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		if len(g.names) > 1 {
			g.first.Evidence = g.first.Evidence[:min(1, len(g.first.Evidence))]
			g.first.Start = nil // each has its own
		}
		r.writeFinding(g.first, names)
	}
	if bad == 0 {
		r.Printf("%s nothing is wrong with %d instances\n", r.Paint(console.Green, "✓"), looked)
		return nil
	}
	r.Printf("%d of %d instances have a problem\n", bad, looked)
	return verdictOf(true)
}

func order(v why.Verdict) int {
	return slices.Index([]why.Verdict{why.Wrong, why.Underway, why.Fine}, v)
}
