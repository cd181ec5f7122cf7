package olm

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bergctf/berg-operator/test/lib/podprocess"
)

// killOperator ends every process of the operator as a crash of the machine does.
func killOperator(ctx context.Context) {
	GinkgoHelper()
	pods, err := world.operatorPods(ctx)
	Expect(err).NotTo(HaveOccurred())
	killed := 0
	for _, pod := range pods {
		n, err := podprocess.Kill(pod.UID, "/manager")
		Expect(err).NotTo(HaveOccurred())
		killed += n
	}
	Expect(killed).NotTo(BeZero(), "no process of the operator was found in /proc")
}

// runsVersion is nil when a pod of this version has a process.
func runsVersion(ctx context.Context, version string) error {
	pods, err := world.operatorPods(ctx)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		for _, c := range pod.Status.ContainerStatuses {
			if ofVersion(pod.Spec.Containers[0], version) && c.State.Running != nil {
				return nil
			}
		}
	}
	return fmt.Errorf("none of %d pods runs %s", len(pods), version)
}
