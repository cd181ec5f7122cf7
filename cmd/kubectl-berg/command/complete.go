package command

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
)

// completionTimeout is the maximum wait of a shell after Tab.
const completionTimeout = 3 * time.Second

// complete reads names from the cluster, none if it does not answer.
func (r *root) complete(prefix string, ask func(ctx context.Context, c *cluster.Cluster) []string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	c, err := r.open()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, name := range ask(ctx, c) {
		if strings.HasPrefix(name, prefix) {
			out = append(out, name)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeInstances describes each name behind a tab, which shells show and do not insert.
func (r *root) completeInstances(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return r.complete(prefix, func(ctx context.Context, c *cluster.Cluster) (names []string) {
		all, _, _ := c.Instances(ctx, client.InNamespace(c.Namespace))
		for _, i := range all {
			names = append(names, i.Name+"\t"+i.Spec.ChallengeRef.Name+", "+string(i.Status.Phase))
		}
		return names
	})
}

// firstArgument completes the first argument only.
func firstArgument(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(c, args, prefix)
	}
}

// completeChallenges offers those in the user's namespace, although a Challenge may be in another one.
func (r *root) completeChallenges(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return r.complete(prefix, func(ctx context.Context, c *cluster.Cluster) (names []string) {
		var all bergv1.ChallengeList
		if c.List(ctx, &all, client.InNamespace(c.Namespace)) == nil {
			for _, challenge := range all.Items {
				names = append(names, challenge.Name)
			}
		}
		return names
	})
}

// completeNamespaces offers nothing to a user who may not list namespaces.
func (r *root) completeNamespaces(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return r.complete(prefix, func(ctx context.Context, c *cluster.Cluster) (names []string) {
		var all corev1.NamespaceList
		if c.List(ctx, &all) == nil {
			for _, n := range all.Items {
				names = append(names, n.Name)
			}
		}
		return names
	})
}
