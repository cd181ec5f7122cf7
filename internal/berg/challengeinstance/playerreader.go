package challengeinstance

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// playerReader lists no prepared instances. These end when players need their slots. In other namespaces than the operator's, users may
// write the label.
type playerReader struct {
	client.Reader

	prepared func(client.Object) bool
}

// List implements client.Reader.
func (r playerReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := r.Reader.List(ctx, list, options...)
	if instances, ok := list.(*bergv1.ChallengeInstanceList); ok {
		instances.Items = slices.DeleteFunc(instances.Items, func(i bergv1.ChallengeInstance) bool { return r.prepared(&i) })
	}
	return err
}
