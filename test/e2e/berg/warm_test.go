package berg

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/journey"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

// bootTime is how long a container boots.
const bootTime = 20 * time.Second

var _ = Describe("A prepared instance on real pods", Label("warm"), Serial, func() {
	It("is a player's before a new one would have booted, with its flag, although its container boots for twenty", func(ctx SpecContext) {
		allow(ctx, "warm")
		withSetting(ctx, "CHALLENGE_WARM_MAX_INSTANCES", "10")
		stage := journey.NewStage(ctx)
		port := bergv1.Port{Port: 8080, Type: bergv1.PublicPort}
		boots := func(name string) bergv1.Container {
			box := journey.Toolbox(name, port)
			box.Environment = map[string]bergv1.EnvironmentValue{"TOOLBOX_TCP": bergv1.StringValue(":8080")}
			box.ReadinessProbe = &corev1.Probe{
				ProbeHandler:        corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}},
				InitialDelaySeconds: int32(bootTime / time.Second), PeriodSeconds: 1,
			}
			box.DynamicFlag = &bergv1.DynamicFlag{Content: &bergv1.FlagFile{Path: "/run/flag/flag.txt"}, Late: bergv1.LateFile}
			return box
		}
		stage.Challenge(ctx, "cold", boots("box"))
		cold := startTime(ctx, stage, "cold")
		Expect(cold).To(BeNumerically(">=", bootTime))

		prepare(ctx, stage, "warm", 3, boots("box")) // what replaces them boots too
		for range 3 {
			warm := startTime(ctx, stage, "warm")
			AddReportEntry("warm", fmt.Sprintf("%s, cold %s", warm.Round(time.Millisecond), cold.Round(time.Millisecond)))
			Expect(warm).To(BeNumerically("<", bootTime), "it waited for a program that had booted")
			story := stage.Stories[len(stage.Stories)-1]
			Eventually(func() string {
				out, err := world.Exec(ctx, story.InstanceNamespace(), "box", "", "cat", "/run/flag/flag.txt")
				if err != nil {
					return err.Error()
				}
				return out.Stdout
			}).WithTimeout(5 * time.Second).Should(Equal(story.Flag + "\n"))
		}
	}, SpecTimeout(limits.Scaled(8*time.Minute)))

	It("has each form of flag when its container starts", func(ctx SpecContext) {
		allow(ctx, "warm")
		withSetting(ctx, "CHALLENGE_WARM_MAX_INSTANCES", "10")
		stage := journey.NewStage(ctx)
		variable, content, program := journey.Toolbox("variable"), journey.Toolbox("content"), journey.Toolbox("program")
		variable.DynamicFlag = &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: "FLAG"}}
		content.DynamicFlag = &bergv1.DynamicFlag{Content: &bergv1.FlagFile{Path: "/flag.txt"}}
		program.DynamicFlag = &bergv1.DynamicFlag{Executable: &bergv1.FlagFile{Path: "/get_flag"}}
		stage.Challenge(ctx, "cold", variable, content, program)
		var cold, warm []time.Duration
		for range 3 {
			cold = append(cold, startTime(ctx, stage, "cold"))
		}
		prepare(ctx, stage, "warm", 3, variable, content, program)
		for range 3 {
			warm = append(warm, startTime(ctx, stage, "warm"))
			story := stage.Stories[len(stage.Stories)-1]
			ns := story.InstanceNamespace()
			Expect(ns).NotTo(ContainSubstring(story.OwnerID), "it took over no prepared one")
			Expect(world.Run(ctx, ns, "content", "cat", "/flag.txt")).To(Equal(story.Flag + "\n"))
			Expect(world.Run(ctx, ns, "program", "run", "/get_flag")).To(Equal(story.Flag))
			Expect(world.Run(ctx, ns, "variable", "printenv", "FLAG")).To(ContainSubstring(story.Flag))
		}
		AddReportEntry("forms", fmt.Sprintf("warm %v, cold %v", warm, cold))
	}, SpecTimeout(limits.Scaled(8*time.Minute)))
})

// startTime starts an instance and returns the time from its creation until it runs.
func startTime(ctx context.Context, stage *journey.Stage, challenge string) time.Duration {
	GinkgoHelper()
	began := time.Now()
	story := stage.Start(ctx, stage.Instance(challenge))
	return story.Expect(ctx, deployed.StartLimit, "Running", func(m journey.Moment) bool {
		return m.Instance.Status.Phase == bergv1.PhaseRunning
	}).At.Sub(began)
}

// prepare creates a Challenge with prepared instances, and waits until all can be taken over.
func prepare(ctx context.Context, stage *journey.Stage, name string, count int, containers ...bergv1.Container) {
	GinkgoHelper()
	c := stage.Challenge(ctx, name, containers...)
	before := c.DeepCopy()
	c.Spec.Warm = &bergv1.Warm{Min: int32(count)}
	Expect(world.Patch(ctx, c, client.MergeFrom(before))).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(world.Delete(ctx, c))).To(Succeed()) }, NodeTimeout(deployed.ReactLimit))
	expect.Until(ctx, deployed.StartLimit, func(ctx context.Context) error {
		var all bergv1.ChallengeInstanceList
		if err := world.List(ctx, &all, client.MatchingLabels{bergv1.LabelPrepared: string(c.UID)}); err != nil {
			return err
		}
		ready := 0
		for i := range all.Items {
			if status.Claimable(&all.Items[i]) {
				ready++
			}
		}
		return deployed.ErrorIf(ready < count, fmt.Sprintf("%d of %d are ready", ready, count))
	})
}
