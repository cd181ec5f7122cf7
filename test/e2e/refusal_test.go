package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// mishap is an instance that cannot be built, and how it is mended.
type mishap struct {
	// containers of its Challenge; nil for no Challenge at all.
	containers []bergv1.Container
	noFlag     bool

	condition, reason string
	// event about it, if one is promised.
	event string

	mend func(ctx context.Context, s *stage, told *story)
}

func wantsFlag(c bergv1.Container) bergv1.Container {
	c.DynamicFlag = &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: "FLAG"}}
	return c
}

// setContainers mends the Challenge.
func setContainers(ctx context.Context, s *stage, containers ...bergv1.Container) {
	GinkgoHelper()
	text, err := json.Marshal(map[string]any{"spec": map[string]any{"containers": containers}})
	Expect(err).NotTo(HaveOccurred())
	challenge := &bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Name: "broken", Namespace: s.namespace}}
	Expect(world.Patch(ctx, challenge, client.RawPatch("application/merge-patch+json", text))).To(Succeed())
}

var _ = Describe("Bad input", func() {
	DescribeTable("fails without a trace, and goes on once it is mended", func(ctx SpecContext, m mishap) {
		stage := newStage(ctx)
		if m.containers != nil {
			stage.challenge(ctx, "broken", m.containers...)
		}
		instance := stage.instance("broken")
		if m.noFlag {
			instance.Spec.Flag = ""
		}
		told := stage.start(ctx, instance)
		failed := told.expectCondition(ctx, reactLimit, m.condition, metav1.ConditionFalse, m.reason)
		Expect(failed.Status.Phase).To(Equal(bergv1.PhaseFailed))
		Expect(world.namespaceGone(ctx, told.instanceNamespace())).To(Succeed(), "something was half made")
		if m.event != "" {
			expectEvents(ctx, told, m.event)
		}

		m.mend(ctx, stage, told)
		told.expectPhase(ctx, startLimit, bergv1.PhaseRunning)
	},
		entry("when the Challenge is missing", mishap{
			condition: bergv1.ConditionChallengeFound, reason: bergv1.ReasonChallengeMissing, event: "ChallengeMissing",
			mend: func(ctx context.Context, s *stage, _ *story) { s.challenge(ctx, "broken", toolbox("box")) },
		}),
		entry("when the flag is missing", mishap{
			containers: []bergv1.Container{wantsFlag(toolbox("box"))}, noFlag: true,
			condition: bergv1.ConditionFlagValidation, reason: bergv1.ReasonFlagMissing, event: "FlagMissing",
			mend: func(ctx context.Context, _ *stage, told *story) {
				told.patch(ctx, `{"flag":"flag{late-%s}"}`, told.ownerID)
			},
		}),
		entry("when there is nothing to run", mishap{
			containers: []bergv1.Container{},
			condition:  bergv1.ConditionChallengeFound, reason: bergv1.ReasonNothingToRun,
			mend: func(ctx context.Context, s *stage, _ *story) { setContainers(ctx, s, toolbox("box")) },
		}),
		entry("when two ports give one variable", mishap{
			containers: []bergv1.Container{toolbox("box", port("a-b", 1, ""), port("a.b", 2, ""))},
			condition:  bergv1.ConditionChallengeFound, reason: bergv1.ReasonInvalidChallenge,
			mend: func(ctx context.Context, s *stage, _ *story) {
				setContainers(ctx, s, toolbox("box", port("a-b", 1, ""), port("c", 2, "")))
			},
		}),
	)

	DescribeTable("is refused in a Challenge, naming the field", func(ctx SpecContext, container, field string) {
		stage := newStage(ctx)
		challenge := stage.parse("Challenge", "containers: ["+container+"]")
		err := world.Create(ctx, challenge)
		Expect(apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)).To(BeTrue(), "the API server answered: %v", err)
		Expect(err).To(MatchError(ContainSubstring(field)))
	},
		entry("an unparsable quantity", `{hostname: a, image: b, resourceLimits: {cpu: a lot}}`, "spec.containers[0].resourceLimits.cpu"),
		entry("a port type of the old schema", `{hostname: a, image: b, ports: [{port: 80, type: http}]}`, "spec.containers[0].ports[0].type"),
		entry("an unknown protocol", `{hostname: a, image: b, ports: [{port: 80, protocol: sctp}]}`, "spec.containers[0].ports[0].protocol"),
		entry("a port that cannot be", `{hostname: a, image: b, ports: [{port: 65536}]}`, "spec.containers[0].ports[0].port"),
		entry("a container without a name", `{image: b}`, "spec.containers[0].hostname"),
		entry("a container without an image", `{hostname: a}`, "spec.containers[0].image"),
		entry("two containers of one name", `{hostname: a, image: b}, {hostname: a, image: b}`, "spec.containers[1]"),
		entry("two flags in one", `{hostname: a, image: b, dynamicFlag: {env: {name: F}, content: {path: /f}}}`, "spec.containers[0].dynamicFlag"),
		entry("a flag in a relative path", `{hostname: a, image: b, dynamicFlag: {content: {path: flag.txt}}}`, "spec.containers[0].dynamicFlag.content.path"),
	)

	DescribeTable("is refused in an instance, naming the field", func(ctx SpecContext, spec, field string) {
		stage := newStage(ctx)
		err := world.Create(ctx, stage.parse("ChallengeInstance", spec))
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "the API server answered: %v", err)
		Expect(err).To(MatchError(ContainSubstring(field)))
	},
		entry("no Challenge", `ownerId: 01234567-89ab-cdef-0123-456789abcdef`, "spec.challengeRef"),
		entry("no owner", `challengeRef: {name: a}`, "spec.ownerId"),
		entry("an owner that is no UUID", "challengeRef: {name: a}\nownerId: somebody", "spec.ownerId"),
		entry("no time at all", "challengeRef: {name: a}\nownerId: 01234567-89ab-cdef-0123-456789abcdef\ntimeout: 0s", "spec.timeout"),
		entry("time that does not parse", "challengeRef: {name: a}\nownerId: 01234567-89ab-cdef-0123-456789abcdef\ntimeout: soon", "spec.timeout"),
		entry("a reason that is none", "challengeRef: {name: a}\nownerId: 01234567-89ab-cdef-0123-456789abcdef\nterminationReason: Boredom", "spec.terminationReason"),
	)

	It("cannot change who an instance is for, what it runs, or its flag", func(ctx SpecContext) {
		stage := newStage(ctx)
		told := stage.start(ctx, stage.instance("missing"))
		told.expectPhase(ctx, reactLimit, bergv1.PhaseFailed)
		for field, patch := range map[string]string{
			"challengeRef": `{"challengeRef":{"name":"another"}}`,
			"ownerId":      `{"ownerId":"01234567-89ab-cdef-0123-456789abcdef"}`,
			"flag":         `{"flag":"flag{another}"}`,
		} {
			err := told.tryPatch(ctx, "%s", patch)
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%s: the API server answered: %v", field, err)
			Expect(err).To(MatchError(ContainSubstring(field)))
			Expect(strings.Contains(err.Error(), told.flag)).To(BeFalse(), "the refusal of a change of %s tells the flag", field)
			Expect(strings.Contains(err.Error(), "flag{another}")).To(BeFalse(), "the refusal of a change of %s tells the new flag", field)
		}
	}, SpecTimeout(specLimit))

	It("leaves a namespace alone that is not the operator's", func(ctx SpecContext) {
		stage := newStage(ctx)
		stage.challenge(ctx, "toolbox", toolbox("box"))
		instance := stage.instance("toolbox")
		foreign := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Namespace",
			"metadata": map[string]any{"name": "challenge-" + instance.Spec.OwnerID},
		}}
		Expect(world.Create(ctx, foreign)).To(Succeed())
		uid := foreign.GetUID()
		removed := false
		remove := func(ctx context.Context) {
			if removed {
				return
			}
			Expect(world.Delete(ctx, foreign)).To(Succeed())
			until(ctx, deleteLimit, func(ctx context.Context) error { return world.namespaceGone(ctx, foreign.GetName()) })
			removed = true
		}
		DeferCleanup(func(ctx SpecContext) { remove(ctx) }, NodeTimeout(deleteLimit))

		told := stage.start(ctx, instance)
		told.expectCondition(ctx, reactLimit, bergv1.ConditionNamespaceCreated, metav1.ConditionFalse, bergv1.ReasonNamespaceConflict)
		Expect(told.now().Status.Phase).To(Equal(bergv1.PhaseFailed))
		told.delete(ctx)
		told.expect(ctx, deleteLimit, "end", func(m moment) bool { return m.gone })
		Expect(world.Get(ctx, client.ObjectKeyFromObject(foreign), foreign)).To(Succeed(), "the operator deleted a namespace that is not its own")
		Expect(foreign.GetUID()).To(Equal(uid))
		Expect(foreign.GetDeletionTimestamp()).To(BeNil())
		Expect(foreign.GetLabels()).NotTo(HaveKey(bergv1.LabelManagedBy))
		remove(ctx)
	}, SpecTimeout(specLimit))
})

