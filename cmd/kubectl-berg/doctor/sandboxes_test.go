package doctor

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

func TestSandboxes(t *testing.T) {
	jail := bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Name: "jail"}, Spec: bergv1.ChallengeSpec{Containers: []bergv1.Container{{}, {Sandbox: bergv1.SandboxNested}}}}
	node := func(name string, supported bool) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{RuntimeHandlers: []corev1.NodeRuntimeHandler{
			{}, {Name: "runc", Features: &corev1.NodeRuntimeHandlerFeatures{UserNamespaces: ptr.To(supported)}},
		}}}
	}
	for name, tc := range map[string]struct {
		challenges []bergv1.Challenge
		profile    string
		nodes      []corev1.Node
		hidden     bool
		level      console.Level
		words      string
	}{
		"not readable":      {challenges: []bergv1.Challenge{jail}, hidden: true, nodes: []corev1.Node{node("a", true)}, level: console.OK, words: "1 nodes support user namespaces; CHALLENGE_NESTED_SECCOMP_PROFILE is not known"},
		"no jail":           {nodes: []corev1.Node{{}}},
		"not set":           {challenges: []bergv1.Challenge{{}, jail}, level: console.Problem, words: "jail: sandbox: nested needs"},
		"an old runtime":    {profile: "a.json", nodes: []corev1.Node{{}, node("b", false)}, level: console.Problem, words: "no node"},
		"an old node":       {profile: "a.json", nodes: []corev1.Node{node("a", true), node("b", false)}, level: console.Warning, words: "1 of 2 nodes do not support user namespaces, such as b"},
		"all are supported": {challenges: []bergv1.Challenge{jail}, profile: "a.json", nodes: []corev1.Node{node("a", true)}, level: console.OK, words: "1 nodes support"},
	} {
		s := healthySurvey()
		s.Challenges, s.Nodes = tc.challenges, tc.nodes
		if tc.profile != "" {
			env(&s, "CHALLENGE_NESTED_SECCOMP_PROFILE", tc.profile)
		}
		if tc.hidden {
			s.Deployment.Spec.Template.Spec.Containers[0].Env = append(s.Deployment.Spec.Template.Spec.Containers[0].Env,
				corev1.EnvVar{Name: "CHALLENGE_NESTED_SECCOMP_PROFILE", ValueFrom: &corev1.EnvVarSource{}})
		}
		got := sandboxes(s)
		switch {
		case tc.level == "" && len(got) > 0, tc.level != "" && len(got) != 1:
			t.Errorf("%s: %v", name, got)
		case tc.level != "" && (got[0].Level != tc.level || !strings.Contains(got[0].Text, tc.words)):
			t.Errorf("%s: %v", name, got[0])
		}
	}
}
