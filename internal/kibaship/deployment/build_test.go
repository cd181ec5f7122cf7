package deployment

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
)

func TestARefusedLabelIsAProblem(t *testing.T) {
	if checkLabel(nil) != nil {
		t.Error("a label that was written is a problem")
	}
	d := aDeployment()
	setStatus(Outcome{Observed: Observed{Deployment: d}, Problem: checkLabel(errors.New("not today"))}, now)
	c := meta.FindStatusCondition(d.Status.Conditions, kibashipv1.ConditionReady)
	if c.Status != metav1.ConditionFalse || c.Reason != kibashipv1.ReasonRefused || !strings.Contains(d.Status.Message, "not today") {
		t.Errorf("Ready is %+v, the message %q", c, d.Status.Message)
	}
}
