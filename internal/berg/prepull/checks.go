package prepull

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/kit/podstate"
)

// maxPull is the maximum time of one pull before another one gets its slot.
const maxPull = 30 * time.Minute

// PullState is the state of a pull: in progress, succeeded, or failed.
type PullState struct {
	Pulled, Failed bool
	// Message says why it failed, in the words of the registry where there are any.
	Message string
	// Left is how long it may still take.
	Left time.Duration
}

// imageProblems are the reasons for which the kubelet says that a container waits because of its
// image: pkg/kubelet/images/types.go and pkg/kubelet/container/sync_result.go.
var imageProblems = []string{
	"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
	"ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed",
}

// check returns the state of a pull.
func (p Pull) check(now time.Time) PullState {
	refused, message := status.ExplainRefusal(p.Deployment, now)
	if refused == bergv1.ReasonRefused {
		return PullState{Failed: true, Message: "the API server refuses its pod: " + message}
	}
	return checkPods(p.Deployment.CreationTimestamp.Time, p.Pods, cmp.Or(message, "no pod was made on the node"), now)
}

// checkPods returns the state of a pull that began at a time, from its pods. reason says why there is none. The kubelet's reasons
// are its interface here: no field says whether an image was pulled. An unknown reason counts as an error after the pull, so that
// a new version of the kubelet causes no endless pulls.
func checkPods(began time.Time, pods []*corev1.Pod, reason string, now time.Time) PullState {
	for _, p := range pods {
		if p.DeletionTimestamp != nil {
			continue
		}
		reason = cmp.Or(podstate.Scheduling(p), "the pull has not ended")
		i := slices.IndexFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == containerName })
		if i < 0 {
			continue
		}
		s := p.Status.ContainerStatuses[i].State
		switch {
		case s.Running != nil, s.Terminated != nil:
			return PullState{Pulled: true}
		case s.Waiting == nil || podstate.Passes(s.Waiting.Reason):
		case slices.Contains(imageProblems, s.Waiting.Reason):
			return PullState{Failed: true, Message: fmt.Sprintf("%s: %s", s.Waiting.Reason, s.Waiting.Message)}
		default:
			// It could not be created or started, which comes after the image.
			return PullState{Pulled: true}
		}
	}
	left := maxPull - now.Sub(began)
	if left <= 0 {
		return PullState{Failed: true, Message: fmt.Sprintf("not done after %s: %s", maxPull, reason)}
	}
	return PullState{Left: left}
}
