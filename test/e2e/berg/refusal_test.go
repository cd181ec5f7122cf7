package berg

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
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/journey"
)

// problem is an instance that cannot be built, and how it is fixed.
type problem struct {
	// containers of its Challenge; nil for no Challenge at all.
	containers []bergv1.Container
	noFlag     bool

	condition, reason string
	// event about it, if one is promised.
	event string

	fix func(ctx context.Context, s *journey.Stage, reported *journey.Story)
}

func wantsFlag(c bergv1.Container) bergv1.Container {
	c.DynamicFlag = &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: "FLAG"}}
	return c
}

// setContainers fixes the Challenge.
func setContainers(ctx context.Context, s *journey.Stage, containers ...bergv1.Container) {
	GinkgoHelper()
	text, err := json.Marshal(map[string]any{"spec": map[string]any{"containers": containers}})
	Expect(err).NotTo(HaveOccurred())
	challenge := &bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Name: "broken", Namespace: s.Namespace}}
	Expect(world.Patch(ctx, challenge, client.RawPatch("application/merge-patch+json", text))).To(Succeed())
}

var _ = Describe("Bad input", func() {
	DescribeTable("fails without a trace, and continues once it is fixed", func(ctx SpecContext, p problem) {
		stage := journey.NewStage(ctx)
		if p.containers != nil {
			stage.Challenge(ctx, "broken", p.containers...)
		}
		instance := stage.Instance("broken")
		if p.noFlag {
			instance.Spec.Flag = ""
		}
		reported := stage.Start(ctx, instance)
		failed := reported.ExpectCondition(ctx, deployed.ReactLimit, p.condition, metav1.ConditionFalse, p.reason)
		Expect(failed.Status.Phase).To(Equal(bergv1.PhaseFailed))
		Expect(world.NamespaceGone(ctx, reported.InstanceNamespace())).To(Succeed(), "something was half made")
		if p.event != "" {
			expectEvents(ctx, reported, p.event)
		}

		p.fix(ctx, stage, reported)
		reported.ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning)
	},
		deployed.SpecEntry("when the Challenge is missing", problem{
			condition: bergv1.ConditionChallengeFound, reason: bergv1.ReasonChallengeMissing, event: "ChallengeMissing",
			fix: func(ctx context.Context, s *journey.Stage, _ *journey.Story) {
				s.Challenge(ctx, "broken", journey.Toolbox("box"))
			},
		}),
		deployed.SpecEntry("when the flag is missing", problem{
			containers: []bergv1.Container{wantsFlag(journey.Toolbox("box"))}, noFlag: true,
			condition: bergv1.ConditionFlagValidation, reason: bergv1.ReasonFlagMissing, event: "FlagMissing",
			fix: func(ctx context.Context, _ *journey.Stage, reported *journey.Story) {
				reported.Patch(ctx, `{"flag":"flag{late-%s}"}`, reported.OwnerID)
			},
		}),
		deployed.SpecEntry("when there is nothing to run", problem{
			containers: []bergv1.Container{},
			condition:  bergv1.ConditionChallengeFound, reason: bergv1.ReasonNothingToRun,
			fix: func(ctx context.Context, s *journey.Stage, _ *journey.Story) {
				setContainers(ctx, s, journey.Toolbox("box"))
			},
		}),
		deployed.SpecEntry("when two ports give one variable", problem{
			containers: []bergv1.Container{journey.Toolbox("box", newPort("a-b", 1, ""), newPort("a.b", 2, ""))},
			condition:  bergv1.ConditionChallengeFound, reason: bergv1.ReasonInvalidChallenge,
			fix: func(ctx context.Context, s *journey.Stage, _ *journey.Story) {
				setContainers(ctx, s, journey.Toolbox("box", newPort("a-b", 1, ""), newPort("c", 2, "")))
			},
		}),
	)

	DescribeTable("is refused in a Challenge, naming the field", func(ctx SpecContext, container, field string) {
		stage := journey.NewStage(ctx)
		challenge := parse(stage, "Challenge", "containers: ["+container+"]")
		err := world.Create(ctx, challenge)
		Expect(apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)).To(BeTrue(), "the API server answered: %v", err)
		Expect(err).To(MatchError(ContainSubstring(field)))
	},
		deployed.SpecEntry("an unparsable quantity", `{hostname: a, image: b, resourceLimits: {cpu: a lot}}`, "spec.containers[0].resourceLimits.cpu"),
		deployed.SpecEntry("a port type of the old schema", `{hostname: a, image: b, ports: [{port: 80, type: http}]}`, "spec.containers[0].ports[0].type"),
		deployed.SpecEntry("an unknown protocol", `{hostname: a, image: b, ports: [{port: 80, protocol: sctp}]}`, "spec.containers[0].ports[0].protocol"),
		deployed.SpecEntry("a port that cannot be", `{hostname: a, image: b, ports: [{port: 65536}]}`, "spec.containers[0].ports[0].port"),
		deployed.SpecEntry("a container without a name", `{image: b}`, "spec.containers[0].hostname"),
		deployed.SpecEntry("a container without an image", `{hostname: a}`, "spec.containers[0].image"),
		deployed.SpecEntry("two containers of one name", `{hostname: a, image: b}, {hostname: a, image: b}`, "spec.containers[1]"),
		deployed.SpecEntry("two flags in one", `{hostname: a, image: b, dynamicFlag: {env: {name: F}, content: {path: /f}}}`, "spec.containers[0].dynamicFlag"),
		deployed.SpecEntry("a flag in a relative path", `{hostname: a, image: b, dynamicFlag: {content: {path: flag.txt}}}`, "spec.containers[0].dynamicFlag.content.path"),
	)

	DescribeTable("is refused in an instance, naming the field", func(ctx SpecContext, spec, field string) {
		stage := journey.NewStage(ctx)
		err := world.Create(ctx, parse(stage, "ChallengeInstance", spec))
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "the API server answered: %v", err)
		Expect(err).To(MatchError(ContainSubstring(field)))
	},
		deployed.SpecEntry("no Challenge", `ownerId: 01234567-89ab-cdef-0123-456789abcdef`, "spec.challengeRef"),
		deployed.SpecEntry("no owner", `challengeRef: {name: a}`, "spec.ownerId"),
		deployed.SpecEntry("an owner that is no UUID", "challengeRef: {name: a}\nownerId: someone", "spec.ownerId"),
		deployed.SpecEntry("no time at all", "challengeRef: {name: a}\nownerId: 01234567-89ab-cdef-0123-456789abcdef\ntimeout: 0s", "spec.timeout"),
		deployed.SpecEntry("time that does not parse", "challengeRef: {name: a}\nownerId: 01234567-89ab-cdef-0123-456789abcdef\ntimeout: soon", "spec.timeout"),
		deployed.SpecEntry("a reason that is none", "challengeRef: {name: a}\nownerId: 01234567-89ab-cdef-0123-456789abcdef\nterminationReason: Boredom", "spec.terminationReason"),
	)

	It("cannot change who an instance is for, what it runs, or its flag", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		reported := stage.Start(ctx, stage.Instance("missing"))
		reported.ExpectPhase(ctx, deployed.ReactLimit, bergv1.PhaseFailed)
		for field, patch := range map[string]string{
			"challengeRef": `{"challengeRef":{"name":"another"}}`,
			"ownerId":      `{"ownerId":"01234567-89ab-cdef-0123-456789abcdef"}`,
			"flag":         `{"flag":"flag{another}"}`,
		} {
			err := reported.TryPatch(ctx, "%s", patch)
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%s: the API server answered: %v", field, err)
			Expect(err).To(MatchError(ContainSubstring(field)))
			Expect(strings.Contains(err.Error(), reported.Flag)).To(BeFalse(), "the refusal of a change of %s tells the flag", field)
			Expect(strings.Contains(err.Error(), "flag{another}")).To(BeFalse(), "the refusal of a change of %s tells the new flag", field)
		}
	}, SpecTimeout(deployed.SpecLimit))

	It("leaves a namespace alone that is not the operator's", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		stage.Challenge(ctx, "toolbox", journey.Toolbox("box"))
		instance := stage.Instance("toolbox")
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
			expect.Until(ctx, deployed.DeleteLimit, func(ctx context.Context) error { return world.NamespaceGone(ctx, foreign.GetName()) })
			removed = true
		}
		DeferCleanup(func(ctx SpecContext) { remove(ctx) }, NodeTimeout(deployed.DeleteLimit))

		reported := stage.Start(ctx, instance)
		reported.ExpectCondition(ctx, deployed.ReactLimit, bergv1.ConditionNamespaceCreated, metav1.ConditionFalse, bergv1.ReasonNamespaceConflict)
		Expect(reported.Now().Status.Phase).To(Equal(bergv1.PhaseFailed))
		reported.Delete(ctx)
		reported.Expect(ctx, deployed.DeleteLimit, "end", func(m journey.Moment) bool { return m.Gone })
		Expect(world.Get(ctx, client.ObjectKeyFromObject(foreign), foreign)).To(Succeed(), "the operator deleted a namespace that is not its own")
		Expect(foreign.GetUID()).To(Equal(uid))
		Expect(foreign.GetDeletionTimestamp()).To(BeNil())
		Expect(foreign.GetLabels()).NotTo(HaveKey(bergv1.LabelManagedBy))
		remove(ctx)
	}, SpecTimeout(deployed.SpecLimit))
})