// parse returns an object of our group as somebody wrote it, valid or not.
func (s *stage) parse(kind, spec string) *unstructured.Unstructured {
	GinkgoHelper()
	object := &unstructured.Unstructured{Object: map[string]any{}}
	parsed := map[string]any{}
	Expect(yaml.Unmarshal([]byte(spec), &parsed)).To(Succeed())
	object.Object["spec"] = parsed
	object.SetAPIVersion(bergv1.GroupVersion.String())
	object.SetKind(kind)
	object.SetNamespace(s.namespace)
	object.SetName(fmt.Sprintf("bad-%s", strings.ToLower(kind)))
	return object
}

var _ = Describe("What a node refuses", func() {
	It("is told in the runtime's words: a RuntimeClass whose handler the node does not know", func(ctx SpecContext) {
		stage := newStage(ctx)
		name := stage.namespace
		handledBy := func(handler string) *nodev1.RuntimeClass {
			return &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: handler}
		}
		Expect(world.Create(ctx, handledBy("no-such-handler"))).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(world.Delete(ctx, handledBy(""))).To(Succeed()) }, NodeTimeout(reactLimit))
		container := toolbox("box")
		container.RuntimeClassName = name
		stage.challenge(ctx, "unhandled", container)
		told := stage.start(ctx, stage.instance("unhandled"))
		told.expectSaid(ctx, "FailedCreatePodSandBox", `no runtime for "no-such-handler" is configured`)
		Expect(told.now().Status.Phase).To(Equal(bergv1.PhaseStarting))
		expectEvents(ctx, told, "FailedCreatePodSandBox")

		By("mending the RuntimeClass")
		Expect(world.Delete(ctx, handledBy(""))).To(Succeed())
		Expect(world.Create(ctx, handledBy("runc"))).To(Succeed())
		told.expectPhase(ctx, startLimit, bergv1.PhaseRunning)
		told.expectCondition(ctx, reactLimit, bergv1.ConditionHealthy, metav1.ConditionTrue, bergv1.ReasonReady)
	}, SpecTimeout(specLimit))

	It("is told in the runtime's words: a file where the image has a folder", func(ctx SpecContext) {
		stage := newStage(ctx)
		container := toolbox("box")
		container.DynamicFlag = &bergv1.DynamicFlag{Content: &bergv1.FlagFile{Path: "/tmp"}}
		stage.challenge(ctx, "misplaced", container)
		told := stage.start(ctx, stage.instance("misplaced"))
		told.expectSaid(ctx, "CrashLoopBackOff", "StartError: ")
		told.expectSaid(ctx, "CrashLoopBackOff", "/tmp")
		told.delete(ctx)
		told.expectEnd(ctx)
	}, SpecTimeout(specLimit))

	It("is told with the exit code of a container that ends by itself", func(ctx SpecContext) {
		stage := newStage(ctx)
		container := toolbox("box")
		container.Environment = map[string]bergv1.EnvironmentValue{"TOOLBOX_EXIT": bergv1.StringValue("3")}
		stage.challenge(ctx, "ending", container)
		told := stage.start(ctx, stage.instance("ending"))
		told.expectNow(ctx, startLimit, "exit code 3", func(i *bergv1.ChallengeInstance) bool {
			return slices.ContainsFunc(i.Status.Conditions, func(c metav1.Condition) bool {
				return c.Reason == "CrashLoopBackOff" && strings.Contains(c.Message, "exit code 3")
			})
		})
	}, SpecTimeout(specLimit))
})

// expectSaid waits until pods are not ready for a reason, with a text in its message.
func (s *story) expectSaid(ctx context.Context, reason, text string) {
	GinkgoHelper()
	s.expectNow(ctx, startLimit, fmt.Sprintf("%s because of %s: %s", bergv1.ConditionPodsReady, reason, text), func(i *bergv1.ChallengeInstance) bool {
		return slices.ContainsFunc(i.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == bergv1.ConditionPodsReady && c.Status == metav1.ConditionFalse && c.Reason == reason && strings.Contains(c.Message, text)
		})
	})
}
