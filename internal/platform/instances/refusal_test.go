package instances

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestAQuotaIsALimit(t *testing.T) {
	kind := schema.GroupResource{Group: "berg.norelect.ch", Resource: "challengeinstances"}
	for message, want := range map[string]bool{
		"exceeded quota: event, requested: count/challengeinstances.berg.norelect.ch=1": true,
		"ValidatingAdmissionPolicy 'freeze' with binding 'all' denied request: later":   false,
	} {
		if got := isQuota(apierrors.NewForbidden(kind, "a", errors.New(message))); got != want {
			t.Errorf("%s: a limit is reached: %t", message, got)
		}
	}
}
