package operator

import (
	"context"
	"net/http"
	"os"
	"slices"
	"strings"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	slim "github.com/cilium/cilium/pkg/k8s/slim/k8s/apis/meta/v1"
	"github.com/cilium/cilium/pkg/policy/api"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/settings"
	"github.com/bergctf/berg-operator/internal/operator"
	"github.com/bergctf/berg-operator/internal/tunnel/network"
	"github.com/bergctf/berg-operator/test/cluster/pki"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/hexactftest"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/tunneltest"
)

// fence is the name of the policy of config/fence, which the API server tells those that it refuses.
const fence = "berg-operator-fence"

// deploymentIn is what an attacker would like to run.
func deploymentIn(namespace string, change ...func(*appsv1.Deployment)) *appsv1.Deployment {
	labels := map[string]string{"app": "attacker"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "attacker", Labels: map[string]string{}},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
			},
		},
	}
	for _, c := range change {
		c(d)
	}
	return d
}

// ofProxy returns a pod as the operator makes those of tunnels.
func ofProxy(namespace string, change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "proxy", Labels: map[string]string{tunnelv1.LabelManagedBy: tunnelv1.ManagedBy}},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: ptr.To(false),
			SecurityContext:              &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{Name: "a", Image: "registry.example.com/a:1", SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}}},
			Volumes: []corev1.Volume{{Name: "tls", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "proxy"}}}},
		},
	}
	change(pod)
	return pod
}

func ofChallenge(d *appsv1.Deployment) { d.Labels[hexactfv1.LabelManagedBy] = hexactfv1.ManagedBy }

func bindingIn(namespace, role string, subject rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "attacker"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{subject},
	}
}

// tokenIn is a Secret in which Kubernetes puts the token of an account.
func tokenIn(namespace string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
}

var (
	itself   = rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: installed.Namespace, Name: installed.Account}
	attacker = rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "attacker"}
)

