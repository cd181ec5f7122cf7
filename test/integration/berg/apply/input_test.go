package apply

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

var _ = Describe("What cannot be built", func() {
	It("fails on a missing Challenge, makes nothing, and continues when it appears", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		i := bergtest.Instance(ctx, ns, "later")
		expect.Reaches(ctx, i, bergv1.PhaseFailed)
		expect.Shows(ctx, i, bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonChallengeMissing)
		Expect(bergtest.NamespaceExists(ctx, i)).To(BeFalse())
		expect.Event(ctx, i, corev1.EventTypeWarning, bergv1.ReasonChallengeMissing)
		bergtest.Challenge(ctx, ns, "later", bergtest.OneContainer)
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
	})

	It("fails on a missing flag, makes nothing, and continues when it is set", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "flagged", bergtest.EveryKind)
		i := bergtest.Instance(ctx, ns, "flagged", func(i *bergv1.ChallengeInstance) { i.Spec.Flag = "" })
		expect.Reaches(ctx, i, bergv1.PhaseFailed)
		expect.Shows(ctx, i, bergv1.ConditionFlagValidation, metav1.ConditionFalse, bergv1.ReasonFlagMissing)
		Expect(bergtest.NamespaceExists(ctx, i)).To(BeFalse())
		expect.Event(ctx, i, corev1.EventTypeWarning, bergv1.ReasonFlagMissing)
		apiserver.Change(ctx, i, func() { i.Spec.Flag = "flag{late}" })
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
	})

	It("fails on a Challenge without containers, and continues when it has some", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		c := bergtest.Challenge(ctx, ns, "empty", `description: nothing runs`)
		i := bergtest.Instance(ctx, ns, "empty")
		expect.Reaches(ctx, i, bergv1.PhaseFailed)
		expect.Shows(ctx, i, bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonNothingToRun)
		Expect(bergtest.NamespaceExists(ctx, i)).To(BeFalse())
		edited := client.MergeFrom(c.DeepCopy())
		c.Spec.Containers = []bergv1.Container{{Hostname: "web", Image: "example.com/web:1"}}
		Expect(k8s.Patch(ctx, c, edited)).To(Succeed())
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
	})

	It("fails on what the schema cannot see, names the field, and makes nothing", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		for name, tc := range map[string]struct{ spec, field string }{
			"one-variable":   {`containers: [{hostname: a, image: i, ports: [{name: a-b, port: 1}, {name: a_b, port: 2}]}]`, "spec.containers[0].ports[1].name"},
			"derived-name":   {`containers: [{hostname: a, image: i}, {hostname: a-headless, image: i}]`, "spec.containers[1].hostname"},
			"same-port":      {`containers: [{hostname: a, image: i, ports: [{port: 1}, {port: 1, protocol: TCP}]}]`, "spec.containers[0].ports[1].port"},
			"zero-quantity":  {`containers: [{hostname: a, image: i, resourceLimits: {memory: 0}}]`, "spec.containers[0].resourceLimits.memory"},
			"environment":    {`containers: [{hostname: a, image: i, environment: {A: [secret]}}]`, "spec.containers[0].environment[A]"},
			"probe":          {`containers: [{hostname: a, image: i, readinessProbe: {periodSeconds: 5}}]`, "spec.containers[0].readinessProbe"},
			"path-segment":   {`containers: [{hostname: a, image: i, dynamicFlag: {executable: {path: "/` + strings.Repeat("ä", 128) + `/a"}}}]`, "spec.containers[0].dynamicFlag.executable.path"},
			"shared-memory":  {`containers: [{hostname: a, image: i, sharedMemory: 2Gi, resourceLimits: {memory: 1Gi}}]`, "spec.containers[0].sharedMemory"},
			"request-limits": {`containers: [{hostname: a, image: i, resourceRequests: {cpu: 2}, resourceLimits: {cpu: 1}}]`, "spec.containers[0].resourceRequests.cpu"},
		} {
			By(name)
			bergtest.Challenge(ctx, ns, name, tc.spec)
			i := bergtest.Instance(ctx, ns, name)
			expect.Reaches(ctx, i, bergv1.PhaseFailed)
			expect.Shows(ctx, i, bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonInvalidChallenge)
			expect.Says(ctx, i, tc.field)
			Expect(expect.Conditions(i)).NotTo(ContainSubstring("secret"))
			Expect(bergtest.NamespaceExists(ctx, i)).To(BeFalse())
		}
	})

	DescribeTable("shows what the API server refuses on the condition of that step, and continues when it is lifted",
		func(ctx context.Context, group, resource, condition string) {
			ns := bergtest.Publish(ctx, "refused", bergtest.EveryKind)
			id := uuid.NewString()
			lift := bergtest.Refuse(ctx, id, group, resource, "CREATE")
			i := bergtest.Instance(ctx, ns, "refused", func(i *bergv1.ChallengeInstance) { i.Spec.OwnerID = id })
			expect.Shows(ctx, i, condition, metav1.ConditionFalse, bergv1.ReasonRefused)
			Expect(i.Status.Phase).To(Equal(bergv1.PhaseCreating))
			expect.Says(ctx, i, apiserver.Refusal, "it does not say what the API server said")
			Expect(expect.Conditions(i)).NotTo(ContainSubstring(i.Spec.Flag))
			expect.Event(ctx, i, corev1.EventTypeWarning, bergv1.ReasonRefused)
			lift()
			expect.Reaches(ctx, i, bergv1.PhaseRunning)
		},
		Entry("the namespace", "", "namespaces", bergv1.ConditionNamespaceCreated),
		Entry("the network policy", "cilium.io", "ciliumnetworkpolicies", bergv1.ConditionNetworkPolicyCreated),
		Entry("a Service", "", "services", bergv1.ConditionServicesCreated),
		Entry("a route", "gateway.networking.k8s.io", "tlsroutes", bergv1.ConditionRoutesCreated),
		Entry("a ConfigMap", "", "configmaps", bergv1.ConditionDeploymentsCreated),
		Entry("a Deployment", "apps", "deployments", bergv1.ConditionDeploymentsCreated),
	)

	It("shows a quota that is used up, and continues when it is raised", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		c := bergtest.Challenge(ctx, ns, "quota", bergtest.OneContainer)
		i := bergtest.Running(ctx, ns, "quota")
		quota := bergtest.UseUp(ctx, i.Status.Namespace)
		bergtest.Respecify(ctx, c, webAndDB)
		bergtest.RollOut(ctx, i, "1")
		expect.Shows(ctx, i, bergv1.ConditionDeploymentsCreated, metav1.ConditionFalse, bergv1.ReasonRefused)
		expect.Says(ctx, i, "exceeded quota")
		expect.Shows(ctx, i, bergv1.ConditionHealthy, metav1.ConditionFalse, bergv1.ReasonPodsNotReady)
		Expect(i.Status.Phase).To(Equal(bergv1.PhaseRunning), "it was ready before")
		Expect(k8s.Delete(ctx, quota)).To(Succeed())
		expect.Shows(ctx, i, bergv1.ConditionHealthy, metav1.ConditionTrue, bergv1.ReasonReady)
	})

	It("stays Starting with what a container waits for, and continues when that is fixed", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		for how, reason := range map[string]string{"image-pull": "ImagePullBackOff", "crash": "CrashLoopBackOff"} {
			bergtest.Challenge(ctx, ns, how, bergtest.Misbehaving(how))
			i := bergtest.Instance(ctx, ns, how)
			expect.Shows(ctx, i, bergv1.ConditionPodsReady, metav1.ConditionFalse, reason)
			Expect(i.Status.Phase).To(Equal(bergv1.PhaseStarting))
			expect.Event(ctx, i, corev1.EventTypeWarning, reason)
			bergtest.Behave(ctx, i, "ready")
			expect.Reaches(ctx, i, bergv1.PhaseRunning)
		}
	})

	It("fails on an object that is not the instance's, leaves it untouched, and continues when it is gone", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		c := bergtest.Challenge(ctx, ns, "object", bergtest.OneContainer)
		i := bergtest.Running(ctx, ns, "object")
		foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: i.Status.Namespace, Name: "flag-content"}, Data: map[string]string{"a": "b"}}
		Expect(k8s.Create(ctx, foreign)).To(Succeed())
		before := bergtest.BytesOf(ctx, foreign)
		bergtest.Respecify(ctx, c, `containers: [{hostname: web, image: "example.com/web:1", dynamicFlag: {content: {path: /flag}}}]`)
		bergtest.RollOut(ctx, i, "1")
		expect.Shows(ctx, i, bergv1.ConditionDeploymentsCreated, metav1.ConditionFalse, bergv1.ReasonObjectConflict)
		Expect(i.Status.Phase).To(Equal(bergv1.PhaseFailed))
		Expect(bergtest.BytesOf(ctx, foreign)).To(Equal(before))
		Expect(k8s.Delete(ctx, foreign)).To(Succeed())
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
	})

	It("continues when a broken Challenge is fixed", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		c := bergtest.Challenge(ctx, ns, "fixed", `containers: [{hostname: a, image: i, readinessProbe: {periodSeconds: 5}}]`)
		i := bergtest.Instance(ctx, ns, "fixed")
		expect.Shows(ctx, i, bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonInvalidChallenge)
		expect.Event(ctx, i, corev1.EventTypeWarning, bergv1.ReasonInvalidChallenge)
		bergtest.Respecify(ctx, c, bergtest.OneContainer)
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
	})
})

