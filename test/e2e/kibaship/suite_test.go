// Package kibaship plays the journeys of KibaShip projects on a cluster with a real Tekton: from
// a Project to an image that runs, and what an author's code gets hold of in a build.
//
// It takes the cluster from KUBECONFIG, of profile tekton and on this machine: repositories are
// made in a folder of the cluster. make e2e-kibaship provides it, with the operator deployed. The specs
// with the label network build nothing, and need profile network instead: make e2e-network.
package kibaship

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

const (
	// Names of what an administrator puts into each Project.
	loginSecret, authorityMap = "registry-login", "authorities"
)

// buildLimit covers a build on a machine that has more to do.
var buildLimit = limits.Scaled(4 * time.Minute)

// site is what profile tekton tells of itself.
var site struct {
	Git, Token, Repositories, Registry, Login, Authority, BaseImages, Definitions string
}

// world is the cluster under test.
var world *deployed.Cluster

func TestJourneys(t *testing.T) {
	deployed.Run(t, "KibaShip projects on a real cluster, with a real Tekton")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	world = deployed.Begin(ctx)
	state := filepath.Dir(filepath.Dir(os.Getenv("KUBECONFIG")))
	text, err := os.ReadFile(filepath.Join(state, "tekton.json"))
	chosen := GinkgoLabelFilter()
	onTekton := err == nil || chosen == "" || !Label("network", "attack").MatchesLabelFilter(chosen)
	if onTekton {
		Expect(err).NotTo(HaveOccurred(), "KUBECONFIG must be that of a cluster of profile tekton on this machine")
		Expect(json.Unmarshal(text, &site)).To(Succeed())
	}

	everything := []string{rbacv1.ResourceAll}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: kibashipv1.ProjectAdmin},
		Rules:      []rbacv1.PolicyRule{{APIGroups: everything, Resources: everything, Verbs: everything}},
	}
	Expect(client.IgnoreAlreadyExists(world.Create(ctx, role))).To(Succeed())
	if !onTekton {
		return
	}
	setOperator(ctx, map[string]string{
		"GIT_PROVIDER_URLS":     "github.com=" + site.Git + ",bitbucket.com=" + site.Git,
		"BUILD_GIT_IMAGE":       "registry.berg.test/git:1",
		"BUILD_IMAGE":           "registry.berg.test/kaniko:1",
		"BUILD_BASE_IMAGE":      "registry.berg.test/base:1",
		"BUILD_ARGS":            "--registry-map=registry.berg.test=" + site.BaseImages,
		"BUILD_REGISTRY":        site.Registry + "/kibaship",
		"BUILD_REGISTRY_SECRET": loginSecret,
		"BUILD_CA_CONFIG_MAP":   authorityMap,
	})
}, NodeTimeout(3*deployed.StartLimit))

// setOperator changes the operator's environment and waits until every pod has it.
func setOperator(ctx context.Context, variables map[string]string) {
	GinkgoHelper()
	var env string
	for name, value := range variables {
		env += fmt.Sprintf(`,{"name":%q,"value":%q}`, name, value)
	}
	deployed.ChangeManager(ctx, `"env":[`+env[1:]+`]`)
}
