package doctor

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	kitsettings "github.com/bergctf/berg-operator/internal/kit/settings"
)

// readable has a ConfigMap that the user may read, and a Secret that the user may not read.
type readable struct{ client.WithWatch }

func (readable) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch o := into.(type) {
	case *corev1.ConfigMap:
		if key.Name == "settings" {
			o.Data = map[string]string{"DOMAIN": "play.example.org", "HTTP_PORT": "80"}
			return nil
		}
		return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, key.Name)
	default:
		return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, key.Name, errors.New("no"))
	}
}

func TestSettingsWithWhichAProgramEnds(t *testing.T) {
	const text = `{"msg":"a"}` + "\nberg-gate: " + kitsettings.Invalid + "\nGATE_DRAIN=\"x\": must be a duration\nGATE_PORTS=\"\": must have a port\n"
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: text}}
	for name, test := range map[string]struct {
		status corev1.ContainerStatus
		want   string
	}{
		"now":         {corev1.ContainerStatus{State: ended}, `GATE_DRAIN="x": must be a duration; GATE_PORTS="": must have a port`},
		"before":      {corev1.ContainerStatus{LastTerminationState: ended}, `GATE_DRAIN="x": must be a duration; GATE_PORTS="": must have a port`},
		"corrected":   {corev1.ContainerStatus{LastTerminationState: ended, Ready: true}, ""},
		"another end": {corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "panic"}}}, ""},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{test.status}}}
		if got := refusedSettings(pod); got != test.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestSettingsFromEnvFrom(t *testing.T) {
	from := func(name string) corev1.EnvFromSource {
		return corev1.EnvFromSource{Prefix: "CHALLENGE_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}
	}
	s := &surveyor{Cluster: &cluster.Cluster{WithWatch: readable{}}, Survey: healthySurvey()}
	c := s.container()
	c.Env = []corev1.EnvVar{{Name: "CHALLENGE_HTTP_PORT", Value: "443"}}
	c.EnvFrom = []corev1.EnvFromSource{from("settings"), from("nowhere")}
	for name, want := range map[string]string{
		"CHALLENGE_DOMAIN":    "play.example.org",
		"CHALLENGE_HTTP_PORT": "443", // the container's env has priority over envFrom
		"CHALLENGE_TLS_PORT":  Defaults["CHALLENGE_TLS_PORT"],
	} {
		if err := s.sources(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, known := s.Setting(name); got != want || !known {
			t.Errorf("%s=%s, known: %t, want %s", name, got, known, want)
		}
	}
	s.Shared = map[string]string{"CHALLENGE_HTTP_PORT": "80", "CHALLENGE_TLS_PORT": "8443"}
	c.Env = append(c.Env, corev1.EnvVar{Name: "CHALLENGE_TLS_PORT", Value: Defaults["CHALLENGE_TLS_PORT"]})
	for name, want := range map[string]string{
		"CHALLENGE_HTTP_PORT": "443",
		"CHALLENGE_TLS_PORT":  "8443", // the installers list every variable with its default
	} {
		if got, _ := s.Setting(name); got != want {
			t.Errorf("%s=%s, want %s", name, got, want)
		}
	}
	c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "more"}}})
	if err := s.sources(t.Context()); err != nil || !slices.Equal(s.Unread, []string{"Secret more"}) {
		t.Errorf("%v, unread: %v", err, s.Unread)
	}
	if _, known := s.Setting("CHALLENGE_TLS_PORT"); known {
		t.Error("a setting that the Secret may contain is known")
	}
}
