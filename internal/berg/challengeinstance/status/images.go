package status

import (
	"crypto/sha256"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/digests"
)

// RunningImages returns the images of running containers whose nodes pull the image at every start. A container with
// another pull policy is left out: its node may keep an older image under the same name. The newest pod that
// runs counts.
func RunningImages(o Observed) map[string]digests.Running {
	all := map[string]digests.Running{}
	if o.Pinned == nil {
		return all
	}
	for _, c := range o.Pinned.Containers {
		if manifests.ImagePullPolicy(o.Pinned.Defaults.ImagePullPolicy, c) != corev1.PullAlways {
			continue
		}
		live, _ := ContainerPods(o.Pods, c.Hostname)
		for _, p := range live {
			index := slices.IndexFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == c.Hostname })
			if index < 0 {
				continue
			}
			if s := p.Status.ContainerStatuses[index]; s.State.Running != nil && s.ImageID != "" {
				all[c.Hostname] = digests.Running{Image: c.Image, Digest: s.ImageID, Started: s.State.Running.StartedAt.Time}
				break
			}
		}
	}
	return all
}

// replaced names the containers whose image newer instances do not run any more, sorted. Until this process has observed a
// newer instance, the status keeps its report about containers that have not been started since.
func replaced(o Observed) []string {
	var names []string
	before := meta.FindStatusCondition(o.Instance.Status.Conditions, bergv1.ConditionUpToDate)
	kept := before != nil && before.Status == metav1.ConditionFalse && before.Reason == bergv1.ReasonImageChanged
	for name := range o.Replaced {
		names = append(names, name)
	}
	if len(names) == 0 && kept {
		for name, image := range RunningImages(o) {
			if image.Started.Before(before.LastTransitionTime.Time) && image.Digest != o.Instance.Status.Images[name] {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// refreshed returns the digests with which the containers of a snapshot are annotated: the digests that a rollout adopts
// now, and the digests of earlier rollouts, because a pod restarts when its annotation disappears. Right after a start of this
// process the digest may be unknown of an image that the status reports as replaced. Then the rollout itself stands for it: its
// node pulls the image that is newest.
func refreshed(o *Observed, pinned manifests.Snapshot) map[string]string {
	var all map[string]string
	names := replaced(*o)
	for _, c := range pinned.Containers {
		digest := o.Replaced[c.Hostname]
		if digest == "" && slices.Contains(names, c.Hostname) {
			request := sha256.Sum256([]byte(o.Instance.Annotations[bergv1.AnnotationRollout]))
			digest = fmt.Sprintf("rollout-%x", request[:4])
		}
		if digest == "" {
			digest = o.Instance.Status.Images[c.Hostname]
		}
		if digest == "" {
			continue
		}
		if all == nil {
			all = map[string]string{}
		}
		all[c.Hostname] = digest
	}
	return all
}
