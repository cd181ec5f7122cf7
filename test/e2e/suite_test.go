// Package e2e plays the journeys of challenge instances on a cluster with real
// pods and a deployed operator, as a platform, a player and an administrator
// would see them.
//
// It takes the cluster from KUBECONFIG and leaves nothing behind in it. The
// images of test/images must be there to pull, and the nodes' addresses must be
// reachable from here. `make e2e` provides all of that.
package e2e

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/format"
)

const (
	// startLimit covers pulling an image, starting pods and readiness on two busy
	// cores.
	startLimit = 90 * time.Second
	// deleteLimit covers the deletion of a namespace with running pods.
	deleteLimit = 90 * time.Second
	// reactLimit covers what the operator does without any pod starting.
	reactLimit = 20 * time.Second
	// specLimit ends a journey that hangs.
	specLimit = 5 * time.Minute

	pollInterval = 100 * time.Millisecond
)

func TestJourneys(t *testing.T) {
	// A line on standard error instead of a suite of failures that all say it.
	if os.Getenv("KUBECONFIG") == "" {
		t.Fatal("KUBECONFIG is not set: run `make e2e`, or point it to a cluster with the operator deployed")
	}
	// One object printed in full hides everything else.
	format.MaxLength = 2000
	RegisterFailHandler(Fail)
	SetDefaultEventuallyPollingInterval(pollInterval)
	SetDefaultConsistentlyPollingInterval(pollInterval)
	RunSpecs(t, "Challenge instances on real pods")
}

// world is the cluster under test. Specs do not change it.
var world *cluster

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	world, err = connect(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(expectNoStage, NodeTimeout(deleteLimit))
	DeferCleanup(expectNoRestart, NodeTimeout(time.Minute))
}, NodeTimeout(time.Minute))

// expectNoRestart finds a panic or a failed probe, which would pass for a short
// pause: the operator goes on after it.
func expectNoRestart(ctx SpecContext) {
	pods, err := world.operatorPods(ctx)
	Expect(err).NotTo(HaveOccurred())
	for _, pod := range pods {
		for _, c := range pod.Status.ContainerStatuses {
			Expect(c.RestartCount).To(BeZero(), "container %s of %s was restarted; it ended with %+v", c.Name, pod.Name, c.LastTerminationState.Terminated)
		}
	}
}

// entry is Entry with the time limit of a spec, which a table as a whole cannot
// have.
func entry(description string, args ...any) TableEntry {
	return Entry(description, append(args, SpecTimeout(specLimit), Offset(1))...)
}

// until waits for a condition on the cluster that is asked for again and again.
// look returns why it does not hold yet.
func until(ctx context.Context, limit time.Duration, look func(context.Context) error) {
	GinkgoHelper()
	Eventually(ctx, look).WithTimeout(limit).Should(Succeed())
}

// not turns a condition that must not hold into an error that says so.
func not(holds bool, what string) error {
	if holds {
		return errors.New(what)
	}
	return nil
}
