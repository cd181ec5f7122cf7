package warm

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func TestWhatPlatformsAskFor(t *testing.T) {
	for name, tc := range map[string]struct {
		asked []string
		spec  bergv1.ChallengeSpec
		want  *bergv1.Warm
	}{
		"nothing":                        {},
		"min alone":                      {asked: []string{"2-0"}, want: &bergv1.Warm{Min: 2}},
		"the largest values":             {asked: []string{"2-9", "3-4"}, want: &bergv1.Warm{Min: 3, Max: 9}},
		"no maximum is the largest":      {asked: []string{"2-9", "1-0", "1-5"}, want: &bergv1.Warm{Min: 2}},
		"no numbers":                     {asked: []string{"", "2", "a-b", "-1-3", "99999999999-1"}},
		"a minimum above the maximum":    {asked: []string{"5-4"}},
		"more than the Challenge allows": {asked: []string{"5-0"}, spec: bergv1.ChallengeSpec{MaxInstances: 4}},
		"the Challenge comes first":      {asked: []string{"5-0"}, spec: bergv1.ChallengeSpec{Warm: &bergv1.Warm{}}, want: &bergv1.Warm{}},
	} {
		c := &bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: "browser"}, Spec: tc.spec}
		c.Spec.Containers = []bergv1.Container{{Hostname: "web"}}
		registrations := []corev1.ConfigMap{}
		add := func(namespace, challenge, value string) {
			registrations = append(registrations, corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Labels: map[string]string{bergv1.LabelPrepullChallenge: challenge, bergv1.LabelWarm: value},
			}})
		}
		add("berg", "other", "7-7")
		add("elsewhere", "browser", "7-7")
		for _, value := range tc.asked {
			add("berg", "browser", value)
		}
		got := readAsked(registrations).find(c)
		if (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}
