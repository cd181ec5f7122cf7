package environment

import (
	"context"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
)

// start persists the names before any object has them: the suffix may be another one after a restart. With them it
// persists what will prove the namespace. If the patch fails, nothing was made.
func (r *Reconciler) start(ctx context.Context, env *quixv1.Environment) error {
	if namespaceName(env) != "" && roleBindingName(env) != "" {
		return nil
	}
	before, now := env.DeepCopy(), r.Clock.Now()
	if namespaceName(env) == "" {
		env.Status.NamespaceUID, env.Status.NamespaceTokenHash = "", r.tokens.Draw()
	}
	computeStarted(env, r.Config.NamespaceSuffix, now)
	if err := r.kind.PatchStatus(ctx, before, env, now); err != nil {
		return err
	}
	created.Inc()
	return nil
}
