package apply

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

// grasping is a Challenge of an author who tries every field of a pod that would
// lead out of it.
const grasping = `
hostNetwork: true
serviceAccountName: berg-operator-controller-manager
namespace: kube-system
labels: {app.kubernetes.io/managed-by: someone}
annotations: {berg.norelect.ch/instance-uid: forged}
containers:
- hostname: web
  image: example.com/web:1
  hostNetwork: true
  hostPID: true
  serviceAccountName: default
  automountServiceAccountToken: true
  nodeName: node-0
  priorityClassName: system-node-critical
  volumes: [{name: host, hostPath: {path: /}}]
  volumeMounts: [{name: host, mountPath: /host}]
  securityContext: {privileged: true}
  privileged: true
  labels: {berg.norelect.ch/owner-id: another}
  annotations: {kubernetes.io/egress-bandwidth: 100P}
  envFrom: [{secretRef: {name: registry}}]
  environment: {A: $(FLAG), CHALLENGE_NAMESPACE: kube-system, "B": "x\ny: z"}
  ports: [{port: 80, name: web, appProtocol: "a\nb: c", nodePort: 443, hostPort: 443, externalIPs: [192.0.2.1]}]
`

var _ = Describe("A hostile author", func() {
	It("reaches nothing that the schema does not offer", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		hostile := rawChallenge(ns, grasping)
		Expect(k8s.Create(ctx, hostile)).To(Succeed())

		i := bergtest.Instance(ctx, ns, hostile.GetName(), func(i *bergv1.ChallengeInstance) {
			i.Labels = map[string]string{bergv1.LabelManagedBy: "another"}
			i.Annotations = map[string]string{bergv1.AnnotationInstanceUID: "forged"}
		})
		expect.Reaches(ctx, i, bergv1.PhaseRunning)

		web := apiserver.Get[appsv1.Deployment](ctx, client.ObjectKey{Namespace: i.Status.Namespace, Name: "web"})
		Expect(web.Annotations).To(HaveKeyWithValue(bergv1.AnnotationInstanceUID, string(i.UID)))
		template := web.Spec.Template
		Expect(slices.Sorted(maps.Keys(template.Labels))).To(Equal([]string{
			bergv1.LabelComponent, bergv1.LabelManagedBy, bergv1.LabelChallenge, bergv1.LabelContainer, bergv1.LabelOwnerID,
		}))
		Expect(template.Labels).To(And(HaveKeyWithValue(bergv1.LabelOwnerID, i.Spec.OwnerID), HaveKeyWithValue(bergv1.LabelManagedBy, bergv1.ManagedBy)))
		Expect(template.Annotations).To(HaveKeyWithValue("kubernetes.io/egress-bandwidth", "10M"))
		Expect(template.Annotations).To(HaveKeyWithValue(bergv1.LabelInstanceID, i.Status.InstanceID))
		Expect(template.Annotations).To(HaveLen(4))
		pod, container := template.Spec, template.Spec.Containers[0]
		Expect(pod.HostNetwork || pod.HostPID || pod.HostIPC).To(BeFalse())
		Expect([]string{pod.ServiceAccountName, pod.NodeName, pod.PriorityClassName}).To(HaveEach(BeEmpty()))
		Expect(*pod.AutomountServiceAccountToken).To(BeFalse())
		Expect(pod.Volumes).To(HaveLen(1))
		Expect(pod.Volumes[0].EmptyDir).NotTo(BeNil(), "the shared memory is not the pod's own")
		Expect(pod.InitContainers).To(BeEmpty())
		Expect(*container.SecurityContext.Privileged).To(BeFalse())
		Expect(container.EnvFrom).To(BeEmpty())
		Expect(container.Ports).To(Equal([]corev1.ContainerPort{{ContainerPort: 80, Protocol: corev1.ProtocolTCP}}))
		Expect(container.Env).To(ContainElement(corev1.EnvVar{Name: "CHALLENGE_NAMESPACE", Value: i.Status.Namespace}))

		services := apiserver.List[corev1.ServiceList](ctx, client.InNamespace(i.Status.Namespace))
		for _, s := range services.Items {
			Expect(s.Spec.ExternalIPs).To(BeEmpty())
			Expect(s.Spec.Type).To(Equal(corev1.ServiceTypeClusterIP))
		}
	})

	It("shows which field asks for too much", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		for name, tc := range map[string]struct{ spec, says string }{
			"capability": {`containers: [{hostname: a, image: i, additionalCapabilities: [KILL, CAP_SYS_ADMIN]}]`, "spec.containers[0].additionalCapabilities[1]"},
			"http-probe": {`containers: [{hostname: a, image: i, livenessProbe: {httpGet: {port: 80, host: 169.254.169.254}}}]`, "spec.containers[0].livenessProbe.httpGet.host"},
			"tcp-probe":  {`containers: [{hostname: a, image: i, readinessProbe: {tcpSocket: {port: 80, host: 127.0.0.1}}}]`, "spec.containers[0].readinessProbe.tcpSocket.host"},
			"large":      {`containers: [{hostname: a, image: i, environment: {A: ` + strings.Repeat("x", 70_000) + `}}]`, "spec.containers[0].environment"},
			"node-ports": {`containers: [{hostname: a, image: i, ports: [` + manyPorts(1, 17, "publicPort") + `]}]`, "spec.containers: Invalid value: 17"},
			"ports":      {`containers: [` + manyContainers(5, 32, "internalPort", 0) + `]`, "spec.containers: Invalid value: 160"},
		} {
			By(name)
			bergtest.Challenge(ctx, ns, name, tc.spec)
			i := bergtest.Instance(ctx, ns, name)
			expect.Reaches(ctx, i, bergv1.PhaseFailed)
			expect.Shows(ctx, i, bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonInvalidChallenge)
			expect.Says(ctx, i, tc.says)
			Expect(len(expect.Conditions(i))).To(BeNumerically("<", 4096))
			Expect(bergtest.NamespaceExists(ctx, i)).To(BeFalse())
		}
	})

	It("gets what the limits allow, and the API server takes it", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "largest", `containers: [`+manyContainers(16, 8, "publicHttpRoute", 28<<10)+`]`)
		i := bergtest.Running(ctx, ns, "largest")
		Expect(i.Status.Services).To(HaveLen(128))
	})

	It("is refused by the API server where the schema can say it", func(ctx context.Context) {
		for spec, field := range map[string]string{
			`containers: [` + manyContainers(17, 0, "", 0) + `]`:                                                      "spec.containers",
			`containers: [{hostname: a, image: i, ports: [` + manyPorts(1, 33, "internalPort") + `]}]`:                "spec.containers[0].ports",
			`containers: [{hostname: a, image: i, environment: {` + manyVariables(257) + `}}]`:                        "spec.containers[0].environment",
			`containers: [{hostname: a, image: i, egressBandwidth: "10M\nx: y"}]`:                                     "spec.containers[0].egressBandwidth",
			`containers: [{hostname: a, image: i, additionalCapabilities: ["KILL\n"]}]`:                               "spec.containers[0].additionalCapabilities[0]",
			`containers: [{hostname: "a/b", image: i}]`:                                                               "spec.containers[0].hostname",
			`containers: [{hostname: a, image: i, dynamicFlag: {content: {path: /a/..data/b}}}]`:                      "spec.containers[0].dynamicFlag.content.path",
			`containers: [{hostname: a, image: i, runtimeClassName: ` + strings.Repeat("x", 254) + `}]`:               "spec.containers[0].runtimeClassName",
			`containers: [{hostname: a, image: i, ports: [{port: 1, name: ` + strings.Repeat("x", 64) + `}]}]`:        "spec.containers[0].ports[0].name",
			`containers: [{hostname: a, image: i, ports: [{port: 1, appProtocol: ` + strings.Repeat("x", 64) + `}]}]`: "spec.containers[0].ports[0].appProtocol",
		} {
			err := k8s.Create(ctx, rawChallenge("default", spec), client.DryRunAll)
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%.200s: %v", spec, err)
			Expect(err.Error()).To(ContainSubstring(field))
		}
	})
})

