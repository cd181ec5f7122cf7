package helm

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/limits"
	"github.com/bergctf/berg-operator/test/lib/residue"
)

const (
	stage = "helm-journeys"

	echo = `
containers:
- hostname: box
  image: ghcr.io/bergctf/samples/toolbox:v0.1.0
  ports: [{name: echo, port: 9000, type: publicPort}]
  environment: {TOOLBOX_TCP: ":9000"}
  resourceRequests: {cpu: 10m, memory: 16Mi}
`
)

// One installation, from its first day to its last.
var _ = Describe("Helm", Ordered, func() {
	// before is the cluster's objects without a namespace without the operator.
	var before sets.Set[string]
	// instance is that of a player, who notices nothing of all this, and its pods.
	var instance *bergv1.ChallengeInstance
	var its []string

	BeforeAll(func(ctx SpecContext) {
		var err error
		before, err = residue.Objects(ctx)
		Expect(err).NotTo(HaveOccurred())
	}, NodeTimeout(limits.Scaled(time.Minute)))

	expectUnaffected := func(ctx context.Context) {
		GinkgoHelper()
		expect.Reaches(ctx, instance, bergv1.PhaseRunning)
		Expect(pods(ctx, instance)).To(Equal(its))
	}

	It("installs the operator into any namespace, and says what to do next", func(ctx SpecContext) {
		said := must(helm(ctx, install("--set", "settings.CHALLENGE_DOMAIN=first.example.test", "--set", "families.quix=true")...))
		Expect(said).To(And(ContainSubstring("rollout status deployment/berg-operator-controller-manager"), ContainSubstring("berg")))
		d := deployment(ctx, namespace)
		Expect(d.Status.ReadyReplicas).To(Equal(*d.Spec.Replicas))
		Expect(setting(d, "CHALLENGE_DOMAIN")).To(Equal("first.example.test"))
		must(helm(ctx, "test", release, "--timeout", startLimit.String()))

		Expect(k8s.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: stage}})).To(Succeed())
		bergtest.Challenge(ctx, stage, "echo", echo)
		instance = bergtest.Running(ctx, stage, "echo")
		its = pods(ctx, instance)
		Expect(instance.Status.Services).To(HaveEach(HaveField("Hostname", "first.example.test")))
	}, SpecTimeout(2*startLimit))

	It("refuses a value that the schema knows to be wrong, before anything changes", func(ctx SpecContext) {
		_, err := helm(ctx, upgrade("--set", "settings.NETWORK_POLICY=calico")...)
		Expect(err).To(MatchError(ContainSubstring("NETWORK_POLICY")))
		_, err = helm(ctx, upgrade("--set", "settings.CHALENGE_DOMAIN=x.example.test")...)
		Expect(err).To(MatchError(ContainSubstring("CHALENGE_DOMAIN")))
		Expect(setting(deployment(ctx, namespace), "NETWORK_POLICY")).To(Equal("auto"))
	}, SpecTimeout(startLimit))

	It("upgrades with other values, and no player notices", func(ctx SpecContext) {
		must(helm(ctx, upgrade("--set", "settings.CHALLENGE_MAX_LIFETIME=30m", "--set", "replicas=1", "--set", "families.quix=false")...))
		d := deployment(ctx, namespace)
		Expect(setting(d, "CHALLENGE_DOMAIN")).To(Equal("first.example.test"), "a value of the former revision")
		Expect(setting(d, "CHALLENGE_MAX_LIFETIME")).To(Equal("30m"))
		Expect(setting(d, "NAMESPACE_SUFFIX")).To(Equal(absent), "a setting of a family that is off")
		Expect(*d.Spec.Replicas).To(BeEquivalentTo(1))
		Expect(exists(ctx, &rbacv1.ClusterRole{}, "berg-operator-quix")).To(BeFalse(), "the rights of a family that is off")
		Expect(exists(ctx, &apiextensionsv1.CustomResourceDefinition{}, "environments.quix.io")).To(BeTrue(), "definitions are kept")
		expect.Until(ctx, startLimit, func(ctx context.Context) error {
			return k8s.Get(ctx, client.ObjectKeyFromObject(instance), instance)
		})
		Eventually(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(instance), instance)).To(Succeed())
			g.Expect(instance.Status.ExpiresAt.Sub(instance.Status.StartedAt.Time)).To(Equal(30 * time.Minute))
		}).Should(Succeed())
		expectUnaffected(ctx)
	}, SpecTimeout(2*startLimit))

	It("leaves the old pod at work when only the operator knows a value to be wrong, and rolls back", func(ctx SpecContext) {
		_, err := helm(ctx, upgrade("--set", "settings.CHALLENGE_MEMORY_REQUEST=8Gi", "--timeout", brief)...)
		Expect(err).To(HaveOccurred())
		Expect(deployment(ctx, namespace).Status.AvailableReplicas).To(BeEquivalentTo(1))
		must(helm(ctx, "rollback", release, "1", "--wait", "--timeout", startLimit.String()))
		d := deployment(ctx, namespace)
		Expect(setting(d, "CHALLENGE_MEMORY_REQUEST")).To(Equal("128Mi"))
		Expect(setting(d, "CHALLENGE_MAX_LIFETIME")).To(BeEmpty())
		Expect(exists(ctx, &rbacv1.ClusterRole{}, "berg-operator-quix")).To(BeTrue())
		Eventually(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(instance), instance)).To(Succeed())
			g.Expect(instance.Status.ExpiresAt.Sub(instance.Status.StartedAt.Time)).To(BeNumerically(">", 30*time.Minute))
		}).Should(Succeed())
		expectUnaffected(ctx)
	}, SpecTimeout(2*startLimit))

	It("removes the operator and keeps definitions and what runs, which the next installation continues with", func(ctx SpecContext) {
		must(helm(ctx, "uninstall", release, "--wait", "--timeout", startLimit.String()))
		kept := residue.Definitions(root)
		expect.Until(ctx, startLimit, func(ctx context.Context) error {
			return residue.LeftBehind(ctx, before, func(object string) bool {
				// What runs has a namespace, and Services with addresses.
				return residue.OfDefinitions(object, kept) || object == "namespaces/"+namespace || object == "namespaces/"+stage ||
					object == "namespaces/"+instance.Status.Namespace || strings.HasPrefix(object, "ipaddresses.networking.k8s.io/")
			})
		})
		expectUnaffected(ctx)

		must(helm(ctx, install("--set", "crds.keep=false", "--set", "families.quix=true")...))
		expectUnaffected(ctx)
		Expect(k8s.Delete(ctx, instance)).To(Succeed())
		bergtest.GoneWithin(ctx, instance, startLimit)
	}, SpecTimeout(3*startLimit))

	It("removes everything where definitions are not kept, but for the namespace", func(ctx SpecContext) {
		must(helm(ctx, "uninstall", release, "--wait", "--timeout", startLimit.String()))
		Expect(k8s.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: stage}})).To(Succeed())
		expect.Until(ctx, startLimit, func(ctx context.Context) error {
			return residue.LeftBehind(ctx, before, func(object string) bool { return object == "namespaces/"+namespace })
		})
		must(kubectl(ctx, "delete", "namespace", namespace))
	}, SpecTimeout(2*startLimit))
})

