package manifests

import (
	"cmp"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// StartupPort returns the port that must accept a connection before a container counts as ready, 0 for none. Kubernetes
// connects to one port of a container: the first public one. An author's readiness probe replaces it, since it knows more
// about the program.
func StartupPort(c bergv1.Container) int32 {
	if c.ReadinessProbe != nil {
		return 0
	}
	for _, p := range c.Ports {
		if p.ConnectsAtStart() {
			return p.Port
		}
	}
	return 0
}

// startupProbe returns the probe of StartupPort. A program that loads for long is not restarted: the start deadline and the
// lifetime of the instance end it. But Kubernetes asks the author's liveness probe only when the startup probe has
// succeeded, so a program that hangs is restarted when that probe would have done it.
func startupProbe(c bergv1.Container) *corev1.Probe {
	port := StartupPort(c)
	if port == 0 {
		return nil
	}
	probe := &corev1.Probe{
		ProbeHandler:     corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(port)}},
		TimeoutSeconds:   1,
		PeriodSeconds:    1, // the minimum
		SuccessThreshold: 1,
		FailureThreshold: math.MaxInt32,
	}
	if l := c.LivenessProbe; l != nil {
		seconds := int64(l.InitialDelaySeconds) + int64(cmp.Or(l.PeriodSeconds, defaultPeriod))*int64(cmp.Or(l.FailureThreshold, defaultFailures))
		probe.FailureThreshold = int32(min(seconds, math.MaxInt32))
	}
	return probe
}

// Kubernetes sets these values in a probe without them.
const defaultPeriod, defaultFailures = 10, 3
