package operator

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/tunnel/network"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/hexactftest"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/tunneltest"
)

const levelLabel = "pod-security.kubernetes.io/enforce"

// namespaceNamed returns a namespace with labels, given as names and values.
func namespaceNamed(name string, labels ...string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for i := 0; i < len(labels); i += 2 {
		ns.Labels[labels[i]] = labels[i+1]
	}
	return ns
}

// thief has the rights of an installation with some API groups, and no other, by a ServiceAccount with the name of the operator's.
type thief struct {
	client.Client

	namespace, user string
	subject         rbacv1.Subject
}

func stealToken(ctx context.Context, groups ...string) thief {
	GinkgoHelper()
	ns := apiserver.Namespace(ctx)
	t := thief{
		namespace: ns, user: "system:serviceaccount:" + ns + ":" + installed.Account,
		subject: rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: installed.Account},
	}
	for _, group := range groups {
		t.grant(ctx, "berg-operator-"+group)
	}
	t.Client = apiserver.As(t.user)
	return t
}

// grant gives it a ClusterRole in the whole cluster, and waits until its rights are in effect.
func (t thief) grant(ctx context.Context, role string) {
	GinkgoHelper()
	apiserver.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: t.namespace + "-" + role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{t.subject},
	})
	for _, rule := range apiserver.Get[rbacv1.ClusterRole](ctx, client.ObjectKey{Name: role}).Rules {
		right := authorizationv1.ResourceAttributes{Verb: rule.Verbs[0], Group: rule.APIGroups[0]}
		right.Resource, right.Subresource, _ = strings.Cut(rule.Resources[0], "/")
		if len(rule.ResourceNames) > 0 {
			right.Name = rule.ResourceNames[0]
		}
		Eventually(func() bool { return apiserver.May(ctx, t.user, right) }).Should(BeTrue(), "%v", right)
	}
}

// exempt grants it an exemption from the policy, as an administrator does together with a setting.
func (t thief) exempt(ctx context.Context, exemption string) {
	GinkgoHelper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: t.namespace + "-" + exemption},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"fence.berg.norelect.ch"}, Resources: []string{"exemptions"}, ResourceNames: []string{exemption}, Verbs: []string{"use"},
		}},
	}
	apiserver.Create(ctx, role)
	t.grant(ctx, role.Name)
}

// try is a dry run of a creation, which admission judges as any other.
func (t thief) try(ctx context.Context, o client.Object) error {
	return t.Create(ctx, o, client.DryRunAll)
}

func refusedByFence(err error) {
	GinkgoHelper()
	ExpectWithOffset(1, err).To(MatchError(apierrors.IsForbidden, "IsForbidden"))
	ExpectWithOffset(1, err).To(MatchError(ContainSubstring(fence)), "refused, but not by the policy")
}

// createNamespace creates a namespace for the time of a spec.
func createNamespace(ctx context.Context, ns *corev1.Namespace) string {
	GinkgoHelper()
	apiserver.Create(ctx, ns)
	return ns.Name
}

func labelled(meta *metav1.ObjectMeta) {
	for label, value := range map[string]string{hexactfv1.LabelManagedBy: hexactfv1.ManagedBy, tunnelv1.LabelManagedBy: tunnelv1.ManagedBy} {
		metav1.SetMetaDataLabel(meta, label, value)
	}
}

// attemptsIn are what an attacker would like to write in a namespace, with the labels of every API group.
func attemptsIn(namespace string) []client.Object {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "attempt"}
	labelled(&meta)
	pod := deploymentIn(namespace, ofChallenge)
	labelled(&pod.ObjectMeta)
	privileged := pod.DeepCopy()
	privileged.Spec.Template.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	return []client.Object{
		pod, privileged,
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80}}}},
		&networkingv1.NetworkPolicy{ObjectMeta: meta, Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{}}}},
		&corev1.Secret{ObjectMeta: meta},
		&corev1.ConfigMap{ObjectMeta: meta},
	}
}

