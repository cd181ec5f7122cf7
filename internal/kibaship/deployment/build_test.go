package deployment

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
)

func TestOwnImage(t *testing.T) {
	pod := func(containers ...corev1.Container) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "operator-0"}, Spec: corev1.PodSpec{Containers: containers}}
	}
	manager, proxy := corev1.Container{Name: containerName, Image: "operator:1"}, corev1.Container{Name: "proxy", Image: "proxy:1"}
	here := client.ObjectKey{Namespace: "system", Name: "operator-0"}
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		key  client.ObjectKey
		set  string
		want string
	}{
		"its container":                {pod(manager), here, "", "operator:1"},
		"one among others":             {pod(proxy, manager), here, "", "operator:1"},
		"the only one, renamed":        {pod(corev1.Container{Name: "x", Image: "operator:2"}), here, "", "operator:2"},
		"none of that name among some": {pod(proxy, corev1.Container{Name: "x", Image: "x:1"}), here, "", ""},
		"the settings say it":          {pod(manager), here, "push:1", "push:1"},
		"no pod":                       {pod(manager), client.ObjectKey{Namespace: "system", Name: "laptop"}, "", ""},
		"no namespace":                 {pod(manager), client.ObjectKey{Name: "operator-0"}, "", ""},
	} {
		r := &Reconciler{Pod: tc.key, Writer: apply.Writer{Live: fake.NewClientBuilder().WithObjects(tc.pod).Build()}}
		r.Config.Builds.PushImage = tc.set
		if got := r.ownImage(t.Context()); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// A pod keeps its image as long as it lives: it is read once.
func TestOwnImageIsRemembered(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "operator-0"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: containerName, Image: "operator:1"}}}}
	live := fake.NewClientBuilder().WithObjects(pod).Build()
	r := &Reconciler{Pod: client.ObjectKeyFromObject(pod), Writer: apply.Writer{Live: live}}
	first := r.ownImage(t.Context())
	if err := live.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if again := r.ownImage(t.Context()); first != "operator:1" || again != first {
		t.Errorf("first %q, then %q", first, again)
	}
}

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