var _ = Describe("The API server refuses", func() {
	DescribeTable("a Challenge, naming the field",
		func(ctx context.Context, spec, field string) {
			object := &unstructured.Unstructured{}
			Expect(yaml.Unmarshal([]byte(spec), &object.Object)).To(Succeed())
			object.Object = map[string]any{"spec": object.Object}
			object.SetAPIVersion("berg.norelect.ch/v1")
			object.SetKind("Challenge")
			object.SetNamespace("default")
			object.SetGenerateName("refused-")
			err := k8s.Create(ctx, object, client.DryRunAll)
			if field == "" {
				Expect(err).NotTo(HaveOccurred())
				return
			}
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
			Expect(err.Error()).To(ContainSubstring(field + ":"))
		},
		Entry("nothing at all", `{}`, ""),
		Entry("null for every optional field", nulls, ""),
		Entry("a binary suffix written small", `containers: [{hostname: a, image: i, resourceLimits: {memory: 100mi}}]`, ""),
		Entry("port type of an older API", `containers: [{hostname: a, image: i, ports: [{port: 80, type: publicIngressRouteTcp}]}]`, "spec.containers[0].ports[0].type"),
		Entry("unparsable quantity", `containers: [{hostname: a, image: i, resourceLimits: {memory: lots}}]`, "spec.containers[0].resourceLimits.memory"),
		Entry("negative quantity", `containers: [{hostname: a, image: i, resourceRequests: {cpu: "-1"}}]`, "spec.containers[0].resourceRequests.cpu"),
		Entry("missing hostname", `containers: [{image: i}]`, "spec.containers[0].hostname"),
		Entry("missing image", `containers: [{hostname: a}]`, "spec.containers[0].image"),
		Entry("missing port number", `containers: [{hostname: a, image: i, ports: [{name: x}]}]`, "spec.containers[0].ports[0].port"),
		Entry("hostname with capitals", `containers: [{hostname: Web, image: i}]`, "spec.containers[0].hostname"),
		Entry("hostname too long", `containers: [{hostname: `+strings.Repeat("a", 54)+`, image: i}]`, "spec.containers[0].hostname"),
		Entry("duplicate hostname", `containers: [{hostname: a, image: i}, {hostname: a, image: i}]`, "spec.containers[1]"),
		Entry("unknown protocol", `containers: [{hostname: a, image: i, ports: [{port: 80, protocol: sctp}]}]`, "spec.containers[0].ports[0].protocol"),
		Entry("route over UDP", `containers: [{hostname: a, image: i, ports: [{port: 80, protocol: udp, type: publicTlsRoute}]}]`, "spec.containers[0].ports[0].protocol"),
		Entry("port out of range", `containers: [{hostname: a, image: i, ports: [{port: 70000}]}]`, "spec.containers[0].ports[0].port"),
		Entry("port name", `containers: [{hostname: a, image: i, ports: [{port: 80, name: "a b"}]}]`, "spec.containers[0].ports[0].name"),
		Entry("no form of flag", `containers: [{hostname: a, image: i, dynamicFlag: {}}]`, "spec.containers[0].dynamicFlag"),
		Entry("two forms of flag", `containers: [{hostname: a, image: i, dynamicFlag: {env: {name: A}, content: {path: /a}}}]`, "spec.containers[0].dynamicFlag"),
		Entry("relative flag path", `containers: [{hostname: a, image: i, dynamicFlag: {content: {path: a}}}]`, "spec.containers[0].dynamicFlag.content.path"),
		Entry("flag path that climbs", `containers: [{hostname: a, image: i, dynamicFlag: {content: {path: /a/../b}}}]`, "spec.containers[0].dynamicFlag.content.path"),
		Entry("flag path of a directory", `containers: [{hostname: a, image: i, dynamicFlag: {executable: {path: /a/}}}]`, "spec.containers[0].dynamicFlag.executable.path"),
		Entry("flag path with a segment of 255 bytes", `containers: [{hostname: a, image: i, dynamicFlag: {content: {path: "/`+strings.Repeat("a", 243)+`{entropy}/`+strings.Repeat("ä", 127)+`"}}}]`, ""),
		Entry("flag path with a longer segment", `containers: [{hostname: a, image: i, dynamicFlag: {content: {path: "/a/`+strings.Repeat("a", 256)+`"}}}]`, "spec.containers[0].dynamicFlag.content.path"),
		Entry("flag path that entropy makes too long", `containers: [{hostname: a, image: i, dynamicFlag: {content: {path: "/`+strings.Repeat("a", 244)+`{entropy}"}}}]`, "spec.containers[0].dynamicFlag.content.path"),
		Entry("flag mode", `containers: [{hostname: a, image: i, dynamicFlag: {executable: {path: /a, mode: 4095}}}]`, "spec.containers[0].dynamicFlag.executable.mode"),
		Entry("dynamic flag mode", `dynamicFlagMode: shout`, "spec.dynamicFlagMode"),
		Entry("date", `hideUntil: tomorrow`, "spec.hideUntil"),
		Entry("environment that is a list", `containers: [{hostname: a, image: i, environment: [A]}]`, "spec.containers[0].environment"),
	)

	It("changes of an instance's identity, without repeating the flag", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		i := bergtest.Instance(ctx, ns, "none")
		for field, modify := range map[string]func(*bergv1.ChallengeInstanceSpec){
			"spec.challengeRef": func(s *bergv1.ChallengeInstanceSpec) { s.ChallengeRef.Name = "other" },
			"spec.ownerId":      func(s *bergv1.ChallengeInstanceSpec) { s.OwnerID = uuid.NewString() },
			"flag":              func(s *bergv1.ChallengeInstanceSpec) { s.Flag = "flag{other}" },
			"flag can":          func(s *bergv1.ChallengeInstanceSpec) { s.Flag = "" },
			"spec.timeout":      func(s *bergv1.ChallengeInstanceSpec) { s.Timeout = "0h0m0s" },
			"spec.timeout:":     func(s *bergv1.ChallengeInstanceSpec) { s.Timeout = "soon" },
			"timeout":           func(s *bergv1.ChallengeInstanceSpec) { s.Timeout = "99999999999h" },
		} {
			changed := i.DeepCopy()
			modify(&changed.Spec)
			err := k8s.Patch(ctx, changed, client.MergeFrom(i), client.DryRunAll)
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%s: %v", field, err)
			Expect(err.Error()).To(ContainSubstring(field))
			Expect(err.Error()).NotTo(Or(ContainSubstring("flag{other}"), ContainSubstring("flag{integration}")))
		}
		for _, flag := range []string{strings.Repeat("flag{x}", 200), strings.Repeat("flag{x}ä", 120)} {
			tooLong := i.DeepCopy()
			tooLong.Name, tooLong.ResourceVersion, tooLong.UID = "", "", ""
			tooLong.Spec.Flag = flag
			err := k8s.Create(ctx, tooLong, client.DryRunAll)
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%d bytes", len(flag))
			Expect(err.Error()).To(And(ContainSubstring("flag"), ContainSubstring("1024"), Not(ContainSubstring("flag{x}"))))
		}
	})
})

