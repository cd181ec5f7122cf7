package check

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/identity"
)

// needed are the rights of the role berg-check, which is bound only where checks are wanted.
var needed = []authorizationv1.ResourceAttributes{
	{Group: bergv1.GroupVersion.Group, Resource: "challengechecks", Verb: "list"},
	{Group: bergv1.GroupVersion.Group, Resource: "challengechecks", Verb: "watch"},
	{Group: bergv1.GroupVersion.Group, Resource: "challengechecks", Verb: "patch"},
	{Group: bergv1.GroupVersion.Group, Resource: "challengechecks", Subresource: "status", Verb: "patch"},
	{Group: bergv1.GroupVersion.Group, Resource: "challengeinstances", Verb: "create"},
	{Group: bergv1.GroupVersion.Group, Resource: "challengeinstances", Verb: "get"},
	{Group: "batch", Resource: "jobs", Verb: "create"},
	{Group: "batch", Resource: "jobs", Verb: "list"},
	{Group: "batch", Resource: "jobs", Verb: "watch"},
}

// Permitted returns an error that names the first right which the operator lacks to make
// checks. Without it a watch that is forbidden would keep the operator from becoming ready,
// and nothing would say why. Every account may ask this.
func Permitted(ctx context.Context, c client.Client) error {
	lacks, err := identity.Lacks(ctx, c, needed)
	if err != nil {
		return fmt.Errorf("ask whether checks of challenges are allowed: %w", err)
	}
	if lacks != "" {
		return fmt.Errorf("CHECK_CONCURRENCY is above 0 and the operator may not %s: bind the role of config/berg/check to it first, or leave CHECK_CONCURRENCY at 0", lacks)
	}
	return nil
}
