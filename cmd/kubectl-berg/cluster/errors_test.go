package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

// What to ask for follows from what was refused: a crew that may read needs no role to read.
func TestForbiddenNamesTheRoleThatIsMissing(t *testing.T) {
	for name, tc := range map[string]struct {
		verb, resource, group, where string
		want                         []string
		not                          string
	}{
		"read instances": {
			"list", "challengeinstances", "berg.norelect.ch", `in the namespace "red"`,
			[]string{"RoleBinding in this namespace", "berg-operator-challengeinstance-viewer", "kubectl auth can-i list challengeinstances.berg.norelect.ch -n red"},
			"editor",
		},
		"read those of all namespaces": {
			"list", "challengeinstances", "berg.norelect.ch", "at the cluster scope",
			[]string{"without -A", "ClusterRoleBinding", "berg-operator-challengeinstance-viewer", "can-i list challengeinstances.berg.norelect.ch -A"},
			"editor",
		},
		"end an instance":      {"patch", "challengeinstances", "berg.norelect.ch", `in the namespace "red"`, []string{"berg-operator-challengeinstance-editor"}, "viewer"},
		"try a Challenge":      {"create", "challengeinstances", "berg.norelect.ch", `in the namespace "red"`, []string{"berg-operator-challengeinstance-editor", "can-i create"}, "viewer"},
		"read Challenges":      {"get", "challenges", "berg.norelect.ch", `in the namespace "red"`, []string{"berg-operator-challenge-viewer"}, "challengeinstance"},
		"freeze a Challenge":   {"patch", "challenges", "berg.norelect.ch", `in the namespace "red"`, []string{"berg-operator-challenge-editor"}, "viewer"},
		"read records":         {"list", "challengeinstancerecords", "berg.norelect.ch", `in the namespace "red"`, []string{"berg-operator-challengeinstancerecord-viewer"}, "editor"},
		"read checks":          {"watch", "challengechecks", "berg.norelect.ch", `in the namespace "red"`, []string{"berg-operator-challengecheck-viewer"}, "editor"},
		"read logs":            {"get", "pods/log", "", `in the namespace "challenge-a"`, []string{"the right to get pods/log", "kubectl auth can-i get pods/log -n challenge-a"}, "berg-operator-"},
		"read pods of a node":  {"list", "pods", "", "at the cluster scope", []string{"the right to list pods", "can-i list pods -A"}, "berg-operator-"},
		"challenges of others": {"list", "challenges", "apps.example.com", `in the namespace "red"`, []string{"the right to list challenges"}, "berg-operator-"},
	} {
		t.Run(name, func(t *testing.T) {
			says := fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", "crew", tc.verb, tc.resource, tc.group, tc.where)
			err := Explain("do it", apierrors.NewForbidden(schema.GroupResource{Group: tc.group, Resource: tc.resource}, "", errors.New(says)))
			if console.Code(err) != console.ExitForbidden {
				t.Errorf("exit code %d", console.Code(err))
			}
			for _, words := range tc.want {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("%q is missing: %v", words, err)
				}
			}
			if tc.not != "" && strings.Contains(strings.ReplaceAll(err.Error(), says, ""), tc.not) {
				t.Errorf("%q is not what is missing: %v", tc.not, err)
			}
		})
	}
	// An admission webhook says it in its own words.
	webhook := apierrors.NewForbidden(schema.GroupResource{Group: "berg.norelect.ch", Resource: "challengeinstances"}, "a", errors.New("frozen by policy"))
	if err := Explain("end it", webhook); !strings.Contains(err.Error(), "frozen by policy") {
		t.Errorf("got %v", err)
	}
}
