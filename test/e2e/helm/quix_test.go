package helm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/limits"
	"github.com/bergctf/berg-operator/test/lib/residue"
)

const (
	formerRelease, formerNamespace = "quix-environment-operator", "quix-environment"
	tenantNamespace                = "tenant-qdep"
)

// formerChart is made as that of the operator which this one replaces: the definition is one of its templates. Its operator does nothing.
func formerChart() (folder string) {
	GinkgoHelper()
	folder = GinkgoT().TempDir()
	kept := func(file string) string {
		GinkgoHelper()
		text, err := os.ReadFile(filepath.Join(root, "config/quix", file))
		Expect(err).NotTo(HaveOccurred())
		return string(text)
	}
	for name, text := range map[string]string{
		"Chart.yaml":              "apiVersion: v2\nname: " + formerRelease + "\nversion: 0.1.7\n",
		"files/definition.yaml":   kept("crd/bases/quix.io_environments.yaml"),
		"files/platform.yaml":     kept("platform/platform_role.yaml"),
		"files/creator.yaml":      kept("platform/creator_role.yaml"),
		"templates/crd.yaml":      `{{ .Files.Get "files/definition.yaml" }}`,
		"templates/platform.yaml": `{{ .Files.Get "files/platform.yaml" }}`,
		"templates/creator.yaml":  `{{ .Files.Get "files/creator.yaml" }}`,
		"templates/account.yaml":  "{apiVersion: v1, kind: ServiceAccount, metadata: {name: quix-platform-account, namespace: " + formerNamespace + "}}\n",
		"templates/creates.yaml":  "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: quix-platform-account-env}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: quix-platform-account-role-env}, subjects: [{kind: ServiceAccount, name: quix-platform-account, namespace: " + formerNamespace + "}]}\n",
		"templates/own.yaml":      "{apiVersion: v1, kind: ServiceAccount, metadata: {name: " + formerRelease + ", namespace: " + formerNamespace + "}}\n",
		"templates/bound.yaml":    "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: " + formerRelease + "}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, subjects: [{kind: ServiceAccount, name: " + formerRelease + ", namespace: " + formerNamespace + "}]}\n",
		"templates/operator.yaml": "{apiVersion: apps/v1, kind: Deployment, metadata: {name: " + formerRelease + ", namespace: " + formerNamespace + "}, spec: {selector: {matchLabels: {app: former}}, template: {metadata: {labels: {app: former}}, spec: {containers: [{name: manager, image: \"ghcr.io/bergctf/samples/toolbox:v0.1.0\"}]}}}}\n",
	} {
		path := filepath.Join(folder, name)
		Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
		Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
	}
	return folder
}

// formerTenant is an Environment as that operator leaves it, with its namespace, in which a tenant has data.
func formerTenant(ctx context.Context) (namespace *corev1.Namespace) {
	GinkgoHelper()
	env := apiserver.Object(`{apiVersion: quix.io/v1, kind: Environment, metadata: {name: tenant, finalizers: [quix.io/environment-finalizer]}, spec: {id: tenant}}`)
	Eventually(func() error { return k8s.Create(ctx, env) }).WithContext(ctx).WithTimeout(startLimit).Should(Succeed())
	const identity = `quix.io/environment-id: tenant, quix.io/environment-name: tenant`
	for _, text := range []string{
		fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {quix.io/managed-by: quix-environment-operator, ManagedBy: Quix, %s},
  annotations: {quix.io/created-by: quix-environment-operator, quix.io/environment-resource-name: tenant},
  ownerReferences: [{apiVersion: quix.io/v1, kind: Environment, name: tenant, uid: %q, controller: true, blockOwnerDeletion: true}]}}`, tenantNamespace, identity, env.GetUID()),
		fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: tenant-quix-crb, namespace: %s, labels: {quix.io/managed-by: environment-operator, %s}},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: quix-platform-account-role}, subjects: [{kind: ServiceAccount, name: quix-platform-account, namespace: %s}]}`, tenantNamespace, identity, formerNamespace),
		fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: data, namespace: %s}, data: {kept: "yes"}}`, tenantNamespace),
	} {
		Expect(k8s.Create(ctx, apiserver.Object(text))).To(Succeed())
	}
	status := fmt.Sprintf(`{"status":{"phase":"Ready","namespaceStatus":{"phase":"Active","resourceName":%q},"roleBindingStatus":{"phase":"Active","resourceName":"tenant-quix-crb"}}}`, tenantNamespace)
	Expect(k8s.Status().Patch(ctx, env, client.RawPatch(types.MergePatchType, []byte(status)))).To(Succeed())
	namespace = &corev1.Namespace{}
	Expect(k8s.Get(ctx, client.ObjectKey{Name: tenantNamespace}, namespace)).To(Succeed())
	return namespace
}

// commandsOf are those of a section of a page, in order, without its subsections.
func commandsOf(page, section string) string {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join(root, page))
	Expect(err).NotTo(HaveOccurred())
	_, commands, found := strings.Cut(string(text), "\n## "+section+"\n")
	Expect(found).To(BeTrue(), "the page has changed")
	commands, _, _ = strings.Cut(commands, "\n## ")
	commands, _, _ = strings.Cut(commands, "\n### ")
	var all strings.Builder
	for _, block := range regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```$").FindAllStringSubmatch(commands, -1) {
		all.WriteString(block[1])
	}
	Expect(all.String()).NotTo(BeEmpty())
	return all.String()
}

