package operator

import (
	"os"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/isolation"
)

// newIsolationCheck returns what tries whether network policies are enforced.
func newIsolationCheck(mgr ctrl.Manager, cfg config.Config, clk clock.PassiveClock) (*isolation.Checker, error) {
	// A client of its own: nothing of the check is in the caches.
	direct, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return nil, err
	}
	// The kubelet names a container's host after its pod.
	pod, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return &isolation.Checker{
		Client: direct, Events: mgr.GetEventRecorder("berg-operator"), Clock: clk, Config: cfg,
		PodName: pod, Program: program, Settle: isolation.DefaultSettle,
	}, nil
}
