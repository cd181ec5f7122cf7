package deployed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/format"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

var (
	// StartLimit covers pulling an image, starting pods and readiness on two busy
	// cores.
	StartLimit = limits.Scaled(90 * time.Second)
	// DeleteLimit covers the deletion of a namespace with running pods.
	DeleteLimit = limits.Scaled(90 * time.Second)
	// ReactLimit covers what the operator does without any pod starting.
	ReactLimit = limits.Scaled(20 * time.Second)
	// SpecLimit ends a journey that hangs.
	SpecLimit = limits.Scaled(5 * time.Minute)
)

const (
	pollInterval = 100 * time.Millisecond

	// StageLabel marks the namespaces that specs make. A suite waits at its end until there
	// are none.
	StageLabel = "e2e.berg.norelect.ch/stage"
	// ToolboxImage is an image that does what it is asked.
	ToolboxImage = "ghcr.io/bergctf/samples/toolbox:v0.1.0"
)

// Run runs the specs of a suite on the cluster of KUBECONFIG, which has the operator deployed.
func Run(t *testing.T, description string) {
	t.Helper()
	// A line on standard error instead of a suite of failures that all say it.
	if os.Getenv("KUBECONFIG") == "" {
		t.Fatal("KUBECONFIG is not set: run `make e2e`, or point it to a cluster with the operator deployed")
	}
	// One object printed in full hides everything else.
	format.MaxLength = 2000
	RegisterFailHandler(Fail)
	SetDefaultEventuallyPollingInterval(pollInterval)
	SetDefaultConsistentlyPollingInterval(pollInterval)
	RunSpecs(t, description)
}

// Begin connects to the cluster, and finds the operator in it: before the specs. At their
// end, it expects the namespaces with StageLabel to be gone, and no pod of the operator to
// have been restarted.
func Begin(ctx SpecContext) *Cluster {
	GinkgoHelper()
	apiserver.Connect()
	var err error
	World, err = find(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(expectNoStage, NodeTimeout(DeleteLimit))
	DeferCleanup(ExpectNoRestart, NodeTimeout(limits.Scaled(time.Minute)))
	return World
}

// ExpectNoRestart finds a panic or a failed probe, which would pass for a short
// pause: the operator goes on after it.
func ExpectNoRestart(ctx SpecContext) {
	GinkgoHelper()
	pods, err := World.OperatorPods(ctx)
	Expect(err).NotTo(HaveOccurred())
	for _, pod := range pods {
		for _, c := range pod.Status.ContainerStatuses {
			Expect(c.RestartCount).To(BeZero(), "container %s of %s was restarted; it ended with %+v", c.Name, pod.Name, c.LastTerminationState.Terminated)
		}
	}
}

// expectNoStage waits for what specs leave to the namespace controller, which
// looks at a namespace only every few seconds.
func expectNoStage(ctx SpecContext) {
	expect.Until(ctx, DeleteLimit, func(ctx context.Context) error {
		var stages corev1.NamespaceList
		if err := World.List(ctx, &stages, client.HasLabels{StageLabel}); err != nil {
			return err
		}
		return ErrorIf(len(stages.Items) > 0, fmt.Sprintf("%d stages are left", len(stages.Items)))
	})
}

// SpecEntry is Entry with the time limit of a spec, which a table as a whole cannot
// have.
func SpecEntry(description string, args ...any) TableEntry {
	return Entry(description, append(args, SpecTimeout(SpecLimit), Offset(1))...)
}

// ErrorIf turns a condition that must not hold into an error that says so.
func ErrorIf(holds bool, what string) error {
	if holds {
		return errors.New(what)
	}
	return nil
}