// A stolen token of the operator. Every attempt has rights of RBAC, and is a dry run, which admission judges as any other.
var _ = Describe("With the operator's token", Ordered, Label("versions"), func() {
	var (
		stolen  client.Client
		tenant  string
		foreign *corev1.Namespace
		// instance is a namespace as one of an instance.
		instance string
	)

	BeforeAll(func(ctx context.Context) {
		stolen, tenant = apiserver.As(apiserver.OperatorUser), apiserver.Namespace(ctx)
		foreign = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}}
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(foreign), foreign)).To(Succeed())
		for _, o := range []client.Object{
			deploymentIn(tenant),
			bindingIn(tenant, network.Role, attacker),
			&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "attacked"},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "registry.example.com/a:1"}}},
			},
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "builder"}},
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "attacked"}},
			&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "attacked"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
			&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "attacked"}},
			&gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "attacked"}},
			&ciliumv2.CiliumNetworkPolicy{
				ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "attacked"},
				Spec:       &api.Rule{EndpointSelector: api.EndpointSelector{LabelSelector: &slim.LabelSelector{}}, Ingress: []api.IngressRule{{}}},
			},
			webhooks(),
		} {
			apiserver.Create(ctx, o)
		}
		instance = "challenge-" + tenant
		apiserver.LabelNamespace(ctx, tenant, hexactftest.LabelOperator, "allowed")
		apiserver.LabelNamespace(ctx, tenant, tunneltest.LabelOperator, "allowed")
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(foreign), foreign)).To(Succeed())
		own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: instance}}
		Expect(k8s.Create(ctx, own)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			expect.Deleted(ctx, own)
		})
		// As in a namespace that a ContainerNetwork names, and with config/tunnel/host.
		for _, namespace := range []string{tenant, installed.Namespace} {
			own := bindingIn(namespace, network.Role, itself)
			own.Name = "stolen"
			apiserver.Create(ctx, own)
			Eventually(func() bool {
				return apiserver.May(ctx, apiserver.OperatorUser, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Resource: "pods"})
			}).Should(BeTrue())
		}
		// The API server takes a moment before it follows a policy.
		Eventually(func(ctx context.Context) error { return stolen.Delete(ctx, foreign, client.DryRunAll) }).WithContext(ctx).
			Should(MatchError(ContainSubstring(fence)))
	})

	refused := func(err error) {
		GinkgoHelper()
		Expect(err).To(MatchError(apierrors.IsForbidden, "IsForbidden"))
		Expect(err).To(MatchError(ContainSubstring(fence)), "refused, but not by the policy")
	}
	deletion := func(o client.Object) func(context.Context) error {
		return func(ctx context.Context) error {
			o.SetNamespace(tenant)
			return stolen.Delete(ctx, o, client.DryRunAll)
		}
	}
	marked := func(change func(*corev1.Namespace)) *corev1.Namespace {
		ns := foreign.DeepCopy()
		change(ns)
		return ns
	}

	DescribeTable("a namespace of others is not", func(ctx context.Context, attempt func(context.Context) error) { refused(attempt(ctx)) },
		Entry("deleted", func(ctx context.Context) error { return stolen.Delete(ctx, foreign, client.DryRunAll) }),
		Entry("marked as an environment", func(ctx context.Context) error {
			return stolen.Update(ctx, marked(func(ns *corev1.Namespace) { ns.Labels["quix.io/managed-by"] = "quix-environment-operator" }), client.DryRunAll)
		}),
		Entry("marked as a network", func(ctx context.Context) error {
			return stolen.Update(ctx, marked(func(ns *corev1.Namespace) {
				ns.OwnerReferences = []metav1.OwnerReference{{APIVersion: "usvc-dev.developer.microsoft.com/v1", Kind: "ContainerNetwork", Name: "a", UID: "a"}}
			}), client.DryRunAll)
		}),
		Entry("created", func(ctx context.Context) error {
			return stolen.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "attacker"}}, client.DryRunAll)
		}),
	)

	DescribeTable("in a namespace of others", func(ctx context.Context, attempt func(context.Context) error) { refused(attempt(ctx)) },
		Entry("no pod runs", func(ctx context.Context) error {
			return stolen.Create(ctx, deploymentIn(foreign.Name, func(d *appsv1.Deployment) { d.Name = "other" }), client.DryRunAll)
		}),
		Entry("no Deployment is changed to one of a challenge", func(ctx context.Context) error {
			d := apiserver.Get[appsv1.Deployment](ctx, client.ObjectKey{Namespace: tenant, Name: "attacker"})
			d.Labels, d.ResourceVersion = map[string]string{}, "" // the Deployment controller has written since
			ofChallenge(d)
			return stolen.Update(ctx, d, client.DryRunAll)
		}),
		Entry("no pod of a challenge uses an account", func(ctx context.Context) error {
			return stolen.Create(ctx, deploymentIn(tenant, ofChallenge, func(d *appsv1.Deployment) {
				d.Name, d.Spec.Template.Spec.ServiceAccountName = "other", "builder"
			}), client.DryRunAll)
		}),
		Entry("no pod of a challenge mounts a Secret", func(ctx context.Context) error {
			return stolen.Create(ctx, deploymentIn(tenant, ofChallenge, func(d *appsv1.Deployment) {
				d.Name = "other"
				d.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "a", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "a"}}}}
			}), client.DryRunAll)
		}),
		Entry("no pod of a challenge is in the network of its node", func(ctx context.Context) error {
			return stolen.Create(ctx, deploymentIn(tenant, ofChallenge, func(d *appsv1.Deployment) {
				d.Name, d.Spec.Template.Spec.HostNetwork = "other", true
			}), client.DryRunAll)
		}),
		Entry("no Deployment is deleted", deletion(deploymentIn(""))),
		Entry("no pod is deleted", deletion(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "attacked"}})),
		Entry("no ConfigMap is deleted", deletion(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "attacked"}})),
		Entry("no Service is deleted", deletion(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "attacked"}})),
		Entry("no policy is deleted", deletion(&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "attacked"}})),
		Entry("no route is deleted", deletion(&gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Name: "attacked"}})),
		Entry("no policy of Cilium is deleted", deletion(&ciliumv2.CiliumNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "attacked"}})),
		Entry("no route gets the label of instances", func(ctx context.Context) error {
			r := apiserver.Get[gatewayv1.HTTPRoute](ctx, client.ObjectKey{Namespace: tenant, Name: "attacked"})
			r.Labels = map[string]string{bergv1.LabelManagedBy: bergv1.ManagedBy}
			return stolen.Update(ctx, r, client.DryRunAll)
		}),
		Entry("no Secret is created", func(ctx context.Context) error {
			return stolen.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "a"}}, client.DryRunAll)
		}),
		Entry("no right is taken away", func(ctx context.Context) error {
			return stolen.Delete(ctx, bindingIn(tenant, network.Role, attacker), client.DryRunAll)
		}),
		Entry("no right on a network is given to others", func(ctx context.Context) error {
			b := bindingIn(tenant, network.Role, attacker)
			b.Name = "other"
			return stolen.Create(ctx, b, client.DryRunAll)
		}),
	)

	DescribeTable("where it may make pods of tunnels, no pod", func(ctx context.Context, change func(*corev1.Pod)) {
		refused(stolen.Create(ctx, ofProxy(tenant, change), client.DryRunAll))
	},
		Entry("is another one", func(p *corev1.Pod) { p.Labels = nil }),
		Entry("has an account", func(p *corev1.Pod) { p.Spec.ServiceAccountName = "builder" }),
		Entry("is in the network of its node", func(p *corev1.Pod) { p.Spec.HostNetwork = true }),
		Entry("sees the processes of its node", func(p *corev1.Pod) { p.Spec.HostPID = true }),
		Entry("mounts files of its node", func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "root", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}})
		}),
		Entry("mounts data of others", func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}})
		}),
		Entry("is privileged", func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		}),
		Entry("is privileged before it starts", func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "b", Image: "registry.example.com/a:1", SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)}}}
		}),
	)

	DescribeTable("in a namespace of an instance, too", func(ctx context.Context, attempt func(context.Context, string) error) {
		Expect(stolen.Create(ctx, deploymentIn(instance), client.DryRunAll)).To(Succeed())
		refused(attempt(ctx, instance))
	},
		Entry("no pod mounts files of its node", func(ctx context.Context, ns string) error {
			return stolen.Create(ctx, deploymentIn(ns, func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "root", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
			}), client.DryRunAll)
		}),
		Entry("no pod is privileged", func(ctx context.Context, ns string) error {
			return stolen.Create(ctx, deploymentIn(ns, func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
			}), client.DryRunAll)
		}),
		Entry("no Secret gets the token of an account", func(ctx context.Context, ns string) error {
			return stolen.Create(ctx, tokenIn(ns), client.DryRunAll)
		}),
		Entry("no Service takes the traffic of others", func(ctx context.Context, ns string) error {
			return stolen.Create(ctx, &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "greedy"},
				Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}, ExternalIPs: []string{"192.0.2.1"}},
			}, client.DryRunAll)
		}),
	)

	It("in a namespace of an instance it changes no pod but its labels and annotations", func(ctx context.Context) {
		// As in the namespace of a prepared instance.
		meta := metav1.ObjectMeta{Namespace: instance, Name: "stolen"}
		apiserver.Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"patch"}}}})
		apiserver.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "stolen"}, Subjects: []rbacv1.Subject{itself}})
		pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "registry.example.com/a:1"}}}}
		apiserver.Create(ctx, pod)
		change := func(patch string) error {
			return stolen.Patch(ctx, pod.DeepCopy(), apiserver.RawPatch(patch), client.DryRunAll)
		}
		Eventually(func() error { return change(`{"metadata": {"annotations": {"a": "b"}}}`) }).WithContext(ctx).Should(Succeed())
		refused(change(`[{"op": "replace", "path": "/spec/containers/0/image", "value": "registry.example.com/b:1"}]`))
		refused(change(`[{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}]`))
	})

	It("no Secret of a tunnel gets the token of an account", func(ctx context.Context) {
		token := tokenIn(tenant)
		token.Labels = map[string]string{tunnelv1.LabelManagedBy: tunnelv1.ManagedBy}
		refused(stolen.Create(ctx, token, client.DryRunAll))
	})

	It("in its own namespace it runs only pods of tunnels", func(ctx context.Context) {
		refused(stolen.Create(ctx, deploymentIn(installed.Namespace), client.DryRunAll))
		refused(stolen.Create(ctx, ofProxy(installed.Namespace, func(p *corev1.Pod) { p.Spec.ServiceAccountName = installed.Account }), client.DryRunAll))
	})

	It("it writes no settings of the programs", func(ctx context.Context) {
		own := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: installed.Namespace, Name: settings.ConfigMap}}
		refused(stolen.Create(ctx, own, client.DryRunAll))
	})

	It("no pod runs in kube-system, not even one of a challenge", func(ctx context.Context) {
		refused(stolen.Create(ctx, deploymentIn(metav1.NamespaceSystem, ofChallenge), client.DryRunAll))
	})

	It("no role that the operator may bind can be bound in kube-system", func(ctx context.Context) {
		roles := bindable(ctx)
		Expect(len(roles)).To(BeNumerically(">=", 4), "%v", roles)
		for _, role := range roles {
			refused(stolen.Create(ctx, bindingIn(metav1.NamespaceSystem, role, itself), client.DryRunAll))
		}
	})

	DescribeTable("of its webhook configuration", func(ctx context.Context, change func(*admissionregistrationv1.ValidatingWebhookConfiguration), allowed bool) {
		live := apiserver.Get[admissionregistrationv1.ValidatingWebhookConfiguration](ctx, client.ObjectKey{Name: operator.WebhookConfiguration})
		changed := live.DeepCopy()
		change(changed)
		err := stolen.Patch(ctx, changed, client.MergeFrom(live), client.DryRunAll)
		if allowed {
			Expect(err).NotTo(HaveOccurred())
			return
		}
		refused(err)
	},
		Entry("the authority changes", func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			authority, err := pki.NewAuthority("fence")
			Expect(err).NotTo(HaveOccurred())
			c.Webhooks[0].ClientConfig.CABundle = pki.Encode("CERTIFICATE", authority.Certificate.Raw)
		}, true),
		Entry("the address does not", func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].ClientConfig.Service, c.Webhooks[0].ClientConfig.URL = nil, ptr.To("https://attacker.example/")
		}, false),
		Entry("the service does not", func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].ClientConfig.Service.Namespace = tenant
		}, false),
		Entry("the objects do not", func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].Rules[0].APIGroups, c.Webhooks[0].Rules[0].Resources = []string{""}, []string{"secrets"}
		}, false),
		Entry("the selector does not", func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}, false),
		Entry("the failure policy does not", func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].FailurePolicy = ptr.To(admissionregistrationv1.Ignore)
		}, false),
		Entry("no owner has it deleted", func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "gone", UID: "gone"}}
		}, false),
		Entry("no other program gets it by an annotation", func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Annotations = map[string]string{"cert-manager.io/inject-ca-from": "attacker/ca"}
		}, false),
		Entry("no webhook is added", func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			other := c.Webhooks[0].DeepCopy()
			other.Name = "other.attacker.example"
			c.Webhooks = append(c.Webhooks, *other)
		}, false),
	)

	It("what the operator does itself is allowed", func(ctx context.Context) {
		Expect(stolen.Create(ctx, namespaceNamed("challenge-fence", levelLabel, "baseline"), client.DryRunAll)).To(Succeed())
		own := bindingIn(tenant, network.Role, itself)
		own.Name = "other"
		Expect(stolen.Create(ctx, own, client.DryRunAll)).To(Succeed())
		Expect(stolen.Create(ctx, deploymentIn(tenant, ofChallenge, func(d *appsv1.Deployment) {
			d.Name, d.Spec.Template.Spec.AutomountServiceAccountToken = "other", ptr.To(false)
		}), client.DryRunAll)).To(Succeed())
		Expect(stolen.Create(ctx, ofProxy(tenant, func(*corev1.Pod) {}), client.DryRunAll)).To(Succeed())
	})

	It("others are not concerned", func(ctx context.Context) {
		Expect(k8s.Update(ctx, marked(func(ns *corev1.Namespace) { ns.Labels["a"] = "b" }), client.DryRunAll)).To(Succeed())
	})
})

