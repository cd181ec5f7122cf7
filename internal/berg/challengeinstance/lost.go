package challengeinstance

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/kit/apply"
)

// workloads returns the Deployments. Where the private part of the snapshot is lost, the Challenge has it if that results in
// what runs, and it is stored again. Otherwise what runs keeps its variables, commands and probes: a pod with others would
// be another challenge, and would restart.
func (r *Reconciler) workloads(o *status.Observed, in manifests.Inputs, reached []manifests.Endpoint) ([]*appsv1.Deployment, error) {
	if o.Pinned.Seal != manifests.SealLost {
		return manifests.PlanWorkloads(in, reached), nil
	}
	if o.Challenge != nil {
		if found, ok := o.Pinned.WithValuesFrom(o.Challenge); ok {
			in.Challenge = found
			planned := manifests.PlanWorkloads(in, reached)
			if same, err := r.areRunning(*o, planned); err != nil || same {
				o.Pinned = &found
				return planned, err
			}
		}
	}
	in.Challenge, in.Running = *o.Pinned, map[string]corev1.Container{}
	for _, c := range o.Pinned.Containers {
		live := o.Deployments[c.Hostname]
		if live == nil {
			return nil, &status.LostError{Container: c.Hostname}
		}
		for _, running := range live.Spec.Template.Spec.Containers {
			if running.Name == c.Hostname { // admission may have added others
				in.Running[c.Hostname] = running
			}
		}
	}
	return manifests.PlanWorkloads(in, reached), nil
}

// areRunning reports whether the Deployments that exist were written from a plan.
func (r *Reconciler) areRunning(o status.Observed, planned []*appsv1.Deployment) (bool, error) {
	owner := manifests.OwnerFor(o.Instance)
	for _, d := range planned {
		live := o.Deployments[d.Name]
		if live == nil {
			continue
		}
		sum, err := apply.PlanChecksum(r.Writer, owner, d)
		if err != nil || live.Annotations[apply.ChecksumAnnotation(owner.Annotation)] != sum {
			return false, err
		}
	}
	return true, nil
}