// An installation has the rights of some API groups. What the policy allows for another one, its token must not use.
var _ = Describe("With the token of an installation", Label("versions"), func() {
	everywhere := func(ctx context.Context) []string {
		id := strings.TrimPrefix(apiserver.Namespace(ctx), apiserver.NamespacePrefix)
		allowed := apiserver.Namespace(ctx)
		apiserver.LabelNamespace(ctx, allowed, hexactftest.LabelOperator, "allowed")
		apiserver.LabelNamespace(ctx, allowed, tunneltest.LabelOperator, "allowed")
		return []string{
			allowed, createNamespace(ctx, namespaceNamed("project-"+id+"-ns-kibaship-com")),
			createNamespace(ctx, namespaceNamed("environment-"+id, quixv1.LabelManagedBy, quixv1.ManagedBy)),
			createNamespace(ctx, namespaceNamed("network-"+id, tunnelv1.LabelManagedBy, tunnelv1.ManagedBy)),
		}
	}

	It("of Berg alone nothing is written as another API group would", func(ctx context.Context) {
		t := stealToken(ctx, "berg")
		for _, namespace := range append(everywhere(ctx), apiserver.Namespace(ctx)) {
			for _, o := range attemptsIn(namespace) {
				By(namespace)
				refusedByFence(t.try(ctx, o))
			}
		}
		for _, ns := range []*corev1.Namespace{
			namespaceNamed("project-fence-ns-kibaship-com", levelLabel, "restricted"),
			namespaceNamed("fence", quixv1.LabelManagedBy, quixv1.ManagedBy),
			namespaceNamed("fence", tunnelv1.LabelManagedBy, tunnelv1.ManagedBy),
		} {
			refusedByFence(t.try(ctx, ns))
		}
		By("what Berg needs")
		Expect(t.try(ctx, deploymentIn(createNamespace(ctx, namespaceNamed("challenge-"+t.namespace))))).To(Succeed())
		Expect(t.try(ctx, namespaceNamed("challenge-fence", levelLabel, "baseline"))).To(Succeed())
	})

	It("of HexaCTF alone challenges are created where an administrator allows them, and nothing else", func(ctx context.Context) {
		t := stealToken(ctx, "hexactf")
		refusedByFence(t.try(ctx, deploymentIn(createNamespace(ctx, namespaceNamed("challenge-"+t.namespace)), ofChallenge)))
		tenant := apiserver.Namespace(ctx)
		err := t.try(ctx, deploymentIn(tenant, ofChallenge))
		refusedByFence(err)
		Expect(err).To(MatchError(ContainSubstring("kubectl label namespace " + tenant + " apps.hexactf.io/operator=allowed")))
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "database", Labels: map[string]string{hexactfv1.LabelManagedBy: hexactfv1.ManagedBy}}}
		service.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 5432}}}
		refusedByFence(t.try(ctx, service))

		apiserver.LabelNamespace(ctx, tenant, hexactftest.LabelOperator, "allowed")
		Eventually(func() error { return t.try(ctx, deploymentIn(tenant, ofChallenge)) }).Should(Succeed())
		Expect(t.try(ctx, service)).To(Succeed())
		refusedByFence(t.try(ctx, deploymentIn(tenant)))

		By("an existing challenge is changed, as when it ends, also after the label is gone")
		existing := deploymentIn(tenant, ofChallenge, func(d *appsv1.Deployment) { d.Name, d.Spec.Replicas = "existing", ptr.To[int32](0) })
		apiserver.Create(ctx, existing)
		apiserver.LabelNamespace(ctx, tenant, hexactftest.LabelOperator, "forbidden")
		Eventually(func() error { return t.try(ctx, deploymentIn(tenant, ofChallenge)) }).Should(MatchError(ContainSubstring(fence)))
		Eventually(func(ctx context.Context) error {
			live := apiserver.Get[appsv1.Deployment](ctx, client.ObjectKeyFromObject(existing))
			live.Spec.Paused = true
			return t.Update(ctx, live, client.DryRunAll)
		}).WithContext(ctx).Should(Succeed())
	})

	It("of HexaCTF alone pods are held to the settings", func(ctx context.Context) {
		t := stealToken(ctx, "hexactf")
		tenant := hexactftest.Namespace(ctx)
		for name, change := range podsWithMore {
			By(name)
			refusedByFence(t.try(ctx, deploymentIn(tenant, ofChallenge, change)))
		}
		fromSecret := deploymentIn(tenant, ofChallenge, container(func(c *corev1.Container) {
			c.Env = []corev1.EnvVar{{Name: "KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "a"}}}}
			c.Env[0].ValueFrom.SecretKeyRef.Name = "stolen"
		}))
		allFromSecret := deploymentIn(tenant, ofChallenge, container(func(c *corev1.Container) {
			c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "stolen"}}}}
		}))
		refusedByFence(t.try(ctx, fromSecret.DeepCopy()))
		refusedByFence(t.try(ctx, allFromSecret.DeepCopy()))
		Expect(t.try(ctx, deploymentIn(tenant, ofChallenge, adding("NET_ADMIN")))).To(Succeed())

		By("with HEXACTF_TRUSTED_AUTHORS")
		t.exempt(ctx, "hexactf-trusted-authors")
		Expect(t.try(ctx, fromSecret)).To(Succeed())
		Expect(t.try(ctx, allFromSecret)).To(Succeed())
		Expect(t.try(ctx, deploymentIn(tenant, ofChallenge, podsWithMore["a privileged container"]))).To(Succeed())
		refusedByFence(t.try(ctx, deploymentIn(tenant, ofChallenge, func(d *appsv1.Deployment) { d.Spec.Template.Spec.HostNetwork = true })))
		refusedByFence(t.try(ctx, deploymentIn(tenant, ofChallenge, func(d *appsv1.Deployment) { d.Spec.Template.Spec.ServiceAccountName = "builder" })))
	})

	It("of tunnels alone it works where an administrator allows it, and gives rights to itself only", func(ctx context.Context) {
		t := stealToken(ctx, "tunnel")
		tenant := apiserver.Namespace(ctx)
		err := t.try(ctx, bindingIn(tenant, network.Role, t.subject))
		refusedByFence(err)
		Expect(err).To(MatchError(ContainSubstring("kubectl label namespace " + tenant + " usvc-dev.developer.microsoft.com/operator=allowed")))
		apiserver.LabelNamespace(ctx, tenant, tunneltest.LabelOperator, "allowed")
		Eventually(func() error { return t.try(ctx, bindingIn(tenant, network.Role, t.subject)) }).Should(Succeed())
		refusedByFence(t.try(ctx, bindingIn(tenant, network.Role, attacker)))
		own := createNamespace(ctx, namespaceNamed("network-"+t.namespace, tunnelv1.LabelManagedBy, tunnelv1.ManagedBy))
		Expect(t.try(ctx, bindingIn(own, network.Role, t.subject))).To(Succeed())
		refusedByFence(t.try(ctx, bindingIn(own, network.Role, defaultAccount(own))))
		refusedByFence(t.try(ctx, bindingIn(apiserver.Namespace(ctx), network.Role, t.subject)))
	})

	It("of Quix alone the platform gets its role in environments, and no other account", func(ctx context.Context) {
		t := stealToken(ctx, "quix", "kibaship")
		environment := createNamespace(ctx, namespaceNamed("environment-"+t.namespace, quixv1.LabelManagedBy, quixv1.ManagedBy))
		const role = "quix-platform-account-role"
		platform := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "quix-environment", Name: "quix-platform-account"}
		Expect(t.try(ctx, bindingIn(environment, role, platform))).To(Succeed())
		for _, other := range []rbacv1.Subject{defaultAccount("default"), defaultAccount(environment), attacker, everybody, t.subject} {
			refusedByFence(t.try(ctx, bindingIn(environment, role, other)))
		}
		refusedByFence(t.try(ctx, bindingIn(environment, "kibaship-project-admin", platform)))
		refusedByFence(t.try(ctx, bindingIn(apiserver.Namespace(ctx), role, platform)))

		By("with SERVICE_ACCOUNT_NAME: the account that may create Environments")
		other := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: t.namespace, Name: "platform"}
		refusedByFence(t.try(ctx, bindingIn(environment, role, other)))
		apiserver.Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: t.namespace + "-platform"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "quix-platform-account-role-env"},
			Subjects:   []rbacv1.Subject{other},
		})
		Eventually(func() error { return t.try(ctx, bindingIn(environment, role, other)) }).Should(Succeed())

		By("a subject that an administrator added stays")
		kept := bindingIn(environment, role, attacker)
		apiserver.Create(ctx, kept)
		kept.Subjects = append(kept.Subjects, platform)
		Expect(t.Update(ctx, kept.DeepCopy(), client.DryRunAll)).To(Succeed())
		kept.Subjects = append(kept.Subjects, everybody)
		refusedByFence(t.Update(ctx, kept, client.DryRunAll))
	})

	It("of KibaShip alone a Project's account gets the Project's rights, and no other account", func(ctx context.Context) {
		t := stealToken(ctx, "kibaship")
		name := strings.TrimPrefix(t.namespace, apiserver.NamespacePrefix)
		project := createNamespace(ctx, namespaceNamed("project-"+name+"-ns-kibaship-com"))
		apiserver.Create(ctx, bindingIn(project, "cluster-admin", t.subject)) // as by PROJECT_ADMIN_CLUSTER_ROLE
		Eventually(func() bool {
			return apiserver.May(ctx, t.user, authorizationv1.ResourceAttributes{Namespace: project, Verb: "create", Group: "apps", Resource: "statefulsets"})
		}).Should(BeTrue())
		bind := func(kind, role string, subject rbacv1.Subject) error {
			b := bindingIn(project, role, subject)
			b.Name, b.RoleRef.Kind = "other", kind
			return t.try(ctx, b)
		}
		own := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: project, Name: "project-" + name + "-sa-kibaship-com"}
		Expect(bind("Role", "admin", own)).To(Succeed())
		Expect(bind("ClusterRole", "kibaship-project-admin", t.subject)).To(Succeed())
		ofAnother := own
		ofAnother.Namespace, ofAnother.Name = "project-other-ns-kibaship-com", "project-other-sa-kibaship-com"
		for _, other := range []rbacv1.Subject{defaultAccount(project), attacker, everybody, ofAnother} {
			refusedByFence(bind("Role", "admin", other))
			refusedByFence(bind("ClusterRole", "kibaship-project-admin", other))
		}
		refusedByFence(bind("ClusterRole", "kibaship-project-admin", own))

		By("ways to pods that the policy does not see")
		template := deploymentIn(project).Spec.Template
		meta := metav1.ObjectMeta{Namespace: project, Name: "other"}
		selector := &metav1.LabelSelector{MatchLabels: template.Labels}
		refusedByFence(t.try(ctx, &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: template}}))
		refusedByFence(t.try(ctx, &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}))
		refusedByFence(t.try(ctx, &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: template}}))
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: project, Name: own.Name}}
		apiserver.Create(ctx, account)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: project, Name: "attacked"}, Spec: template.Spec}
		apiserver.Create(ctx, pod)
		pod.ResourceVersion = "" // the scheduler writes the pod, too
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "b", Image: "a", SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)},
		}}}
		refusedByFence(t.SubResource("ephemeralcontainers").Update(ctx, pod, client.DryRunAll))
		refusedByFence(t.SubResource("token").Create(ctx, account, &authenticationv1.TokenRequest{}, client.DryRunAll))
		By("labels of its namespace, by a subresource")
		ns := apiserver.Get[corev1.Namespace](ctx, client.ObjectKey{Name: project})
		metav1.SetMetaDataLabel(&ns.ObjectMeta, "a", "b")
		Expect(t.Status().Update(ctx, ns, client.DryRunAll)).To(MatchError(ContainSubstring("ValidatingAdmissionPolicy")), "by which of two is not said")
	})

	It("of all API groups no account gets a role in the namespace of an instance", func(ctx context.Context) {
		t := stealToken(ctx, "berg", "quix", "hexactf", "tunnel", "kibaship")
		for _, prefix := range []string{"challenge-", "berg-check-", "berg-prepull-", "berg-isolation-check-"} {
			instance := createNamespace(ctx, namespaceNamed(prefix+t.namespace))
			for _, role := range bindable(ctx) {
				for _, subject := range []rbacv1.Subject{defaultAccount("default"), defaultAccount(instance), attacker, everybody} {
					refusedByFence(t.try(ctx, bindingIn(instance, role, subject)))
				}
			}
		}
	})

	It("of all API groups its namespaces have a Pod Security level, and no label of an administrator", func(ctx context.Context) {
		t := stealToken(ctx, "berg", "quix", "hexactf", "tunnel", "kibaship")
		for _, prefix := range []string{"challenge-", "berg-check-", "berg-prepull-", "berg-isolation-check-"} {
			refusedByFence(t.try(ctx, namespaceNamed(prefix+"fence")))
			Expect(t.try(ctx, namespaceNamed(prefix+"fence", levelLabel, "restricted"))).To(Succeed())
		}
		for _, label := range []string{hexactftest.LabelOperator, tunneltest.LabelOperator} {
			refusedByFence(t.try(ctx, namespaceNamed("challenge-fence", levelLabel, "baseline", label, "allowed")))
		}
		const project = "project-fence-ns-kibaship-com"
		Expect(t.try(ctx, namespaceNamed(project, levelLabel, "baseline"))).To(Succeed())
		refusedByFence(t.try(ctx, namespaceNamed(project)))
		refusedByFence(t.try(ctx, namespaceNamed(project, levelLabel, "privileged")))
		By("an existing Project that has more keeps it")
		privileged := namespaceNamed("project-"+strings.TrimPrefix(t.namespace, apiserver.NamespacePrefix)+"-ns-kibaship-com", levelLabel, "privileged")
		createNamespace(ctx, privileged)
		metav1.SetMetaDataLabel(&privileged.ObjectMeta, "a", "b")
		Expect(t.Update(ctx, privileged.DeepCopy(), client.DryRunAll)).To(Succeed())
		delete(privileged.Labels, levelLabel)
		refusedByFence(t.Update(ctx, privileged, client.DryRunAll))
		By("with podSecurity: privileged")
		t.exempt(ctx, "kibaship-privileged")
		Expect(t.try(ctx, namespaceNamed(project, levelLabel, "privileged"))).To(Succeed())

		By("of instances, also when it is changed")
		live := namespaceNamed("challenge-"+t.namespace, levelLabel, "baseline")
		createNamespace(ctx, live)
		without := live.DeepCopy()
		delete(without.Labels, levelLabel)
		refusedByFence(t.Update(ctx, without, client.DryRunAll))
		metav1.SetMetaDataLabel(&live.ObjectMeta, hexactftest.LabelOperator, "allowed")
		refusedByFence(t.Update(ctx, live, client.DryRunAll))
	})

	It("of Berg alone pods of instances are held to the settings", func(ctx context.Context) {
		t := stealToken(ctx, "berg")
		instance := createNamespace(ctx, namespaceNamed("challenge-"+t.namespace, levelLabel, "privileged"))
		for name, change := range podsWithMore {
			By(name)
			refusedByFence(t.try(ctx, deploymentIn(instance, change)))
		}
		Expect(t.try(ctx, deploymentIn(instance, adding("NET_ADMIN", "SYS_PTRACE")))).To(Succeed())
		By("as a jail")
		jail := func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.HostUsers = ptr.To(false)
			container(func(c *corev1.Container) {
				c.SecurityContext = &corev1.SecurityContext{ProcMount: ptr.To(corev1.UnmaskedProcMount), SeccompProfile: &corev1.SeccompProfile{
					Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: ptr.To("berg-nested.json"),
				}}
			})(d)
		}
		Expect(t.try(ctx, deploymentIn(instance, jail))).To(Succeed())

		By("with more CHALLENGE_ALLOWED_CAPABILITIES, and CHALLENGE_SECCOMP_PROFILE")
		t.exempt(ctx, "capabilities")
		Expect(t.try(ctx, deploymentIn(instance, adding("SYS_ADMIN")))).To(Succeed())
		refusedByFence(t.try(ctx, deploymentIn(instance, podsWithMore["an unconfined pod"])))
		t.exempt(ctx, "seccomp-unconfined")
		Expect(t.try(ctx, deploymentIn(instance, podsWithMore["an unconfined pod"]))).To(Succeed())
		refusedByFence(t.try(ctx, deploymentIn(instance, podsWithMore["a privileged container"])))
	})
})