var _ = Describe("An operator of challenge instances alone", Serial, Label("versions"), func() {
	It("binds no role: it works without the policies, and asks for none", func(ctx context.Context) {
		apiserver.RemovePolicy(ctx, fence)
		apiserver.RemovePolicy(ctx, fence+"-deletions")
		asked := bergtest.RequestsOfALife(ctx, map[string]string{"ENABLED_APIS": bergv1.GroupVersion.Group}, func(r *http.Request) bool {
			return strings.Contains(r.URL.Path, "/validatingadmissionpolic")
		})
		Expect(asked).To(BeZero())
	})
})

// Any user may name a PriorityClass in a pod, and pods of the operator's class push out those of players.
var _ = Describe("A pod with the operator's PriorityClass", Label("versions"), func() {
	const class = "berg-operator-controller-manager"

	pod := func(namespace, account string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "first"},
			Spec: corev1.PodSpec{
				PriorityClassName: class, ServiceAccountName: account,
				// Of both namespaces one enforces the level restricted.
				SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
				Containers: []corev1.Container{{Name: "a", Image: "registry.example.com/a:1", SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				}}},
			},
		}
	}

	It("is admitted of the operator's accounts alone", func(ctx context.Context) {
		tenant := apiserver.Namespace(ctx)
		Expect(client.IgnoreAlreadyExists(k8s.Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Value: 1000000}))).To(Succeed())
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: installed.Account}}
		Expect(k8s.Create(ctx, account)).To(Succeed())

		// The API server takes a moment before it follows a policy.
		Eventually(func(ctx context.Context) error { return k8s.Create(ctx, pod(tenant, ""), client.DryRunAll) }).WithContext(ctx).
			Should(And(MatchError(apierrors.IsForbidden, "IsForbidden"), MatchError(ContainSubstring("only pods of the operator may have its PriorityClass"))))
		By("an account that has only the name of the operator's")
		Expect(k8s.Create(ctx, pod(tenant, account.Name), client.DryRunAll)).To(MatchError(ContainSubstring("only pods of the operator")))
		By("another account in the operator's namespace")
		Expect(k8s.Create(ctx, pod(installed.Namespace, "default"), client.DryRunAll)).To(MatchError(ContainSubstring("only pods of the operator")))
		By("an administrator of a namespace cannot allow it to his own")
		admin := apiserver.As("tenant-admin")
		Expect(k8s.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "admin"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "tenant-admin"}},
		})).To(Succeed())
		granting := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "use"}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{schedulingv1.GroupName}, Resources: []string{"priorityclasses"}, ResourceNames: []string{class}, Verbs: []string{"use"},
		}}}
		Eventually(func() error { return admin.Create(ctx, granting.DeepCopy(), client.DryRunAll) }).Should(MatchError(ContainSubstring("not currently held")))

		By("an account with all rights in the namespace of a Project")
		project := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "project-" + tenant + "-ns-kibaship-com"}}
		Expect(k8s.Create(ctx, project)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			expect.Deleted(ctx, project)
		})
		all := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: project.Name, Name: "all"}}
		Expect(k8s.Create(ctx, all)).To(Succeed())
		Expect(k8s.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: project.Name, Name: "all"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: project.Name, Name: all.Name}},
		})).To(Succeed())
		use := authorizationv1.ResourceAttributes{Namespace: project.Name, Verb: "use", Group: schedulingv1.GroupName, Resource: "priorityclasses", Name: class}
		Eventually(func() bool { return apiserver.May(ctx, "system:serviceaccount:"+project.Name+":"+all.Name, use) }).Should(BeTrue())
		Expect(k8s.Create(ctx, pod(project.Name, all.Name), client.DryRunAll)).To(MatchError(ContainSubstring("only pods of the operator")))

		Expect(k8s.Create(ctx, pod(installed.Namespace, installed.Account), client.DryRunAll)).To(Succeed())
		without := pod(tenant, "")
		without.Spec.PriorityClassName = ""
		Expect(k8s.Create(ctx, without, client.DryRunAll)).To(Succeed())
	})
})

