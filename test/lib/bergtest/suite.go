package bergtest

import (
	"context"

	. "github.com/onsi/ginkgo/v2"

	"github.com/bergctf/berg-operator/internal/berg"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

// Suite registers an integration suite of Challenges and instances. Every version of every instance is
// checked after each spec, and at the end neither an instance nor a namespace of one may be left. before runs
// when the API server is reached.
func Suite(before func()) bool {
	AfterEach(NoViolations)
	return inprocess.Suite{
		Before: func(context.Context) map[string]string {
			before()
			WatchAll()
			return nil
		},
		Gone:     NoneLeft,
		Prefixes: []string{manifests.NamespacePrefix},
	}.Register()
}

// Settings are the family's settings as variables make them.
func Settings(env map[string]string) config.Berg {
	GinkgoHelper()
	var c config.Berg
	inprocess.Load(env, berg.New(&c))
	return c
}