// CHALLENGES_DIR names a folder of Challenges, one in each file, to be tried. A
// file with "old schema" in its comments must be refused.
var _ = Describe("The Challenges of CHALLENGES_DIR", func() {
	It("are refused or run", func(ctx context.Context) {
		dir := os.Getenv("CHALLENGES_DIR")
		if dir == "" {
			Skip("CHALLENGES_DIR is not set")
		}
		paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(paths).NotTo(BeEmpty())
		ns := bergtest.Namespace(ctx)
		running := map[string]*bergv1.ChallengeInstance{}
		empty := map[string]*bergv1.ChallengeInstance{}
		refused := 0
		for n, path := range paths {
			By(filepath.Base(path))
			data, err := os.ReadFile(path)
			Expect(err).NotTo(HaveOccurred())
			text := string(data)
			for placeholder, value := range map[string]string{
				// A template's blanks, filled in as its comments say.
				"CHALLENGE_NAME_HERE": "challenge-name", "HOSTNAME_HERE": "hostname", "GITHUB_OWNER": "owner", "GITHUB_REPOSITORY": "repository",
			} {
				text = strings.ReplaceAll(text, placeholder, value)
			}
			object := &unstructured.Unstructured{}
			Expect(yaml.Unmarshal([]byte(text), &object.Object)).To(Succeed())
			object.SetNamespace(ns)
			object.SetName(fmt.Sprintf("%s-%d", object.GetName(), n)) // several are versions of one Challenge
			err = k8s.Create(ctx, object)
			if strings.Contains(text, "old schema") {
				Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
				Expect(err.Error()).To(ContainSubstring("spec.containers[0].ports[0].type"))
				refused++
				continue
			}
			Expect(err).NotTo(HaveOccurred())
			containers, _, err := unstructured.NestedSlice(object.Object, "spec", "containers")
			Expect(err).NotTo(HaveOccurred())
			if len(containers) == 0 {
				empty[path] = bergtest.Instance(ctx, ns, object.GetName())
			} else {
				running[path] = bergtest.Instance(ctx, ns, object.GetName())
			}
		}
		for path, i := range running {
			By("running: " + filepath.Base(path))
			expect.Reaches(ctx, i, bergv1.PhaseRunning)
		}
		for path, i := range empty {
			By("nothing to run: " + filepath.Base(path))
			expect.Shows(ctx, i, bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonNothingToRun)
		}
		AddReportEntry("challenges", fmt.Sprintf("%d running, %d without containers, %d refused", len(running), len(empty), refused))
	}, SpecTimeout(limits.Scaled(5*time.Minute)))
})

const nulls = `
displayName: null
author: null
description: null
flag: null
flagFormat: null
dynamicFlagMode: null
hideUntil: null
difficulty: null
categories: null
tags: null
event: null
allowOutboundTraffic: null
staticValue: null
attachments: [{fileName: null, downloadUrl: null, downloadImage: null, downloadImagePullSecret: null, downloadImageInsecure: null}]
containers:
- hostname: a
  image: i
  environment: null
  readinessProbe: null
  livenessProbe: null
  resourceRequests: null
  resourceLimits: {cpu: null, memory: null}
  ports: [{port: 80, name: null, protocol: null, appProtocol: null, type: null}]
  dynamicFlag: {env: null, content: {path: /flag, mode: null}, executable: null}
  additionalCapabilities: null
  command: null
  args: null
  runtimeClassName: null
  egressBandwidth: null
  ingressBandwidth: null
- hostname: b
  image: i
  environment: {A: 1, B: true, C: x, D: 1.5, E: null}
  ports: null
  dynamicFlag: null
`
