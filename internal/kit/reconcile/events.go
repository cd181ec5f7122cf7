package reconcile

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/bergctf/berg-operator/internal/kit/conditions"
)

// Normal records that something has happened. Its caller calls it once for each change. The text is
// cut to the maximum of an event; secrets are removed before.
func Normal(to events.EventRecorder, about runtime.Object, reason, action, text string) {
	to.Eventf(about, nil, corev1.EventTypeNormal, reason, action, "%s", conditions.Note(text))
}

// Warning records a problem, like Normal. conditions.Turned reports whether the problem is new.
func Warning(to events.EventRecorder, about runtime.Object, reason, action, text string) {
	to.Eventf(about, nil, corev1.EventTypeWarning, reason, action, "%s", conditions.Note(text))
}
