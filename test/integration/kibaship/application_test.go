package kibaship

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/kibashiptest"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

var _ = Describe("An application", func() {
	It("gets the labels of its project, and is Ready", func(ctx context.Context) {
		p := kibashiptest.Ready(ctx, func(p *kibashipv1.Project) { p.Labels[kibashipv1.LabelWorkspaceUUID] = uuidB })
		a := kibashiptest.ReadyApplication(ctx, p.Name, "web")
		Expect(a.Labels).To(And(
			HaveKeyWithValue("platform.kibaship.com/project-uuid", p.Labels[kibashipv1.LabelUUID]),
			HaveKeyWithValue("platform.kibaship.com/workspace-uuid", uuidB)))
		Expect(a.Finalizers).To(ContainElement("platform.operator.kibaship.com/application-finalizer"))
		expect.Shows(ctx, a, kibashipv1.ConditionReady, metav1.ConditionTrue, kibashipv1.ReasonApplicationReady)

		By("losing a label, and the workspace of the project")
		apiserver.Change(ctx, a, func() { delete(a.Labels, kibashipv1.LabelProjectUUID) })
		apiserver.Change(ctx, p, func() { delete(p.Labels, kibashipv1.LabelWorkspaceUUID) })
		expect.Becomes(ctx, a, func(g Gomega) {
			g.Expect(a.Labels).To(HaveKey("platform.kibaship.com/project-uuid"))
			g.Expect(a.Labels).NotTo(HaveKey("platform.kibaship.com/workspace-uuid"))
		})
	})

	It("waits for its project", func(ctx context.Context) {
		name := kibashiptest.NewName()
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kibashiptest.Namespace(name)}}
		Expect(k8s.Create(ctx, ns)).To(Succeed())
		a := kibashiptest.Application(ctx, name, "early")
		expect.Settles(ctx, a, kibashipv1.ApplicationPending)
		expect.Shows(ctx, a, kibashipv1.ConditionReady, metav1.ConditionFalse, kibashipv1.ReasonProjectNotFound)
		p := kibashiptest.Project(ctx, name)
		expect.Settles(ctx, p, kibashipv1.ProjectFailed) // the namespace is not its own
		expect.Shows(ctx, a, kibashipv1.ConditionReady, metav1.ConditionFalse, kibashipv1.ReasonProjectNotReady)

		By("giving the namespace to the project, as its message says")
		apiserver.Change(ctx, ns, func() {
			ns.Labels = map[string]string{kibashipv1.LabelUUID: p.Labels[kibashipv1.LabelUUID]}
			ns.Annotations = map[string]string{kibashipv1.AnnotationProjectUID: string(p.UID)}
		})
		expect.Says(ctx, p, "let an administrator set status.namespaceUID")
		Expect(k8s.Status().Patch(ctx, p, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{"namespaceUID":%q}}`, ns.UID)))).To(Succeed())
		expect.Settles(ctx, p, kibashipv1.ProjectReady)
		expect.Settles(ctx, a, kibashipv1.ApplicationReady)
	})

	It("waits for the Secrets that it names, and notices when one goes", func(ctx context.Context) {
		p := kibashiptest.Ready(ctx)
		a := kibashiptest.Application(ctx, p.Name, "private", kibashiptest.Private("token"))
		expect.Shows(ctx, a, kibashipv1.ConditionSecretFound, metav1.ConditionFalse, kibashipv1.ReasonSecretNotFound)
		expect.Settles(ctx, a, kibashipv1.ApplicationPending)
		Expect(a.Status.Message).To(And(ContainSubstring("token"), ContainSubstring("spec.gitRepository.secretRef")))
		secret := func(name string) *corev1.Secret {
			return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: name}, StringData: map[string]string{"token": "hush"}}
		}
		Expect(k8s.Create(ctx, secret("another"))).To(Succeed())
		Expect(k8s.Create(ctx, secret("token"))).To(Succeed())
		expect.Settles(ctx, a, kibashipv1.ApplicationReady)
		second := kibashiptest.ReadyApplication(ctx, p.Name, "second", kibashiptest.Private("token"))
		Expect(k8s.Delete(ctx, secret("token"))).To(Succeed())
		expect.Settles(ctx, a, kibashipv1.ApplicationPending)
		expect.Settles(ctx, second, kibashipv1.ApplicationPending)
		Expect(a.Status.Message).NotTo(ContainSubstring("hush"))
	})

	It("never has a Secret read", func(ctx context.Context) {
		var whole atomic.Int32
		inprocess.Restart(nil, transport.Showing(func(r *http.Request) {
			if strings.Contains(r.URL.Path, kibashiptest.Namespace("")[:8]) && strings.Contains(r.URL.Path, "/secrets") &&
				!strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
				whole.Add(1)
			}
		}))
		p := kibashiptest.Ready(ctx)
		Expect(k8s.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: kibashiptest.Namespace(p.Name), Name: "token"}})).To(Succeed())
		kibashiptest.ReadyApplication(ctx, p.Name, "private", kibashiptest.Private("token"))
		Expect(whole.Load()).To(BeZero())
	})

	It("keeps to what its project allows, also when that changes", func(ctx context.Context) {
		p := kibashiptest.Ready(ctx, func(p *kibashipv1.Project) {
			p.Spec.ApplicationTypes.DockerImage = &kibashipv1.TypePolicy{
				Enabled:        true,
				DefaultLimits:  kibashipv1.Limits{CPU: "1", Memory: "512Mi"},
				ResourceBounds: kibashipv1.Bounds{Min: kibashipv1.Limits{CPU: "0.5"}, Max: kibashipv1.Limits{CPU: "2", Memory: "1Gi"}},
			}
			p.Spec.ApplicationTypes.MySQLCluster = &kibashipv1.ClusterTypePolicy{
				Enabled: true, ResourceBounds: kibashipv1.ClusterBounds{Max: kibashipv1.ClusterLimits{Nodes: 3}},
			}
			p.Spec.Volumes.MaxStorageSize = "10Gi"
		})
		a := kibashiptest.ReadyApplication(ctx, p.Name, "web")
		Expect(a.Status.Limits).To(Equal(kibashipv1.Limits{CPU: "1", Memory: "512Mi"}))

		for field, limits := range map[string]kibashipv1.Limits{
			"spec.limits.cpu": {CPU: "2.5"}, "spec.limits.memory": {Memory: "2Gi"}, "spec.limits.storage": {Storage: "11Gi"},
		} {
			apiserver.Change(ctx, a, func() { a.Spec.Limits = limits })
			expect.Settles(ctx, a, kibashipv1.ApplicationFailed)
			expect.Shows(ctx, a, kibashipv1.ConditionSpecAccepted, metav1.ConditionFalse, kibashipv1.ReasonOutOfBounds)
			Expect(a.Status.Message).To(ContainSubstring(field))
		}
		apiserver.Change(ctx, a, func() { a.Spec.Limits = kibashipv1.Limits{CPU: "2", Memory: "1Gi", Storage: "10Gi"} })
		expect.Settles(ctx, a, kibashipv1.ApplicationReady)

		cluster := kibashiptest.Application(ctx, p.Name, "db", func(a *kibashipv1.Application) {
			a.Spec.Type, a.Spec.DockerImage = kibashipv1.TypeMySQLCluster, nil
			a.Spec.MySQLCluster = &kibashipv1.DatabaseCluster{Replicas: 5}
		})
		expect.Settles(ctx, cluster, kibashipv1.ApplicationFailed)
		Expect(cluster.Status.Message).To(ContainSubstring("spec.mysqlCluster.replicas"))

		By("switching the types off")
		apiserver.Change(ctx, p, func() {
			p.Spec.ApplicationTypes.DockerImage.Enabled = false
			p.Spec.ApplicationTypes.MySQLCluster = nil
		})
		expect.Shows(ctx, a, kibashipv1.ConditionSpecAccepted, metav1.ConditionFalse, kibashipv1.ReasonTypeDisabled)
		expect.Shows(ctx, cluster, kibashipv1.ConditionSpecAccepted, metav1.ConditionFalse, kibashipv1.ReasonTypeDisabled)
	})

	It("deletes its deployments, and those of no other application", func(ctx context.Context) {
		p := kibashiptest.Ready(ctx)
		a := kibashiptest.Application(ctx, p.Name, "web")
		other := kibashiptest.Application(ctx, p.Name, "web-app-two") // a slug that holds a separator
		for _, app := range []string{"web", "web-app-two"} {
			Expect(k8s.Create(ctx, kibashiptest.NewDeployment(p.Name, app, "staging"))).To(Succeed())
			Expect(k8s.Create(ctx, kibashiptest.NewDeployment(p.Name, app, "production"))).To(Succeed())
		}
		expect.Settles(ctx, a, kibashipv1.ApplicationReady)
		expect.Settles(ctx, other, kibashipv1.ApplicationReady)
		expect.Deleted(ctx, a)
		Eventually(func(g Gomega) {
			var left kibashipv1.DeploymentList
			g.Expect(k8s.List(ctx, &left, client.InNamespace(a.Namespace))).To(Succeed())
			g.Expect(left.Items).To(HaveLen(2))
			for _, d := range left.Items {
				g.Expect(d.Spec.ApplicationRef.Name).To(Equal(other.Name))
				g.Expect(d.DeletionTimestamp).To(BeNil())
			}
		}).Should(Succeed())
	})

	It("is left alone once it is Ready", func(ctx context.Context) {
		p := kibashiptest.Ready(ctx)
		a := kibashiptest.ReadyApplication(ctx, p.Name, "web")
		version := a.ResourceVersion
		Consistently(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(a), a)).To(Succeed())
			g.Expect(a.ResourceVersion).To(Equal(version))
		}).WithTimeout(3 * time.Second).Should(Succeed())
	})

	DescribeTable("that no schema takes", func(ctx context.Context, modify func(*kibashipv1.Application), reported string) {
		p := kibashiptest.Ready(ctx)
		err := k8s.Create(ctx, kibashiptest.NewApplication(p.Name, "bad", modify))
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring(reported)))
	},
		Entry("a name off the pattern", func(a *kibashipv1.Application) { a.Name = "web" }, "project-<project>-app-<app>-kibaship-com"),
		Entry("a name of another project", func(a *kibashipv1.Application) { a.Name = kibashiptest.ApplicationName("other", "web") }, "spec.projectRef.name"),
		Entry("no project", func(a *kibashipv1.Application) { a.Spec.ProjectRef.Name = "" }, "spec.projectRef.name"),
		Entry("no such type", func(a *kibashipv1.Application) { a.Spec.Type = "Redis" }, "spec.type"),
		Entry("no block of its type", func(a *kibashipv1.Application) { a.Spec.DockerImage = nil }, "spec.dockerImage is required"),
		Entry("a private repository without a Secret", func(a *kibashipv1.Application) {
			kibashiptest.Private("x")(a)
			a.Spec.GitRepository.SecretRef = nil
		}, "SecretRef"),
		Entry("a repository of one word", func(a *kibashipv1.Application) {
			kibashiptest.Private("x")(a)
			a.Spec.GitRepository.Repository = "org"
		}, "spec.gitRepository.repository"),
		Entry("a repository of three", func(a *kibashipv1.Application) {
			kibashiptest.Private("x")(a)
			a.Spec.GitRepository.Repository = "a/b/c"
		}, "spec.gitRepository.repository"),
		Entry("another provider", func(a *kibashipv1.Application) {
			kibashiptest.Private("x")(a)
			a.Spec.GitRepository.Provider = "example.org"
		}, "spec.gitRepository.provider"),
		Entry("a cluster of none", func(a *kibashipv1.Application) {
			a.Spec.Type, a.Spec.MySQLCluster = kibashipv1.TypeMySQLCluster, &kibashipv1.DatabaseCluster{Replicas: -1}
		}, "replicas"),
	)

	It("is no cluster of zero, which a client that writes what it says can ask for", func(ctx context.Context) {
		p := kibashiptest.Ready(ctx)
		for block, kind := range map[string]kibashipv1.ApplicationType{"mysqlCluster": kibashipv1.TypeMySQLCluster, "postgresCluster": kibashipv1.TypePostgresCluster} {
			a := apiserver.Object(fmt.Sprintf(`
apiVersion: platform.operator.kibaship.com/v1alpha1
kind: Application
metadata: {namespace: %s, name: %s}
spec: {projectRef: {name: %s}, type: %s, %s: {replicas: 0}}`,
				kibashiptest.Namespace(p.Name), kibashiptest.ApplicationName(p.Name, "none"), p.Name, kind, block))
			err := k8s.Create(ctx, a)
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(And(ContainSubstring("spec."+block+".replicas"), ContainSubstring("greater than or equal to 1"))))
		}
	})

	DescribeTable("that came past the webhook shows what is wrong", func(ctx context.Context, modify func(*kibashipv1.Application), reason, reported string) {
		p := kibashiptest.Ready(ctx)
		a := kibashiptest.Application(ctx, p.Name, "bad", modify)
		expect.Settles(ctx, a, kibashipv1.ApplicationFailed)
		expect.Shows(ctx, a, kibashipv1.ConditionReady, metav1.ConditionFalse, reason)
		Expect(a.Status.Message).To(ContainSubstring(reported))
		expect.Deleted(ctx, a)
	},
		Entry("an image that is none", func(a *kibashipv1.Application) { a.Spec.DockerImage.Image = "Team/app" }, kibashipv1.ReasonInvalidSpec, "spec.dockerImage.image"),
		Entry("a type that is not enabled", func(a *kibashipv1.Application) {
			a.Spec.Type, a.Spec.PostgresCluster = kibashipv1.TypePostgresCluster, &kibashipv1.DatabaseCluster{Replicas: 3}
		}, kibashipv1.ReasonTypeDisabled, "postgresCluster.enabled"),
		Entry("a pattern that is not closed", func(a *kibashipv1.Application) {
			kibashiptest.Public(a)
			a.Spec.GitRepository.AutoBuild = &kibashipv1.AutoBuild{Branches: []string{"a[b"}}
		}, kibashipv1.ReasonInvalidSpec, "spec.gitRepository.autoBuild.branches"),
		Entry("another namespace", func(a *kibashipv1.Application) { a.Namespace = "default" }, kibashipv1.ReasonWrongNamespace, "metadata.namespace"),
	)
})
