package check

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/rules"
	"github.com/bergctf/berg-operator/internal/config"
)

const (
	jobName       = "solver"
	containerName = "solver"
	// flagFile is where a solver writes the flag. It is the container's termination message,
	// which the kubelet puts into the pod's status: no right to read logs is needed.
	flagFile = corev1.TerminationMessagePathDefault
	// solverUser owns nothing, in any image.
	solverUser = 65532
	// kept is how long a Job is kept that no operator deletes: longer than another leader
	// takes to come.
	kept = time.Hour
	// margin is how long after its timeouts a check expires if no operator ends it.
	margin = 5 * time.Minute
)

// lifetime is longer than a check takes, unless its operator is gone.
func lifetime(c *bergv1.ChallengeCheck) time.Duration { return 2*timeout(c) + margin }

// job runs the solver once. Its pod is kept in every case: the result is in its
// status.
func job(in Inputs) *batchv1.Job {
	m := meta(in.Check, jobName)
	m.Annotations = map[string]string{bergv1.CheckAnnotationInstance: string(in.Instance.UID)}
	j := &batchv1.Job{
		ObjectMeta: m,
		Spec: batchv1.JobSpec{
			Completions:             ptr.To[int32](1),
			Parallelism:             ptr.To[int32](1),
			BackoffLimit:            ptr.To[int32](0),
			ActiveDeadlineSeconds:   ptr.To(int64((timeout(in.Check) + margin).Seconds())),
			TTLSecondsAfterFinished: ptr.To(int32(kept.Seconds())),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels: map[string]string{bergv1.LabelManagedBy: bergv1.ManagedBy, bergv1.LabelComponent: bergv1.ComponentSolver},
					Annotations: map[string]string{
						"kubernetes.io/egress-bandwidth":                 in.Config.Challenge.EgressBandwidth,
						"kubernetes.io/ingress-bandwidth":                in.Config.Challenge.IngressBandwidth,
						"cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
					},
				},
				Spec: podSpec(in),
			},
		},
	}
	ownerFor(in.Check).SetOn(j)
	return j
}

// podSpec gives a solver no privilege at all, unlike a challenge: its image is the author's, and it has the flag. The flag comes
// back as the termination message, which is part of the status of the pod.
func podSpec(in Inputs) corev1.PodSpec {
	solver, cfg := in.Check.Spec.Solver, in.Config.Challenge
	spec := corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		EnableServiceLinks:            ptr.To(false),
		AutomountServiceAccountToken:  ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To[int64](0),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   ptr.To(true),
			RunAsUser:      ptr.To[int64](solverUser),
			RunAsGroup:     ptr.To[int64](solverUser),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name:                     containerName,
			Image:                    solver.Image,
			ImagePullPolicy:          cfg.ImagePullPolicy,
			Command:                  solver.Command,
			Env:                      environment(in),
			Resources:                resources(cfg, solver),
			TerminationMessagePath:   flagFile,
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}},
	}
	if solver.RuntimeClassName != "" {
		spec.RuntimeClassName = ptr.To(solver.RuntimeClassName)
	}
	if cfg.PullSecretName != "" {
		spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: cfg.PullSecretName}}
	}
	return spec
}

// environment returns the variables of a solver: the author's variables, the addresses of the
// ports, and the path of the file for the flag. A later variable replaces an earlier one of its
// name.
func environment(in Inputs) []corev1.EnvVar {
	var env []corev1.EnvVar
	set := func(name, value string) {
		env = slices.DeleteFunc(env, func(e corev1.EnvVar) bool { return e.Name == name })
		env = append(env, corev1.EnvVar{Name: name, Value: rules.Literal(value)})
	}
	set("HOME", "/tmp")
	for _, v := range in.Check.Spec.Solver.Env {
		set(v.Name, v.Value)
	}
	for _, s := range in.Instance.Status.Services {
		name, port := variable(s.Name), strconv.Itoa(int(s.Port))
		set(name+"_ENDPOINT", net.JoinHostPort(s.Hostname, port))
		set(name+"_HOST", s.Hostname)
		set(name+"_PORT", port)
		set(name+"_URL", s.URL)
	}
	set("FLAG_FILE", flagFile)
	return env
}

// variable begins the names of a port's variables.
func variable(port string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToUpper(port))
}

// resources fills in the amounts that the author leaves out, as for challenges.
func resources(cfg config.Challenge, solver bergv1.Solver) corev1.ResourceRequirements {
	var requests, limits bergv1.Resources
	if solver.ResourceRequests != nil {
		requests = *solver.ResourceRequests
	}
	if solver.ResourceLimits != nil {
		limits = *solver.ResourceLimits
	}
	out := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	fill := func(name corev1.ResourceName, request, limit *bergv1.Amount, defaultRequest, defaultLimit resource.Quantity) {
		l := amountOr(limit, defaultLimit)
		r := amountOr(request, defaultRequest)
		if r.Cmp(l) > 0 && request == nil {
			r = l
		}
		if r.Cmp(l) > 0 && limit == nil {
			l = r
		}
		out.Requests[name], out.Limits[name] = r, l
	}
	fill(corev1.ResourceCPU, requests.CPU, limits.CPU, cfg.CPURequest, cfg.CPULimit)
	fill(corev1.ResourceMemory, requests.Memory, limits.Memory, cfg.MemoryRequest, cfg.MemoryLimit)
	if l := cfg.EphemeralStorageLimit; !l.IsZero() {
		out.Limits[corev1.ResourceEphemeralStorage] = l.DeepCopy()
	}
	if r := cfg.EphemeralStorageRequest; !r.IsZero() || !cfg.EphemeralStorageLimit.IsZero() {
		out.Requests[corev1.ResourceEphemeralStorage] = r.DeepCopy()
	}
	return out
}

// amountOr parses an amount that the schema has accepted.
func amountOr(a *bergv1.Amount, otherwise resource.Quantity) resource.Quantity {
	if a == nil || *a == "" {
		return otherwise.DeepCopy()
	}
	q, err := a.Quantity()
	if err != nil {
		return otherwise.DeepCopy()
	}
	return q
}
