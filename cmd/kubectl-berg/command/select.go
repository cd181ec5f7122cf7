package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// selection says which instances are meant.
type selection struct {
	all, allNamespaces               bool
	selector, challenge, owner, node string
	phases                           []string
	names                            []string
	labels                           labels.Selector
	// filtered says that something else than names and --all tells which.
	filtered bool
}

// add puts the flags on a command. Those that act on many ask for --all.
func (s *selection) add(c *cobra.Command, r *root, acts bool) {
	f := c.Flags()
	f.BoolVarP(&s.allNamespaces, "all-namespaces", "A", false, "in all namespaces")
	f.StringVarP(&s.selector, "selector", "l", "", "only those with these labels, as in team=red")
	f.StringVar(&s.challenge, "challenge", "", "only those of this Challenge")
	f.StringVar(&s.owner, "owner", "", "only that of this owner (a UUID)")
	f.StringSliceVar(&s.phases, "phase", nil, "only those in these phases, as in Running,Starting")
	f.StringVar(&s.node, "node", "", "only those with a pod on this node")
	if acts {
		f.BoolVar(&s.all, "all", false, "all in the namespace; with -A in all namespaces")
	}
	_ = c.RegisterFlagCompletionFunc("challenge", r.completeChallenges)
	_ = c.RegisterFlagCompletionFunc("phase", cobra.FixedCompletions(phaseNames(), cobra.ShellCompDirectiveNoFileComp))
}

func phaseNames() (all []string) {
	for _, p := range bergv1.Phases {
		all = append(all, string(p))
	}
	return all
}

// check looks whether it says something.
func (s *selection) check(names []string, acts bool) error {
	for _, n := range names {
		s.names = append(s.names, trimmed(n))
	}
	for _, p := range s.phases {
		if !slices.ContainsFunc(bergv1.Phases, func(known bergv1.Phase) bool { return strings.EqualFold(string(known), p) }) {
			return console.Errorf(console.ExitUsage, "--phase %s: must be one of %s", p, strings.Join(phaseNames(), ", "))
		}
	}
	s.challenge = trimmedChallenge(s.challenge)
	var err error
	if s.labels, err = labels.Parse(s.selector); err != nil {
		return console.Errorf(console.ExitUsage, "-l %s: %w", s.selector, err)
	}
	s.filtered = s.selector != "" || s.challenge != "" || s.owner != "" || s.node != "" || len(s.phases) > 0
	switch {
	case len(s.names) > 0 && (s.all || s.filtered || s.allNamespaces):
		return console.Errorf(console.ExitUsage, "give names, or say which with --all, -l, --challenge, --owner, --phase or --node: not both")
	case acts && len(s.names) == 0 && !s.all && !s.filtered:
		return console.Errorf(console.ExitUsage, "which instances? Give names, or --all, -l, --challenge, --owner, --phase or --node")
	}
	return nil
}

// options are those of a list or watch.
func (s *selection) options(c *cluster.Cluster) []client.ListOption {
	var opts []client.ListOption
	if !s.allNamespaces {
		opts = append(opts, client.InNamespace(c.Namespace))
	}
	if s.labels != nil && !s.labels.Empty() {
		opts = append(opts, client.MatchingLabelsSelector{Selector: s.labels})
	}
	return opts
}

// matches reports whether an instance is meant. onNode are the UIDs of those on the node.
func (s *selection) matches(i *bergv1.ChallengeInstance, onNode map[string]bool) bool {
	return (len(s.names) == 0 || slices.Contains(s.names, i.Name)) &&
		(s.challenge == "" || i.Spec.ChallengeRef.Name == s.challenge) &&
		(s.owner == "" || i.Spec.OwnerID == s.owner) &&
		(len(s.phases) == 0 || slices.ContainsFunc(s.phases, func(p string) bool { return strings.EqualFold(p, string(i.Status.Phase)) })) &&
		(s.node == "" || onNode[namespaceOf(i)])
}

// find reads those that are meant. A name that is not found is an error.
func (s *selection) find(ctx context.Context, c *cluster.Cluster) ([]*bergv1.ChallengeInstance, error) {
	if n := len(s.names); n > 0 && n <= 5 {
		var found []*bergv1.ChallengeInstance
		for _, name := range s.names {
			i, err := instance(ctx, c, name)
			if err != nil {
				return nil, err
			}
			found = append(found, i)
		}
		return found, nil
	}
	onNode, err := s.onNode(ctx, c)
	if err != nil {
		return nil, err
	}
	all, _, err := c.Instances(ctx, s.options(c)...)
	if err != nil {
		return nil, cluster.Explain("list instances", err)
	}
	var found []*bergv1.ChallengeInstance
	here := map[string]bool{}
	for i := range all {
		if s.matches(&all[i], onNode) {
			found = append(found, &all[i])
			here[all[i].Name] = true
		}
	}
	for _, name := range s.names {
		if !here[name] {
			return nil, console.Errorf(console.ExitNotFound, "there is no instance %s in namespace %s", name, c.Namespace)
		}
	}
	return found, nil
}

// onNode returns the namespaces of instances that have a pod on the node.
func (s *selection) onNode(ctx context.Context, c *cluster.Cluster) (map[string]bool, error) {
	if s.node == "" {
		return nil, nil
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.MatchingLabels{bergv1.LabelComponent: bergv1.ComponentPod}, client.MatchingFields{"spec.nodeName": s.node}); err != nil {
		return nil, cluster.Explain(fmt.Sprintf("list the pods on node %s", s.node), err)
	}
	found := map[string]bool{}
	for _, p := range pods.Items {
		found[p.Namespace] = true
	}
	return found, nil
}

// live leaves out what is ending.
func live(all []*bergv1.ChallengeInstance) []*bergv1.ChallengeInstance {
	return slices.DeleteFunc(all, func(i *bergv1.ChallengeInstance) bool {
		return i.DeletionTimestamp != nil || i.Spec.TerminationReason != ""
	})
}