var _ = Describe("The page on moving in from the Quix environment operator", func() {
	It("keeps every tenant, command by command", func(ctx SpecContext) {
		before, err := residue.Objects(ctx)
		Expect(err).NotTo(HaveOccurred())
		must(output(ctx, os.Getenv("HELM"), "install", formerRelease, formerChart(), "--namespace", formerNamespace, "--create-namespace", "--wait", "--timeout", startLimit.String()))
		tenant := formerTenant(ctx)

		begin := time.Now()
		script := commandsOf("docs/quix/environment.md", "Replace the Quix environment operator")
		shell := exec.CommandContext(ctx, "bash", "-ec", script)
		shell.Dir = GinkgoT().TempDir()
		deploy, err := filepath.Abs(filepath.Join(root, "deploy"))
		Expect(err).NotTo(HaveOccurred())
		Expect(os.Symlink(deploy, filepath.Join(shell.Dir, "deploy"))).To(Succeed())
		said, err := shell.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", said)
		AddReportEntry("all commands of the page took", time.Since(begin).Round(time.Second).String())

		By("looking at what there is")
		namespace := &corev1.Namespace{}
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(tenant), namespace)).To(Succeed())
		Expect(namespace.UID).To(Equal(tenant.UID))
		Expect(namespace.Annotations).To(HaveKey("quix.io/environment-uid"))
		data := &corev1.ConfigMap{}
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: tenantNamespace, Name: "data"}, data)).To(Succeed())
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: formerNamespace, Name: "quix-platform-account"}, &corev1.ServiceAccount{})).To(Succeed())

		By("removing the release by mistake")
		_, err = output(ctx, os.Getenv("HELM"), "uninstall", formerRelease, "--namespace", formerNamespace)
		Expect(err).To(MatchError(ContainSubstring("not found")))
		Expect(exists(ctx, &apiextensionsv1.CustomResourceDefinition{}, "environments.quix.io")).To(BeTrue())

		By("removing all")
		must(kubectl(ctx, "delete", "environment", "tenant", "--timeout", startLimit.String()))
		expect.Until(ctx, startLimit, func(ctx context.Context) error {
			if err := k8s.Get(ctx, client.ObjectKeyFromObject(tenant), namespace); !apierrors.IsNotFound(err) {
				return fmt.Errorf("the namespace is still there, or cannot be read: %w", err)
			}
			return nil
		})
		for _, file := range []string{"deploy/quix.yaml", "deploy/install.yaml"} {
			must(kubectl(ctx, "delete", "-f", file))
		}
		must(kubectl(ctx, "delete", "clusterrolebinding/quix-platform-account-env", "clusterrolebinding/"+formerRelease, "namespace/"+formerNamespace))
		expect.Until(ctx, startLimit, func(ctx context.Context) error { return residue.LeftBehind(ctx, before, residue.Nothing) })
	}, SpecTimeout(limits.Scaled(10*time.Minute)))
})
