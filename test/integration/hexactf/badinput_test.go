package hexactf

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/hexactftest"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

// failsWith watches a challenge until it is gone, and returns its last error message.
func failsWith(ctx context.Context, c *hexactfv1.Challenge, modify func(*hexactfv1.Challenge)) (said string) {
	GinkgoHelper()
	w, err := k8s.Watch(ctx, &hexactfv1.ChallengeList{}, client.InNamespace(c.Namespace), client.MatchingFields{"metadata.name": c.Name})
	Expect(err).NotTo(HaveOccurred())
	defer w.Stop()
	modify(c)
	Expect(k8s.Create(ctx, c)).To(Succeed())
	deadline := time.After(limits.Wait)
	for {
		select {
		case e := <-w.ResultChan():
			now, ok := e.Object.(*hexactfv1.Challenge)
			if !ok || now.UID != c.UID {
				continue
			}
			if now.Status.CurrentStatus.State == hexactfv1.StateError {
				said = now.Status.CurrentStatus.ErrorMsg
			}
			if e.Type == "DELETED" {
				return said
			}
		case <-deadline:
			Fail("it is not deleted")
		}
	}
}

var _ = Describe("A challenge that can never run", func() {
	DescribeTable("is deleted in state Error before any object is created, and the error says why", func(ctx context.Context, modify func(*hexactfv1.Challenge), says string, received ...hexactfv1.State) {
		ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
		c := hexactftest.New(ns, "web")
		Expect(failsWith(ctx, c, modify)).To(ContainSubstring(says))
		Expect(apiserver.Names(ctx, &appsv1.DeploymentList{}, client.InNamespace(ns))).To(BeEmpty())
		Expect(apiserver.Names(ctx, &corev1.ServiceList{}, client.InNamespace(ns))).To(BeEmpty())
		if len(received) > 0 {
			platform.Receives(c, received...)
		}
	},
		Entry("without challengeId", func(c *hexactfv1.Challenge) { delete(c.Labels, hexactfv1.LabelChallengeID) }, "metadata.labels[apps.hexactf.io/challengeId]: Required"),
		Entry("without user", func(c *hexactfv1.Challenge) { delete(c.Labels, hexactfv1.LabelUser) }, "metadata.labels[apps.hexactf.io/user]: Required"),
		Entry("with an empty user", func(c *hexactfv1.Challenge) { c.Labels[hexactfv1.LabelUser] = "" }, "metadata.labels[apps.hexactf.io/user]: Required"),
		Entry("with a user in upper case", func(c *hexactfv1.Challenge) { c.Labels[hexactfv1.LabelUser] = "Alice" }, `Invalid value: "Alice"`, hexactfv1.StateError, hexactfv1.StateDeleted),
		Entry("with a dot in the user", func(c *hexactfv1.Challenge) { c.Labels[hexactfv1.LabelUser] = "a.b" }, `Invalid value: "a.b"`, hexactfv1.StateError, hexactfv1.StateDeleted),
		Entry("of another namespace", func(c *hexactfv1.Challenge) { c.Spec.Namespace = "elsewhere" }, "spec.namespace", hexactfv1.StateError, hexactfv1.StateDeleted),
	)

	DescribeTable("is refused by the API server when its definition is invalid", func(ctx context.Context, spec, says string) {
		ns := hexactftest.Namespace(ctx)
		d := &unstructured.Unstructured{Object: apiserver.Object(fmt.Sprintf(`
apiVersion: apps.hexactf.io/v1alpha1
kind: ChallengeDefinition
metadata: {name: bad, namespace: %s}
spec: %s`, ns, spec)).Object}
		err := k8s.Create(ctx, d)
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring(says)))
	},
		Entry("a component without deployment", `{components: [{name: web}]}`, "deployment: Required"),
		Entry("a component without containers", `{components: [{name: web, deployment: {spec: {template: {spec: {containers: []}}}}}]}`, "containers"),
		Entry("a node port without ports", `{components: [{name: web, deployment: {spec: {template: {spec: {containers: [{name: a, image: b}]}}}}, service: {spec: {type: NodePort}}}]}`, "spec.ports is needed"),
		Entry("an external name", `{components: [{name: web, deployment: {spec: {template: {spec: {containers: [{name: a, image: b}]}}}}, service: {spec: {type: ExternalName, ports: [{port: 1}]}}}]}`, "ClusterIP, NodePort or LoadBalancer"),
		Entry("two components of one name", `{components: [{name: web, deployment: {spec: {template: {spec: {containers: [{name: a, image: b}]}}}}}, {name: web, deployment: {spec: {template: {spec: {containers: [{name: a, image: b}]}}}}}]}`, "Duplicate value"),
		Entry("a name in upper case", `{components: [{name: Web, deployment: {spec: {template: {spec: {containers: [{name: a, image: b}]}}}}}]}`, "components[0].name"),
		Entry("a name with an exclamation mark", `{components: [{name: "web!", deployment: {spec: {template: {spec: {containers: [{name: a, image: b}]}}}}}]}`, "components[0].name"),
		Entry("no time", `{duration: 0s}`, "duration must be from 1s to 8760h"),
		Entry("too much time", `{duration: 8761h}`, "duration must be from 1s to 8760h"),
		Entry("no duration at all", `{duration: soon}`, "duration must be from 1s to 8760h"),
		Entry("a negative number of pods", `{components: [{name: web, deployment: {spec: {replicas: -1, template: {spec: {containers: [{name: a, image: b}]}}}}}]}`, "replicas"),
	)

	It("cannot change its definition after the start", func(ctx context.Context) {
		ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
		c := running(ctx, ns, "web")
		before := c.DeepCopy()
		c.Spec.Definition = "other"
		Expect(k8s.Patch(ctx, c, client.MergeFrom(before))).To(MatchError(ContainSubstring("definition cannot be changed")))
	})

	It("runs from a definition as organisers write it", func(ctx context.Context) {
		ns := hexactftest.Namespace(ctx)
		d := apiserver.Object(fmt.Sprintf(`
apiVersion: apps.hexactf.io/v1alpha1
kind: ChallengeDefinition
metadata: {name: theirs, namespace: %s}
spec:
  isOne: false
  components:
  - name: ubuntu
    deployment:
      spec:
        replicas: 1
        template:
          spec:
            nodeSelector: {}
            containers:
            - name: ubuntu
              image: example.com/ubuntu
              ports: [{containerPort: 22, protocol: TCP}]
              resources: {limits: {memory: 128Mi, cpu: "500m"}, requests: {memory: 64Mi, cpu: "250m"}}
              env: [{name: FLAG, value: "$(X)"}]
              livenessProbe: {tcpSocket: {port: 22}}
    service:
      apiVersion: v1
      kind: Service
      metadata: {name: ubuntu-svc, labels: {a: b}}
      spec:
        selector: {app: ubuntu}
        type: NodePort
        ports: [{name: ssh, protocol: TCP, port: 22, targetPort: 22}]
      status: {loadBalancer: {}}`, ns))
		Expect(k8s.Create(ctx, d, client.FieldValidation("Strict"))).To(Succeed())
		c := running(ctx, ns, "theirs")
		Expect(c.Status.Endpoint).NotTo(BeZero())
		service := get(ctx, ns, prefix(c, "ubuntu")+"-svc", &corev1.Service{})
		Expect(service.Spec.Selector).To(Equal(map[string]string{"apps.hexactf.io/instance": prefix(c, "ubuntu")}), "only the ports and the type of the Service are used")
	})
})