// webhooks has the name of the operator's configuration, and asks for objects that do not exist.
func webhooks() *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: operator.WebhookConfiguration},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:         "project.platform.operator.kibaship.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: installed.Namespace, Name: "berg-operator-webhook"}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"attacked.example"}, APIVersions: []string{"v1"}, Resources: []string{"things"}},
			}},
			MatchConditions:         []admissionregistrationv1.MatchCondition{{Name: "not-being-deleted", Expression: "!has(object.metadata.deletionTimestamp)"}},
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
}

// The Gateway of the samples accepts routes by a label.
var _ = Describe("With the policy of the sample Gateway", Label("versions"), func() {
	It("only the operator gives a namespace the label of instances", func(ctx context.Context) {
		tenant := apiserver.Namespace(ctx)
		text, err := os.ReadFile("../../../config/berg/samples/prerequisites/namespaces_policy.yaml")
		Expect(err).NotTo(HaveOccurred())
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			o := apiserver.Object(document)
			apiserver.Create(ctx, o)
		}
		ns := apiserver.Get[corev1.Namespace](ctx, client.ObjectKey{Name: tenant})
		label := func(c client.Client, name string) error {
			return c.Create(ctx, namespaceNamed(name, bergv1.LabelManagedBy, bergv1.ManagedBy, levelLabel, "baseline"), client.DryRunAll)
		}
		Eventually(func() error { return label(k8s, "challenge-tenant") }).Should(MatchError(ContainSubstring("only the operator")))
		ns.Labels[bergv1.LabelManagedBy] = bergv1.ManagedBy
		Expect(k8s.Update(ctx, ns, client.DryRunAll)).To(MatchError(ContainSubstring("only the operator")))
		ns.Labels[bergv1.LabelManagedBy] = "Helm"
		Expect(k8s.Update(ctx, ns, client.DryRunAll)).To(Succeed())
		Expect(label(apiserver.As(apiserver.OperatorUser), "challenge-operator")).To(Succeed())

		By("by a subresource, which takes labels too")
		Expect(k8s.Get(ctx, client.ObjectKey{Name: tenant}, ns)).To(Succeed())
		ns.Labels[bergv1.LabelManagedBy] = bergv1.ManagedBy
		Expect(k8s.Status().Update(ctx, ns.DeepCopy(), client.DryRunAll)).To(MatchError(ContainSubstring("only the operator")))
		Expect(k8s.SubResource("finalize").Update(ctx, ns.DeepCopy(), client.DryRunAll)).To(MatchError(ContainSubstring("only the operator")))
	})
})

