package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/why"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

// selection selects instances.
type selection struct {
	all, allNamespaces                       bool
	selector, challenge, owner, source, node string
	phases                                   []string
	names                                    []string
	labels                                   labels.Selector
	// prepared selects prepared instances too. Commands that change instances need their names: the operator replaces the ones it
	// loses, and updates the outdated ones itself.
	prepared bool
	// filtered reports whether an option other than --all selects.
	filtered bool
}

// add adds the flags to a command. acts is for commands that need --all to select every instance.
func (s *selection) add(c *cobra.Command, r *root, acts bool) {
	f := c.Flags()
	f.BoolVarP(&s.allNamespaces, "all-namespaces", "A", false, "select from all namespaces")
	f.StringVarP(&s.selector, "selector", "l", "", "only instances with these labels, as in team=red")
	f.StringVar(&s.challenge, "challenge", "", "only instances of this Challenge")
	f.StringVar(&s.owner, "owner", "", "only the instance of this owner (a UUID)")
	f.StringVar(&s.source, "source", "", "only instances of this user or team of a platform")
	f.StringSliceVar(&s.phases, "phase", nil, "only instances in these phases, as in Running,Starting")
	f.StringVar(&s.node, "node", "", "only instances with a pod on this node")
	if acts {
		f.BoolVar(&s.all, "all", false, "all instances in the namespace, or with -A in all namespaces")
	}
	_ = c.RegisterFlagCompletionFunc("challenge", r.completeChallenges)
	_ = c.RegisterFlagCompletionFunc("phase", cobra.FixedCompletions(phaseNames(), cobra.ShellCompDirectiveNoFileComp))
}

// phaseNames are in the order of an instance's life.
func phaseNames() (all []string) {
	for _, p := range bergv1.Phases {
		all = append(all, string(p))
	}
	return all
}

// check validates the selection. It comes before options, matches and find, which use what it has parsed. It may be called once.
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
	if s.owner != "" && uuid.Validate(s.owner) != nil {
		return console.Errorf(console.ExitUsage, "--owner %s: must be a UUID in lower case", s.owner)
	}
	var err error
	if s.labels, err = labels.Parse(s.selector); err != nil {
		return console.Errorf(console.ExitUsage, "-l %s: %w", s.selector, err)
	}
	s.filtered = s.selector != "" || s.challenge != "" || s.owner != "" || s.source != "" || s.node != "" || len(s.phases) > 0
	switch {
	case len(s.names) > 0 && (s.all || s.filtered || s.allNamespaces):
		return console.Errorf(console.ExitUsage, "use either names, or --all, -A, -l, --challenge, --owner, --source, --phase and --node")
	case acts && len(s.names) == 0 && !s.all && !s.filtered:
		return console.Errorf(console.ExitUsage, "no instances are selected: use names, --all, -l, --challenge, --owner, --source, --phase or --node")
	}
	return nil
}

// options are the options of a list or watch. The API server selects by namespace and labels; matches does the rest, also for a
// watch.
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

// matches reports whether an instance is selected. onNode are the namespaces with a pod on the node.
func (s *selection) matches(i *bergv1.ChallengeInstance, onNode map[string]bool) bool {
	return (len(s.names) == 0 || slices.Contains(s.names, i.Name)) &&
		(s.prepared || len(s.names) > 0 || !view.IsPrepared(i)) &&
		(s.challenge == "" || i.Spec.ChallengeRef.Name == s.challenge) &&
		(s.owner == "" || i.Spec.OwnerID == s.owner && !view.IsPrepared(i)) &&
		(s.source == "" || i.Labels[bergv1.LabelSource] == s.source) &&
		(len(s.phases) == 0 || slices.ContainsFunc(s.phases, func(p string) bool { return strings.EqualFold(p, string(i.Status.Phase)) })) &&
		(s.node == "" || onNode[why.InstanceNamespace(i)])
}

// find reads the selected instances. A name that does not exist is an error. Up to five names are read one by one, which needs no
// right to list.
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
			return nil, console.Errorf(console.ExitNotFound, "instance %s does not exist in namespace %s", name, c.Namespace)
		}
	}
	if len(found) == 0 {
		return nil, s.mistyped(ctx, c)
	}
	return found, nil
}

// mistyped returns an error if nothing is selected because a namespace or a Challenge does not exist. An object that
// the user may not read counts as existing.
func (s *selection) mistyped(ctx context.Context, c *cluster.Cluster) error {
	exists := func(kind metav1.TypeMeta, reference client.ObjectKey) bool {
		object := &metav1.PartialObjectMetadata{TypeMeta: kind}
		return !apierrors.IsNotFound(c.Get(ctx, reference, object))
	}
	if !s.allNamespaces && !exists(metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, client.ObjectKey{Name: c.Namespace}) {
		return console.Errorf(console.ExitNotFound, "namespace %s does not exist", c.Namespace)
	}
	if s.challenge == "" {
		return nil
	}
	if !s.allNamespaces && exists(metav1.TypeMeta{APIVersion: bergv1.GroupVersion.String(), Kind: "Challenge"}, key(c.Namespace, s.challenge)) {
		return nil
	}
	var all bergv1.ChallengeList
	err := c.List(ctx, &all)
	hidden := apierrors.IsForbidden(err)
	switch {
	case err != nil && !hidden:
		return cluster.Explain("look for Challenge "+s.challenge, err)
	case hidden && s.allNamespaces, slices.ContainsFunc(all.Items, func(o bergv1.Challenge) bool { return o.Name == s.challenge }):
		return nil
	}
	return console.Errorf(console.ExitNotFound, "--challenge %s: no instance is of a Challenge of this name, and none of this name exists where you may look: check the name", s.challenge)
}

// onNode returns the namespaces that have a pod of an instance on the node.
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
	if len(found) == 0 {
		node := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
		switch err := c.Get(ctx, client.ObjectKey{Name: s.node}, node); {
		case apierrors.IsNotFound(err):
			return nil, console.Errorf(console.ExitNotFound, "--node %s: the cluster has no such node", s.node)
		case apierrors.IsForbidden(err): // it may exist
			return nil, console.Errorf(console.ExitNotFound, "--node %s: no pod of an instance is on a node of this name, and you may not read nodes: check the name", s.node)
		case err != nil:
			return nil, cluster.Explain("read node "+s.node, err)
		}
	}
	return found, nil
}