// parse returns an object of our group as a user wrote it, valid or not.
func parse(s *journey.Stage, kind, spec string) *unstructured.Unstructured {
	GinkgoHelper()
	object := &unstructured.Unstructured{Object: map[string]any{}}
	parsed := map[string]any{}
	Expect(yaml.Unmarshal([]byte(spec), &parsed)).To(Succeed())
	object.Object["spec"] = parsed
	object.SetAPIVersion(bergv1.GroupVersion.String())
	object.SetKind(kind)
	object.SetNamespace(s.Namespace)
	object.SetName(fmt.Sprintf("bad-%s", strings.ToLower(kind)))
	return object
}

var _ = Describe("What a node refuses", Label("versions"), func() {
	It("is reported in the runtime's words: a RuntimeClass whose handler the node does not know", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		name := stage.Namespace
		handledBy := func(handler string) *nodev1.RuntimeClass {
			return &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: handler}
		}
		Expect(world.Create(ctx, handledBy("no-such-handler"))).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(world.Delete(ctx, handledBy(""))).To(Succeed()) }, NodeTimeout(deployed.ReactLimit))
		container := journey.Toolbox("box")
		container.RuntimeClassName = name
		stage.Challenge(ctx, "unhandled", container)
		reported := stage.Start(ctx, stage.Instance("unhandled"))
		expectSaid(ctx, reported, "FailedCreatePodSandBox", `no runtime for "no-such-handler" is configured`)
		Expect(reported.Now().Status.Phase).To(Equal(bergv1.PhaseStarting))
		expectEvents(ctx, reported, "FailedCreatePodSandBox")

		By("fixing the RuntimeClass")
		Expect(world.Delete(ctx, handledBy(""))).To(Succeed())
		Expect(world.Create(ctx, handledBy("runc"))).To(Succeed())
		reported.ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning)
		reported.ExpectCondition(ctx, deployed.ReactLimit, bergv1.ConditionHealthy, metav1.ConditionTrue, bergv1.ReasonReady)
	}, SpecTimeout(deployed.SpecLimit))

	It("is reported in the runtime's words: a file below a file of the image", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		container := journey.Toolbox("box")
		container.DynamicFlag = &bergv1.DynamicFlag{Content: &bergv1.FlagFile{Path: "/usr/bin/toolbox/flag"}}
		stage.Challenge(ctx, "misplaced", container)
		reported := stage.Start(ctx, stage.Instance("misplaced"))
		expectSaid(ctx, reported, "CrashLoopBackOff", "StartError: ")
		expectSaid(ctx, reported, "CrashLoopBackOff", "/usr/bin/toolbox")
		reported.Delete(ctx)
		reported.ExpectEnd(ctx)
	}, SpecTimeout(deployed.SpecLimit))

	It("is reported with the exit code of a container that ends by itself", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		container := journey.Toolbox("box")
		container.Environment = map[string]bergv1.EnvironmentValue{"TOOLBOX_EXIT": bergv1.StringValue("3")}
		stage.Challenge(ctx, "ending", container)
		reported := stage.Start(ctx, stage.Instance("ending"))
		reported.ExpectNow(ctx, deployed.StartLimit, "exit code 3", func(i *bergv1.ChallengeInstance) bool {
			return slices.ContainsFunc(i.Status.Conditions, func(c metav1.Condition) bool {
				return c.Reason == "CrashLoopBackOff" && strings.Contains(c.Message, "exit code 3")
			})
		})
	}, SpecTimeout(deployed.SpecLimit))
})

// expectSaid waits until pods are not ready for a reason, with a text in its message.
func expectSaid(ctx context.Context, s *journey.Story, reason, text string) {
	GinkgoHelper()
	s.ExpectNow(ctx, deployed.StartLimit, fmt.Sprintf("%s because of %s: %s", bergv1.ConditionPodsReady, reason, text), func(i *bergv1.ChallengeInstance) bool {
		return slices.ContainsFunc(i.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == bergv1.ConditionPodsReady && c.Status == metav1.ConditionFalse && c.Reason == reason && strings.Contains(c.Message, text)
		})
	})
}
