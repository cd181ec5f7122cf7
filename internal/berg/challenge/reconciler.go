package challenge

import (
	"github.com/bergctf/berg-operator/internal/berg/rules"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Reconciler checks Challenges.
type Reconciler struct {
	reconcile.Access
	// Config says whether nodes are watched.
	Config config.Challenge
	Rules  rules.Settings
}