var _ = Describe("A hostile client", func() {
	It("uses Challenges of no other namespace where CHALLENGE_REF_POLICY forbids it, and learns nothing of them", func(ctx context.Context) {
		mine, theirs := bergtest.Namespace(ctx), bergtest.Namespace(ctx)
		for policy, configured := range map[string]string{"TrustedNamespace": "berg", "SameNamespace": "berg", "ConfiguredNamespace": mine} {
			env := inprocess.With(map[string]string{"CHALLENGE_REF_POLICY": policy, "CHALLENGE_NAMESPACE": configured})
			stop := inprocess.Instead(clock.RealClock{}, env, nil)
			existing := "existing-" + strings.ToLower(policy)
			bergtest.Challenge(ctx, theirs, existing, bergtest.OneContainer)
			bergtest.Challenge(ctx, mine, existing, bergtest.OneContainer)
			var messages []string
			for _, name := range []string{existing, "missing-" + strings.ToLower(policy)} {
				i := bergtest.Instance(ctx, mine, name, func(i *bergv1.ChallengeInstance) { i.Spec.ChallengeRef.Namespace = theirs })
				expect.Shows(ctx, i, bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonReferenceNotAllowed)
				Expect(i.Status.Phase).To(Equal(bergv1.PhaseFailed))
				Expect(bergtest.NamespaceExists(ctx, i)).To(BeFalse())
				messages = append(messages, expect.Conditions(i))
			}
			Expect(messages[0]).To(Equal(messages[1]))
			bergtest.Running(ctx, mine, existing)
			stop()
		}
	})

	It("takes no owner's ID from a namespace that CHALLENGE_INSTANCE_NAMESPACES does not name", func(ctx context.Context) {
		mine, theirs := bergtest.Namespace(ctx), bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, mine, "small", bergtest.OneContainer)
		bergtest.Challenge(ctx, theirs, "small", bergtest.OneContainer)
		stop := inprocess.Instead(clock.RealClock{}, inprocess.With(map[string]string{"CHALLENGE_INSTANCE_NAMESPACES": mine}), nil)
		defer stop()
		first := bergtest.Instance(ctx, theirs, "small")
		expect.Shows(ctx, first, bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonNamespaceNotAllowed)
		Expect(bergtest.NamespaceExists(ctx, first)).To(BeFalse())
		bergtest.Running(ctx, mine, "small", func(i *bergv1.ChallengeInstance) { i.Spec.OwnerID = first.Spec.OwnerID })
	})

	It("cannot write the status, nor name an owner that is no UUID", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		forged := &bergv1.ChallengeInstance{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "forged-"},
			Spec:       bergv1.ChallengeInstanceSpec{ChallengeRef: bergv1.ChallengeReference{Name: "none", Namespace: ns}, OwnerID: "../kube-system"},
		}
		Expect(apierrors.IsInvalid(k8s.Create(ctx, forged, client.DryRunAll))).To(BeTrue())
		i := bergtest.Instance(ctx, ns, "none", func(i *bergv1.ChallengeInstance) {
			i.Status.Namespace, i.Status.InstanceID = "kube-system", "00000000-0000-7000-8000-000000000000"
		})
		Expect(i.Status.Namespace).To(BeEmpty())
	})
})