var _ = Describe("An author of definitions is no administrator", func() {
	DescribeTable("so a challenge of such a definition creates nothing, says the field, and starts once it is corrected", func(ctx context.Context, says, container string) {
		ns := hexactftest.Namespace(ctx)
		Expect(k8s.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "other"}, StringData: map[string]string{"password": "s3cr3t"}})).To(Succeed())
		d := apiserver.Object(fmt.Sprintf(`
apiVersion: apps.hexactf.io/v1alpha1
kind: ChallengeDefinition
metadata: {name: theirs, namespace: %s}
spec: {components: [{name: web, deployment: {spec: {template: {spec: {containers: [%s]}}}}}]}`, ns, container))
		Expect(k8s.Create(ctx, d, client.FieldValidation("Strict"))).To(Succeed())
		c := hexactftest.Challenge(ctx, ns, "theirs")
		Eventually(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
			g.Expect(c.Status.CurrentStatus.State).To(Equal(hexactfv1.StateError))
			g.Expect(c.Status.CurrentStatus.ErrorMsg).To(ContainSubstring(says))
		}).WithContext(ctx).WithTimeout(limits.Wait).Should(Succeed())
		Expect(apiserver.Names(ctx, &appsv1.DeploymentList{}, client.InNamespace(ns))).To(BeEmpty())
		Expect(apiserver.Names(ctx, &corev1.ServiceList{}, client.InNamespace(ns))).To(BeEmpty())

		before := d.DeepCopy()
		Expect(unstructured.SetNestedSlice(d.Object, []any{map[string]any{
			"name": "web",
			"deployment": map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
				"containers": []any{map[string]any{"name": "web", "image": "example.com/web"}},
			}}}},
		}}, "spec", "components")).To(Succeed())
		Expect(k8s.Patch(ctx, d, client.MergeFrom(before))).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
			g.Expect(c.Status.CurrentStatus.State).To(Equal(hexactfv1.StateRunning))
		}).WithContext(ctx).WithTimeout(limits.Wait).Should(Succeed())
	},
		Entry("privileged", "containers[0].securityContext.privileged", `{name: web, image: a, securityContext: {privileged: true}}`),
		Entry("a port of the node", "containers[0].ports[0].hostPort", `{name: web, image: a, ports: [{containerPort: 80, hostPort: 8080}]}`),
		Entry("a capability", "containers[0].securityContext.capabilities.add[0]", `{name: web, image: a, securityContext: {capabilities: {add: [SYS_ADMIN]}}}`),
		Entry("a variable from a Secret", "containers[0].env[0].valueFrom.secretKeyRef", `{name: web, image: a, env: [{name: A, valueFrom: {secretKeyRef: {name: other, key: password}}}]}`),
		Entry("variables from a Secret", "containers[0].envFrom[0].secretRef", `{name: web, image: a, envFrom: [{secretRef: {name: other}}]}`),
		Entry("a variable from a ConfigMap", "containers[0].env[0].valueFrom.configMapKeyRef", `{name: web, image: a, env: [{name: A, valueFrom: {configMapKeyRef: {name: other, key: k}}}]}`),
		Entry("variables from a ConfigMap", "containers[0].envFrom[0].configMapRef", `{name: web, image: a, envFrom: [{configMapRef: {name: other}}]}`),
		Entry("a probe of another host", "containers[0].readinessProbe.httpGet.host", `{name: web, image: a, readinessProbe: {httpGet: {host: 169.254.169.254, port: 80}}}`),
		Entry("a hook that calls another host", "containers[0].lifecycle.postStart.tcpSocket.host", `{name: web, image: a, lifecycle: {postStart: {tcpSocket: {host: 127.0.0.1, port: 10250}}}}`),
	)
})

