// Package builds tests what the operator makes of KibaShip Deployments against a real API
// server, with the operator in this process. Tekton's kinds are there, and Tekton is not: the
// specs write the status of runs, as Tekton does. test/e2e/kibaship has the real one.
//
// It needs KUBECONFIG; make test brings up the cluster and sets it.
package builds

import (
	"context"
	_ "embed"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

const (
	registryURL    = "registry.example.org/kibaship"
	registrySecret = "registry-login"
	resultTime     = 4 * time.Second
)

var settings = map[string]string{
	"BUILD_REGISTRY":         registryURL,
	"BUILD_REGISTRY_SECRET":  registrySecret,
	"BUILD_PUSH_IMAGE":       "example.org/berg-operator:v1",
	"BUILD_GIT_IMAGE":        "example.org/git:v1",
	"BUILD_IMAGE":            "example.org/kaniko:v1",
	"GIT_PROVIDER_URLS":      "github.com=https://git.example.org",
	"DEPLOYMENT_RESULT_TIME": resultTime.String(),
}

var k8s client.WithWatch

//go:embed testdata/tekton.yaml
var tekton string

func TestIntegration(t *testing.T) { apiserver.Run(t, "Builds of KibaShip Deployments") }

var _ = inprocess.Suite{
	Before: func(ctx context.Context) map[string]string {
		k8s = apiserver.Client
		installTekton(ctx)
		admin(ctx)
		return settings
	},
	Gone: func(context.Context) {},
}.Register()

// definitions are those of Tekton's kinds, as far as they matter here.
func definitions() []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for text := range strings.SplitSeq(tekton, "\n---\n") {
		u := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal([]byte(text), &u.Object)).To(Succeed())
		all = append(all, u)
	}
	return all
}

func installTekton(ctx context.Context) {
	GinkgoHelper()
	for _, definition := range definitions() {
		apiserver.InstallDefinition(ctx, definition)
	}
}

// removeTekton deletes its kinds, and waits until they are gone with all that is of them.
func removeTekton(ctx context.Context) {
	GinkgoHelper()
	for _, definition := range definitions() {
		Expect(client.IgnoreNotFound(k8s.Delete(ctx, definition))).To(Succeed())
		Eventually(func() error { return k8s.Get(ctx, client.ObjectKeyFromObject(definition), definition) }).ShouldNot(Succeed())
	}
	DeferCleanup(installTekton)
}