// rawChallenge is one as an author sends it, with fields that our types do not
// have.
func rawChallenge(namespace, text string) *unstructured.Unstructured {
	GinkgoHelper()
	spec := map[string]any{}
	Expect(yaml.Unmarshal([]byte(text), &spec)).To(Succeed())
	c := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	c.SetGroupVersionKind(bergv1.GroupVersion.WithKind("Challenge"))
	c.SetNamespace(namespace)
	c.SetGenerateName("hostile-")
	return c
}

func manyPorts(first, n int, portType string) string {
	ports := make([]string, n)
	for i := range ports {
		ports[i] = fmt.Sprintf("{port: %d, name: p%d, type: %s}", first+i, first+i, portType)
	}
	return strings.Join(ports, ", ")
}

// manyContainers makes each of n containers with ports and that many bytes of
// environment.
func manyContainers(n, ports int, portType string, environment int) string {
	containers := make([]string, n)
	for i := range containers {
		containers[i] = fmt.Sprintf("{hostname: c%d, image: i, environment: {A: %q}, ports: [%s]}",
			i, strings.Repeat("x", environment), manyPorts(1+i*ports, ports, portType))
	}
	return strings.Join(containers, ", ")
}

func manyVariables(n int) string {
	variables := make([]string, n)
	for i := range variables {
		variables[i] = fmt.Sprintf("V%d: x", i)
	}
	return strings.Join(variables, ", ")
}
