package challengeinstance

import (
	"context"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// sweepRevisions deletes the stored contents that no instance names. An instance that is being deleted names its content
// until it is gone. The cache is asked first, because it costs no request; only the list of the API server decides about a
// deletion.
func (r *Reconciler) sweepRevisions(ctx context.Context) error {
	return r.Revisions.Run(ctx,
		func(ctx context.Context) (sets.Set[string], error) {
			return listRevisions(ctx, r.Client, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
		},
		func(ctx context.Context) (sets.Set[string], error) {
			return listRevisions(ctx, r.Live, client.Limit(instancesPerPage))
		})
}

// listRevisions returns the names of the Secrets that instances name. A cache returns everything as one page.
func listRevisions(ctx context.Context, from client.Reader, opts ...client.ListOption) (sets.Set[string], error) {
	names := sets.New[string]()
	for token := ""; ; {
		var page bergv1.ChallengeInstanceList
		if err := from.List(ctx, &page, append(opts, client.Continue(token))...); err != nil {
			return nil, err
		}
		for n := range page.Items {
			names.Insert(page.Items[n].Status.ChallengeRevision)
		}
		if token = page.Continue; token == "" {
			return names, nil
		}
	}
}
