package reconcile

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/bergctf/berg-operator/internal/kit/conditions"
)

// Normal says what has happened, once: it is for its caller to know that it is news.
// The text is cut to what an event holds; secrets are removed before.
func Normal(to events.EventRecorder, about runtime.Object, reason, action, text string) {
	to.Eventf(about, nil, corev1.EventTypeNormal, reason, action, "%s", conditions.Note(text))
}

// Warning tells a problem, like Normal. conditions.Turned says whether it is news.
func Warning(to events.EventRecorder, about runtime.Object, reason, action, text string) {
	to.Eventf(about, nil, corev1.EventTypeWarning, reason, action, "%s", conditions.Note(text))
}
