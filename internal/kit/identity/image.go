package identity

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Container is the name of the operator's container in its pod.
const Container = "manager"

// ImageFinder reads the pod of the operator once: a pod keeps its image as long as it lives.
type ImageFinder struct {
	// Reader may get the pod.
	Reader client.Reader
	// Pod is the operator's own; without a name or a namespace there is none.
	Pod client.ObjectKey

	mu    sync.Mutex
	image string
}

// Image returns the image. It is empty if the operator runs in no pod, or may not read it.
func (f *ImageFinder) Image(ctx context.Context) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.image != "" || f.Pod.Name == "" || f.Pod.Namespace == "" {
		return f.image
	}
	pod := &corev1.Pod{}
	if err := f.Reader.Get(ctx, f.Pod, pod); err != nil {
		return ""
	}
	for _, c := range pod.Spec.Containers {
		if c.Name == Container || len(pod.Spec.Containers) == 1 {
			f.image = c.Image
		}
	}
	return f.image
}