// address is where docs/operations.md takes the file from.
var address = regexp.MustCompile(`https://\S+/deploy/install\.yaml`)

// overlay is a folder with the kustomization that docs/operations.md shows, next to the file of this
// tree.
func overlay() string {
	GinkgoHelper()
	page, err := os.ReadFile(root + "/docs/operations.md")
	Expect(err).NotTo(HaveOccurred())
	_, rest, shown := strings.Cut(string(page), "cat > kustomization.yaml <<'EOF'\n")
	text, _, ends := strings.Cut(rest, "\nEOF\n")
	Expect(shown && ends && address.MatchString(text)).To(BeTrue(), "docs/operations.md shows a kustomization.yaml that takes the file from its address")
	file, err := os.ReadFile(root + "/deploy/install.yaml")
	Expect(err).NotTo(HaveOccurred())
	folder := GinkgoT().TempDir()
	Expect(os.WriteFile(folder+"/install.yaml", file, 0o600)).To(Succeed())
	Expect(os.WriteFile(folder+"/kustomization.yaml", []byte(address.ReplaceAllString(text, "install.yaml")+"\n"), 0o600)).To(Succeed())
	return folder
}

var _ = Describe("The one file", Ordered, func() {
	const file, further = "deploy/install.yaml", "deploy/quix.yaml"
	var before sets.Set[string]

	wait := func(ctx context.Context) {
		GinkgoHelper()
		must(kubectl(ctx, "-n", fileNamespace, "rollout", "status", "deployment/berg-operator-controller-manager", "--timeout", startLimit.String()))
	}

	It("installs the operator", func(ctx SpecContext) {
		var err error
		before, err = residue.Objects(ctx)
		Expect(err).NotTo(HaveOccurred())
		must(kubectl(ctx, "apply", "--server-side", "-f", file))
		wait(ctx)
	}, SpecTimeout(2*startLimit))

	// docs/operations.md tells so.
	It("conflicts with a setting of kubectl set env, and can be applied with it as a patch", func(ctx SpecContext) {
		must(kubectl(ctx, "-n", fileNamespace, "set", "env", "deployment/berg-operator-controller-manager", "CHALLENGE_MAX_LIFETIME=8h"))
		wait(ctx)
		_, err := kubectl(ctx, "apply", "--server-side", "-f", file)
		Expect(err).To(MatchError(And(ContainSubstring("conflict"), ContainSubstring("CHALLENGE_MAX_LIFETIME"))))
		Expect(setting(deployment(ctx, fileNamespace), "CHALLENGE_MAX_LIFETIME")).To(Equal("8h"))

		must(kubectl(ctx, "apply", "--server-side", "--force-conflicts", "-f", file))
		Expect(setting(deployment(ctx, fileNamespace), "CHALLENGE_MAX_LIFETIME")).To(BeEmpty(), "it is the default again")

		folder := overlay()
		for range 2 { // an upgrade is the same command again
			must(kubectl(ctx, "apply", "--server-side", "-k", folder))
			Expect(setting(deployment(ctx, fileNamespace), "CHALLENGE_MAX_LIFETIME")).To(Equal("8h"))
		}
		wait(ctx)
	}, SpecTimeout(3*startLimit))

	// The operator finds out by itself, in one command of a person who read no further.
	It("gets a further family by one more file, and loses it with that", func(ctx SpecContext) {
		Expect(exists(ctx, &apiextensionsv1.CustomResourceDefinition{}, "environments.quix.io")).To(BeFalse())
		must(kubectl(ctx, "apply", "--server-side", "-f", further))
		env := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "quix.io/v1", "kind": "Environment", "metadata": map[string]any{"name": "further"}, "spec": map[string]any{"id": "further"},
		}}
		Eventually(func() error { return k8s.Create(ctx, env) }).Should(Succeed())
		expect.Until(ctx, startLimit, func(ctx context.Context) error {
			if err := k8s.Get(ctx, client.ObjectKeyFromObject(env), env); err != nil {
				return err
			}
			if phase, _, _ := unstructured.NestedString(env.Object, "status", "phase"); phase != "Ready" {
				return fmt.Errorf("the Environment is %q", phase)
			}
			return nil
		})
		Expect(k8s.Delete(ctx, env)).To(Succeed())
		expect.Until(ctx, startLimit, func(ctx context.Context) error {
			if err := k8s.Get(ctx, client.ObjectKeyFromObject(env), env); !apierrors.IsNotFound(err) {
				return fmt.Errorf("the Environment is still there, or cannot be read: %w", err)
			}
			return nil
		})
		must(kubectl(ctx, "delete", "-f", further))
		wait(ctx)
	}, SpecTimeout(4*startLimit))

	It("leaves nothing when it is deleted", func(ctx SpecContext) {
		must(kubectl(ctx, "delete", "-f", file))
		expect.Until(ctx, startLimit, func(ctx context.Context) error { return residue.LeftBehind(ctx, before, residue.Nothing) })
	}, SpecTimeout(2*startLimit))
})