var _ = Describe("A challenge without a definition", func() {
	It("says so, and runs when the definition is created", func(ctx context.Context) {
		ns := hexactftest.Namespace(ctx)
		c := hexactftest.Challenge(ctx, ns, "late")
		expect.Shows(ctx, c, hexactfv1.ConditionDefinitionFound, metav1.ConditionFalse, hexactfv1.ReasonDefinitionNotFound)
		Expect(c.Status.CurrentStatus.State).To(Equal(hexactfv1.StateError))
		Expect(c.Status.CurrentStatus.ErrorMsg).To(ContainSubstring("ChallengeDefinition %s/late not found: create it", ns))
		expect.Event(ctx, c, corev1.EventTypeWarning, hexactfv1.ReasonDefinitionNotFound)
		began := c.Status.StartedAt.DeepCopy()
		hexactftest.Definition(ctx, ns, "late", hexactftest.OneComponent)
		hexactftest.Reaches(ctx, c, hexactfv1.StateRunning)
		Expect(c.Status.StartedAt.Equal(began)).To(BeTrue())
		Expect(c.Status.CurrentStatus.ErrorMsg).To(BeEmpty())
		platform.Receives(c, hexactfv1.StateError, hexactfv1.StateCreating, hexactfv1.StateRunning)
	})

	It("has its whole start deadline when the definition is created late", func(ctx context.Context) {
		inprocess.Restart(map[string]string{"HEXACTF_START_DEADLINE": "4s"}, nil)
		ns := hexactftest.Namespace(ctx)
		c := hexactftest.Challenge(ctx, ns, "late")
		expect.Shows(ctx, c, hexactfv1.ConditionDefinitionFound, metav1.ConditionFalse, hexactfv1.ReasonDefinitionNotFound)
		<-time.After(5 * time.Second)
		hexactftest.Definition(ctx, ns, "late", hexactftest.OneComponent)
		hexactftest.Reaches(ctx, c, hexactfv1.StateRunning)
		// On a busy machine it may still be late, but not before its start.
		Eventually(func() []hexactfv1.State { return platform.States(c) }).Should(ContainElement(hexactfv1.StateRunning))
		Expect(platform.States(c)[:2]).To(Equal([]hexactfv1.State{hexactfv1.StateError, hexactfv1.StateCreating}))
	})

	It("is deleted after HEXACTF_DEFINITION_TIMEOUT", func(ctx context.Context) {
		inprocess.Restart(map[string]string{"HEXACTF_DEFINITION_TIMEOUT": "3s"}, nil)
		ns := hexactftest.Namespace(ctx)
		c := hexactftest.New(ns, "never")
		began := time.Now()
		Expect(failsWith(ctx, c, func(*hexactfv1.Challenge) {})).To(ContainSubstring("not found"))
		Expect(time.Since(began)).To(BeNumerically(">=", 2*time.Second))
		platform.Receives(c, hexactfv1.StateError, hexactfv1.StateDeleted)
	})
})

