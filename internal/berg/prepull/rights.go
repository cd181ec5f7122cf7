package prepull

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/identity"
)

// needed are the rights of the role berg-prepull, which is bound only where images are to be
// pulled ahead.
var needed = []authorizationv1.ResourceAttributes{
	{Resource: "nodes", Verb: "list"},
	{Resource: "nodes", Verb: "watch"},
	{Group: "node.k8s.io", Resource: "runtimeclasses", Verb: "list"},
	{Group: "node.k8s.io", Resource: "runtimeclasses", Verb: "watch"},
}

// Permitted returns an error that names the first right which the operator lacks to pull images
// ahead. Without it a watch that is forbidden would keep the operator from becoming ready, and
// nothing would say why. Every account may ask this.
func Permitted(ctx context.Context, c client.Client) error {
	lacks, err := identity.Lacks(ctx, c, needed)
	if err != nil {
		return fmt.Errorf("ask whether images may be pulled ahead: %w", err)
	}
	if lacks != "" {
		return fmt.Errorf("IMAGE_PREPULL_LEAD is set and the operator may not %s: bind the role of config/berg/prepull to it first, or leave IMAGE_PREPULL_LEAD empty", lacks)
	}
	return nil
}
