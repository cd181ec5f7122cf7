package operator

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
)

// documents returns the objects of a YAML file.
func documents(path string) (all []*unstructured.Unstructured) {
	GinkgoHelper()
	text, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		o := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal(document, &o.Object)).To(Succeed())
		all = append(all, o)
	}
	return all
}

// render returns the objects that OLM v1 makes of a bundle in the mode AllNamespaces: rights of a namespace become rights of the cluster.
func render(folder, namespace string) (all []*unstructured.Unstructured) {
	GinkgoHelper()
	files, err := filepath.Glob(filepath.Join(folder, "manifests", "*.yaml"))
	Expect(err).NotTo(HaveOccurred())
	Expect(files).NotTo(BeEmpty())
	var csv operatorsv1alpha1.ClusterServiceVersion
	for _, file := range files {
		for _, o := range documents(file) {
			if o.GetKind() == operatorsv1alpha1.ClusterServiceVersionKind {
				text, err := yaml.Marshal(o.Object)
				Expect(err).NotTo(HaveOccurred())
				Expect(yaml.Unmarshal(text, &csv)).To(Succeed())
				continue
			}
			if namespaced, err := apiserver.Client.IsObjectNamespaced(o); err == nil && namespaced {
				o.SetNamespace(namespace)
			}
			unstructured.RemoveNestedField(o.Object, "metadata", "creationTimestamp")
			unstructured.RemoveNestedField(o.Object, "status")
			all = append(all, o)
		}
	}
	add := func(o any) {
		text, err := yaml.Marshal(o)
		Expect(err).NotTo(HaveOccurred())
		u := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal(text, &u.Object)).To(Succeed())
		unstructured.RemoveNestedField(u.Object, "status")
		all = append(all, u)
	}
	install := csv.Spec.InstallStrategy.StrategySpec
	for i, p := range append(install.ClusterPermissions, install.Permissions...) {
		name := csv.Name + "-" + p.ServiceAccountName + "-" + string(rune('a'+i))
		add(corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: p.ServiceAccountName}})
		rules := append(p.Rules, rbacv1.PolicyRule{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"namespaces"}})
		add(rbacv1.ClusterRole{TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"}, ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules})
	}
	for _, d := range install.DeploymentSpecs {
		add(map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"namespace": namespace, "name": d.Name}, "spec": d.Spec})
	}
	return all
}

var _ = Describe("The account with which OLM v1 installs a package", func() {
	for folder, name := range map[string]string{
		"bundle": "berg-operator", "deploy/packages/hexactf-operator/bundle": "hexactf-operator", "deploy/packages/kibaship-operator/bundle": "kibaship-operator",
		"deploy/packages/quix-environment-operator/bundle": "quix-environment-operator", "deploy/packages/container-tunnel-operator/bundle": "container-tunnel-operator",
	} {
		It("has the rights for everything in "+name+", and no right to grant more", func(ctx context.Context) {
			namespace := name + "-system"
			for _, o := range documents("../../../config/olm/v1/" + name + ".yaml") {
				if strings.HasPrefix(o.GetAPIVersion(), "olm.operatorframework.io/") {
					continue // its kinds are not served
				}
				existed := o.GetKind() == "Namespace" && k8s.Get(ctx, client.ObjectKeyFromObject(o), &corev1.Namespace{}) == nil
				Expect(k8s.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("administrator"), client.ForceOwnership)).To(Succeed())
				if !existed {
					DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(k8s.Delete(ctx, o))).To(Succeed()) })
				}
			}
			account := apiserver.As("system:serviceaccount:" + namespace + ":" + name + "-olm")
			rendered := render("../../../"+folder, namespace)
			Expect(rendered).To(ContainElement(HaveField("Object", HaveKeyWithValue("kind", "Deployment"))))
			for _, o := range rendered {
				Eventually(func() error {
					return account.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("olm"), client.ForceOwnership, client.DryRunAll)
				}).Should(Succeed(), "%s %s", o.GetKind(), o.GetName())
			}
			Expect(account.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "more"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes/proxy"}, Verbs: []string{"get"}}}}, client.DryRunAll)).
				To(MatchError(ContainSubstring("attempting to grant RBAC permissions")))
		})
	}
})