// bindable are the ClusterRoles that the operator may bind.
func bindable(ctx context.Context) (names []string) {
	GinkgoHelper()
	roles := apiserver.List[rbacv1.ClusterRoleList](ctx)
	for _, role := range roles.Items {
		if !strings.HasPrefix(role.Name, "berg-operator-") {
			continue
		}
		for _, rule := range role.Rules {
			if slices.Contains(rule.Verbs, "bind") && slices.Contains(rule.Resources, "clusterroles") {
				Expect(rule.ResourceNames).NotTo(BeEmpty(), "%s may bind every role", role.Name)
				names = append(names, rule.ResourceNames...)
			}
		}
	}
	return names
}

// Whichever account creates them: Kubernetes has no level by default, and an administrator may choose one.
var _ = Describe("A pod in the operator's namespace", Serial, Label("versions"), func() {
	pod := func(change func(*corev1.PodSpec)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: installed.Namespace, Name: "other"}, Spec: corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{Name: "a", Image: "registry.example.com/a:1", SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}}},
		}}
		change(&p.Spec)
		return p
	}
	first := func(p *corev1.PodSpec) *corev1.SecurityContext { return p.Containers[0].SecurityContext }

	DescribeTable("has no right on its node, until an administrator chooses a level", func(ctx context.Context, change func(*corev1.PodSpec)) {
		create := func(ctx context.Context, change func(*corev1.PodSpec)) error {
			return k8s.Create(ctx, pod(change), client.DryRunAll)
		}
		Expect(create(ctx, func(*corev1.PodSpec) {})).To(Succeed())
		Expect(create(ctx, change)).To(And(MatchError(apierrors.IsForbidden, "IsForbidden"), MatchError(ContainSubstring("pod-security.kubernetes.io/enforce"))))

		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: installed.Namespace}}
		level := func(value string) client.Patch {
			return apiserver.RawPatch(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":` + value + `}}}`)
		}
		Expect(k8s.Patch(ctx, namespace, level(`"privileged"`))).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(k8s.Patch(ctx, namespace, level("null"))).To(Succeed()) })
		Eventually(create).WithContext(ctx).WithArguments(change).Should(Succeed())
	},
		Entry("privileged", func(p *corev1.PodSpec) { first(p).Privileged, first(p).AllowPrivilegeEscalation = ptr.To(true), nil }),
		Entry("with a capability", func(p *corev1.PodSpec) { first(p).Capabilities.Add = []corev1.Capability{"SYS_ADMIN"} }),
		Entry("with system calls of any kind", func(p *corev1.PodSpec) { p.SecurityContext.SeccompProfile.Type = corev1.SeccompProfileTypeUnconfined }),
		Entry("with system calls of any kind in one container", func(p *corev1.PodSpec) {
			first(p).SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
		}),
		Entry("without AppArmor", func(p *corev1.PodSpec) {
			first(p).AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
		}),
		Entry("with a type of SELinux", func(p *corev1.PodSpec) { first(p).SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"} }),
		Entry("with a sysctl", func(p *corev1.PodSpec) {
			p.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "net.ipv4.ip_forward", Value: "1"}}
		}),
		Entry("in the network of its node", func(p *corev1.PodSpec) { p.HostNetwork = true }),
		Entry("with the processes of its node", func(p *corev1.PodSpec) { p.HostPID = true }),
		Entry("with files of its node", func(p *corev1.PodSpec) {
			p.Volumes = []corev1.Volume{{Name: "node", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		}),
		Entry("with an init container that is privileged", func(p *corev1.PodSpec) {
			p.InitContainers = []corev1.Container{{Name: "i", Image: "registry.example.com/i:1", SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)}}}
		}),
	)

	// OLM and operator-sdk make such pods for their catalogs.
	It("may run as root without a security context", func(ctx context.Context) {
		Expect(k8s.Create(ctx, pod(func(p *corev1.PodSpec) {
			p.SecurityContext, p.Containers[0].SecurityContext = nil, nil
		}), client.DryRunAll)).To(Succeed())
	})
})