var _ = Describe("An object of another owner", func() {
	unrelated := func(ns, name string) *appsv1.Deployment {
		return &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"owner": "another"}},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/c"}}},
				},
			},
		}
	}

	It("is left untouched, and the challenge continues when it is gone", func(ctx context.Context) {
		ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
		c := hexactftest.New(ns, "web")
		conflicting := unrelated(ns, prefix(c, "web")+"-deploy")
		Expect(k8s.Create(ctx, conflicting)).To(Succeed())
		Expect(k8s.Create(ctx, c)).To(Succeed())
		expect.Shows(ctx, c, hexactfv1.ConditionResourcesCreated, metav1.ConditionFalse, hexactfv1.ReasonOwnershipConflict)
		Expect(c.Status.CurrentStatus.State).To(Equal(hexactfv1.StateError))
		Expect(c.Status.CurrentStatus.ErrorMsg).To(ContainSubstring(conflicting.Name))
		Expect(get(ctx, ns, conflicting.Name, &appsv1.Deployment{}).Labels).To(Equal(map[string]string{"owner": "another"}))
		Expect(k8s.Delete(ctx, conflicting)).To(Succeed())
		hexactftest.Reaches(ctx, c, hexactfv1.StateRunning)
		Expect(c.DeletionTimestamp).To(BeNil())

		By("two challenges whose objects have the same names")
		second := hexactftest.New(ns, "web")
		second.Labels = c.Labels
		Expect(k8s.Create(ctx, second)).To(Succeed())
		expect.Shows(ctx, second, hexactfv1.ConditionResourcesCreated, metav1.ConditionFalse, hexactfv1.ReasonOwnershipConflict)
		hexactftest.Delete(ctx, second)
		expect.Gone(ctx, second)
		hexactftest.Reaches(ctx, c, hexactfv1.StateRunning)
		owner := metav1.GetControllerOf(get(ctx, ns, prefix(c, "web")+"-deploy", &appsv1.Deployment{}))
		Expect(owner.UID).To(Equal(c.UID))
	})

	It("of the same names belongs to a live challenge, which the message names", func(ctx context.Context) {
		ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
		first := running(ctx, ns, "web")
		second := hexactftest.New(ns, "web")
		second.Labels = first.Labels
		Expect(k8s.Create(ctx, second)).To(Succeed())
		expect.Shows(ctx, second, hexactfv1.ConditionResourcesCreated, metav1.ConditionFalse, hexactfv1.ReasonOwnershipConflict)
		Expect(second.Status.CurrentStatus.ErrorMsg).To(ContainSubstring("belongs to Challenge %s/%s (challengeId 42, user %s)", ns, first.Name, first.Labels[hexactfv1.LabelUser]))
		hexactftest.Delete(ctx, first)
		hexactftest.Reaches(ctx, second, hexactfv1.StateRunning)
	})

	It("was left behind by kubectl delete --cascade=orphan, which is reported, and the next start replaces it", func(ctx context.Context) {
		ns := hexactftest.Define(ctx, "web", hexactftest.TwoComponents)
		c := running(ctx, ns, "web")
		again := hexactftest.New(ns, "web")
		again.Name, again.Labels = c.Name, c.Labels
		Expect(k8s.Delete(ctx, c, client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
		expect.Gone(ctx, c)
		expect.Event(ctx, c, corev1.EventTypeWarning, hexactfv1.ReasonOrphaned)
		former := get(ctx, ns, prefix(c, "web")+"-deploy", &appsv1.Deployment{})
		Expect(former.OwnerReferences).To(BeEmpty())

		Expect(k8s.Create(ctx, again)).To(Succeed())
		hexactftest.Reaches(ctx, again, hexactfv1.StateRunning)
		expect.Event(ctx, again, corev1.EventTypeNormal, hexactfv1.ReasonOrphansDeleted)
		now := get(ctx, ns, former.Name, &appsv1.Deployment{})
		Expect(now.UID).NotTo(Equal(former.UID), "the pods have the state of the game before")
		Expect(metav1.GetControllerOf(now).UID).To(Equal(again.UID))

		By("an object that only looks like it is left untouched")
		other := hexactftest.New(ns, "web")
		claimed := unrelated(ns, prefix(other, "web")+"-deploy")
		claimed.Labels = map[string]string{hexactfv1.LabelManagedBy: hexactfv1.ManagedBy, hexactfv1.LabelPartOf: again.Name}
		claimed.Annotations = map[string]string{hexactfv1.AnnotationUID: string(again.UID)}
		Expect(k8s.Create(ctx, claimed)).To(Succeed())
		Expect(k8s.Create(ctx, other)).To(Succeed())
		expect.Shows(ctx, other, hexactfv1.ConditionResourcesCreated, metav1.ConditionFalse, hexactfv1.ReasonOwnershipConflict)
		Expect(get(ctx, ns, claimed.Name, &appsv1.Deployment{}).OwnerReferences).To(BeEmpty())
	})

	It("may be a Service that would lead players to another server", func(ctx context.Context) {
		ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
		c := hexactftest.New(ns, "web")
		conflicting := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: prefix(c, "web") + "-svc", Labels: map[string]string{"owner": "another"}},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"a": "b"}, Ports: []corev1.ServicePort{{Port: 80}}},
		}
		Expect(k8s.Create(ctx, conflicting)).To(Succeed())
		Expect(k8s.Create(ctx, c)).To(Succeed())
		expect.Shows(ctx, c, hexactfv1.ConditionResourcesCreated, metav1.ConditionFalse, hexactfv1.ReasonOwnershipConflict)
		Expect(c.Status.CurrentStatus.State).To(Equal(hexactfv1.StateError))
		Expect(c.Status.CurrentStatus.ErrorMsg).To(ContainSubstring(conflicting.Name))
		Expect(c.Status.Endpoint).To(BeZero(), "the endpoint is the port of another owner")
		now := get(ctx, ns, conflicting.Name, &corev1.Service{})
		Expect(now.ResourceVersion).To(Equal(conflicting.ResourceVersion))
		Expect(apiserver.Names(ctx, &appsv1.DeploymentList{}, client.InNamespace(ns))).To(BeEmpty(), "a pod runs that no player can reach")
		Expect(k8s.Delete(ctx, conflicting)).To(Succeed())
		hexactftest.Reaches(ctx, c, hexactfv1.StateRunning)
		service := get(ctx, ns, conflicting.Name, &corev1.Service{})
		Expect(c.Status.Endpoint).To(Equal(service.Spec.Ports[0].NodePort))
		platform.Receives(c, hexactfv1.StateCreating, hexactfv1.StateError, hexactfv1.StateCreating, hexactfv1.StateRunning)
	})

	It("may not allow challenges in a namespace, which an administrator does", func(ctx context.Context) {
		ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
		apiserver.LabelNamespace(ctx, ns, hexactftest.LabelOperator, "forbidden")
		stolen := apiserver.As(apiserver.OperatorUser)
		Eventually(func() error { // the API server takes a moment before it follows a label
			return stolen.Create(ctx, &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "a", Labels: map[string]string{hexactfv1.LabelManagedBy: hexactfv1.ManagedBy}},
				Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
			}, client.DryRunAll)
		}).Should(MatchError(ContainSubstring("berg-operator-fence")))
		c := hexactftest.Challenge(ctx, ns, "web")
		expect.Shows(ctx, c, hexactfv1.ConditionResourcesCreated, metav1.ConditionFalse, hexactfv1.ReasonRefused)
		Expect(c.Status.CurrentStatus.ErrorMsg).To(ContainSubstring("kubectl label namespace " + ns + " apps.hexactf.io/operator=allowed"))
		Expect(apiserver.Names(ctx, &appsv1.DeploymentList{}, client.InNamespace(ns))).To(BeEmpty())
		apiserver.LabelNamespace(ctx, ns, hexactftest.LabelOperator, "allowed")
		hexactftest.Reaches(ctx, c, hexactfv1.StateRunning)

		By("a challenge that runs ends without the label, too")
		apiserver.LabelNamespace(ctx, ns, hexactftest.LabelOperator, "forbidden")
		hexactftest.Delete(ctx, c)
		expect.Gone(ctx, c)
	})

	It("may use up the quota, which does not end the challenge", func(ctx context.Context) {
		ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
		Expect(k8s.Create(ctx, &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "none"},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"services.nodeports": {}}},
		})).To(Succeed())
		Eventually(func(g Gomega) { // the quota is enforced once its controller has counted
			quota := get(ctx, ns, "none", &corev1.ResourceQuota{})
			g.Expect(quota.Status.Hard).NotTo(BeEmpty())
		}).Should(Succeed())
		c := hexactftest.Challenge(ctx, ns, "web")
		expect.Shows(ctx, c, hexactfv1.ConditionResourcesCreated, metav1.ConditionFalse, hexactfv1.ReasonRefused)
		Expect(c.Status.CurrentStatus.ErrorMsg).To(ContainSubstring("quota"))
		Expect(k8s.Delete(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "none"}})).To(Succeed())
		hexactftest.Reaches(ctx, c, hexactfv1.StateRunning)
		platform.Receives(c, hexactfv1.StateCreating, hexactfv1.StateError, hexactfv1.StateCreating, hexactfv1.StateRunning)
	})
})