// everybody is a group, which no policy may admit.
var everybody = rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:authenticated"}

func defaultAccount(namespace string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "default"}
}

// container changes the container of a Deployment.
func container(change func(*corev1.Container)) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { change(&d.Spec.Template.Spec.Containers[0]) }
}

func confinedAs(change func(*corev1.SecurityContext)) func(*appsv1.Deployment) {
	return container(func(c *corev1.Container) {
		c.SecurityContext = &corev1.SecurityContext{}
		change(c.SecurityContext)
	})
}

func adding(capabilities ...corev1.Capability) func(*appsv1.Deployment) {
	return confinedAs(func(s *corev1.SecurityContext) { s.Capabilities = &corev1.Capabilities{Add: capabilities} })
}

// podsWithMore are ways of a pod to its node.
var podsWithMore = map[string]func(*appsv1.Deployment){
	"a privileged container": confinedAs(func(s *corev1.SecurityContext) { s.Privileged = ptr.To(true) }),
	"a privileged container that only initializes": func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "b", Image: "a", SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)}}}
	},
	"SYS_ADMIN":       adding("SYS_ADMIN"),
	"SYS_MODULE":      adding("NET_ADMIN", "SYS_MODULE"),
	"DAC_READ_SEARCH": adding("DAC_READ_SEARCH"),
	"ALL":             adding("ALL"),
	"an unconfined container": confinedAs(func(s *corev1.SecurityContext) {
		s.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
	}),
	"an unconfined pod": func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}}
	},
	"a profile of the node": confinedAs(func(s *corev1.SecurityContext) {
		s.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: ptr.To("berg-nested.json")}
	}),
	"AppArmor": confinedAs(func(s *corev1.SecurityContext) {
		s.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	}),
	"AppArmor of the pod": func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.SecurityContext = &corev1.PodSecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}}
	},
	"AppArmor by an annotation": func(d *appsv1.Deployment) {
		d.Spec.Template.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/a": "unconfined"}
	},
	"SELinux": confinedAs(func(s *corev1.SecurityContext) { s.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"} }),
	"a Windows host process": func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.HostNetwork = true
		confinedAs(func(s *corev1.SecurityContext) {
			s.WindowsOptions = &corev1.WindowsSecurityContextOptions{HostProcess: ptr.To(true)}
		})(d)
	},
	"a port of the node": container(func(c *corev1.Container) { c.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}} }),
	"a probe of another host": container(func(c *corev1.Container) {
		c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "169.254.169.254", Port: intstr.FromInt32(80)}}}
	}),
	"a hook of another host": container(func(c *corev1.Container) {
		c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Host: "169.254.169.254", Port: intstr.FromInt32(80)}}}
	}),
	"a node of its choice": func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeName = "control-plane" },
	"every node": func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	},
	"the network of the node":   func(d *appsv1.Deployment) { d.Spec.Template.Spec.HostNetwork = true },
	"the processes of the node": func(d *appsv1.Deployment) { d.Spec.Template.Spec.HostPID = true },
	"the memory of the node":    func(d *appsv1.Deployment) { d.Spec.Template.Spec.HostIPC = true },
	"another account":           func(d *appsv1.Deployment) { d.Spec.Template.Spec.ServiceAccountName = "builder" },
	"the files of the node": func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "root", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
	},
	"a setting of the kernel": func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "net.core.somaxconn", Value: "1"}}}
	},
}
