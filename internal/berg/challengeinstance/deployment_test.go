package challengeinstance

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func container(t *testing.T, text string) bergv1.Container {
	t.Helper()
	c := bergv1.Container{Hostname: "web", Image: "example.com/web:1"}
	if err := yaml.UnmarshalStrict([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// A later variable takes the place of an earlier one of its name.
func TestEnvironmentPrecedence(t *testing.T) {
	endpoints := []Endpoint{{Variable: "WEB_ENDPOINT", Address: "web:80"}, {Variable: "DB_ENDPOINT", Address: "db:1"}, {Address: "unnamed:1"}}
	for name, tc := range map[string]struct {
		container string
		want      []string
	}{
		"each in its place": {
			`{environment: {B: "2", A: "1"}, dynamicFlag: {env: {name: FLAG}}}`,
			[]string{"A=1", "B=2", "WEB_ENDPOINT=web:80", "DB_ENDPOINT=db:1", "CHALLENGE_NAMESPACE=" + ownNamespace, "FLAG=" + testFlag},
		},
		"endpoint over environment": {
			`{environment: {WEB_ENDPOINT: mine, A: "1"}}`,
			[]string{"A=1", "WEB_ENDPOINT=web:80", "DB_ENDPOINT=db:1", "CHALLENGE_NAMESPACE=" + ownNamespace},
		},
		"namespace over environment": {
			`{environment: {CHALLENGE_NAMESPACE: mine}}`,
			[]string{"WEB_ENDPOINT=web:80", "DB_ENDPOINT=db:1", "CHALLENGE_NAMESPACE=" + ownNamespace},
		},
		"flag over environment": {
			`{environment: {A: mine}, dynamicFlag: {env: {name: A}}}`,
			[]string{"WEB_ENDPOINT=web:80", "DB_ENDPOINT=db:1", "CHALLENGE_NAMESPACE=" + ownNamespace, "A=" + testFlag},
		},
		"flag over endpoint": {
			`{dynamicFlag: {env: {name: WEB_ENDPOINT}}}`,
			[]string{"DB_ENDPOINT=db:1", "CHALLENGE_NAMESPACE=" + ownNamespace, "WEB_ENDPOINT=" + testFlag},
		},
		"flag over namespace": {
			`{dynamicFlag: {env: {name: CHALLENGE_NAMESPACE}}}`,
			[]string{"WEB_ENDPOINT=web:80", "DB_ENDPOINT=db:1", "CHALLENGE_NAMESPACE=" + testFlag},
		},
		"every kind of value": {
			`{environment: {S: text, I: 8080, F: 1.5, B: true, "NULL": null}}`,
			[]string{"B=true", "F=1.5", "I=8080", "NULL=", "S=text", "WEB_ENDPOINT=web:80", "DB_ENDPOINT=db:1", "CHALLENGE_NAMESPACE=" + ownNamespace},
		},
	} {
		in := testInputs(testConfig(t, nil), Snapshot{})
		var got []string
		for _, e := range environment(in, container(t, tc.container), endpoints) {
			got = append(got, e.Name+"="+e.Value)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// Each amount is filled in by itself; what is written wins over what is not.
func TestResources(t *testing.T) {
	defaults := testConfig(t, nil).Challenge // cpu 100m of 1, memory 128Mi of 512Mi
	for text, want := range map[string]string{
		`{}`:                              "cpu 100m of 1, memory 128Mi of 512Mi",
		`{resourceRequests: {cpu: 200m}}`: "cpu 200m of 1, memory 128Mi of 512Mi",
		`{resourceLimits: {memory: 1Gi}}`: "cpu 100m of 1, memory 128Mi of 1Gi",
		`{resourceRequests: {memory: 1Mi}, resourceLimits: {cpu: 2}}`:  "cpu 100m of 2, memory 1Mi of 512Mi",
		`{resourceLimits: {cpu: 50m, memory: 64Mi}}`:                   "cpu 50m of 50m, memory 64Mi of 64Mi",
		`{resourceRequests: {cpu: 3, memory: 1Gi}}`:                    "cpu 3 of 3, memory 1Gi of 1Gi",
		`{resourceRequests: {cpu: null}, resourceLimits: {cpu: null}}`: "cpu 100m of 1, memory 128Mi of 512Mi",
		`{resourceLimits: {memory: 100mi}}`:                            "cpu 100m of 1, memory 100Mi of 100Mi",
	} {
		r := resources(defaults, container(t, text))
		got := "cpu " + r.Requests.Cpu().String() + " of " + r.Limits.Cpu().String() +
			", memory " + r.Requests.Memory().String() + " of " + r.Limits.Memory().String()
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestWhatIsNotConfiguredIsAbsent(t *testing.T) {
	c := container(t, `{ports: [{port: 80}]}`)
	spec := podSpec(testInputs(testConfig(t, nil), Snapshot{}), c, nil)
	if spec.RuntimeClassName != nil || spec.ImagePullSecrets != nil || spec.NodeSelector != nil || spec.Volumes != nil || spec.Containers[0].VolumeMounts != nil {
		t.Errorf("present: %+v", spec)
	}
	spec = podSpec(testInputs(testConfig(t, map[string]string{"CHALLENGE_RUNTIME_CLASS_NAME": "kata", "PULL_SECRET_NAME": "registry"}), Snapshot{}), c, nil)
	if ptr.Deref(spec.RuntimeClassName, "") != "kata" || !cmp.Equal(spec.ImagePullSecrets, []corev1.LocalObjectReference{{Name: "registry"}}) {
		t.Errorf("absent: %+v", spec)
	}
	c.RuntimeClassName = "gvisor"
	spec = podSpec(testInputs(testConfig(t, map[string]string{"CHALLENGE_RUNTIME_CLASS_NAME": "kata"}), Snapshot{}), c, nil)
	if ptr.Deref(spec.RuntimeClassName, "") != "gvisor" {
		t.Errorf("the author's runtime class lost: %v", spec.RuntimeClassName)
	}
}

func TestCapabilities(t *testing.T) {
	const executable = `dynamicFlag: {executable: {path: /get_flag}}`
	for text, want := range map[string]struct {
		add, drop []corev1.Capability
		level     string
	}{
		`{}`:                                 {nil, nil, "baseline"},
		`{dynamicFlag: {env: {name: FLAG}}}`: {nil, nil, "baseline"},
		`{dynamicFlag: {content: {path: /flag}}}`:                          {nil, nil, "baseline"},
		`{` + executable + `}`:                                             {nil, []corev1.Capability{"DAC_OVERRIDE"}, "baseline"},
		`{additionalCapabilities: [DAC_OVERRIDE], ` + executable + `}`:     {[]corev1.Capability{"DAC_OVERRIDE"}, nil, "baseline"},
		`{additionalCapabilities: [CAP_DAC_OVERRIDE], ` + executable + `}`: {[]corev1.Capability{"DAC_OVERRIDE"}, nil, "baseline"},
		`{additionalCapabilities: [CAP_CHOWN], ` + executable + `}`:        {[]corev1.Capability{"CHOWN"}, []corev1.Capability{"DAC_OVERRIDE"}, "baseline"},
		`{additionalCapabilities: [NET_ADMIN]}`:                            {[]corev1.Capability{"NET_ADMIN"}, nil, "privileged"},
		`{additionalCapabilities: [CHOWN, CAP_SYS_PTRACE]}`:                {[]corev1.Capability{"CHOWN", "SYS_PTRACE"}, nil, "privileged"},
		`{additionalCapabilities: [NET_RAW]}`:                              {[]corev1.Capability{"NET_RAW"}, nil, "privileged"},
		`{additionalCapabilities: [ALL]}`:                                  {[]corev1.Capability{"ALL"}, nil, "privileged"},
	} {
		c := container(t, text)
		got := securityContext(c)
		if !cmp.Equal(got.Capabilities.Add, want.add) || !cmp.Equal(got.Capabilities.Drop, want.drop) {
			t.Errorf("%s: add %v, drop %v", text, got.Capabilities.Add, got.Capabilities.Drop)
		}
		if *got.Privileged || !*got.AllowPrivilegeEscalation {
			t.Errorf("%s: %+v", text, got)
		}
		in := testInputs(testConfig(t, nil), Snapshot{Containers: []bergv1.Container{{Hostname: "first"}, c}})
		for _, mode := range []string{"enforce", "warn", "audit"} {
			if level := namespace(in).Labels["pod-security.kubernetes.io/"+mode]; level != want.level {
				t.Errorf("%s: %s %s, want %s", text, mode, level, want.level)
			}
		}
	}
}

// A Challenge's name may be a character longer than a label's value.
func TestLongNameOfAChallenge(t *testing.T) {
	in := testInputs(testConfig(t, nil), Snapshot{Containers: []bergv1.Container{{Hostname: "web", Ports: []bergv1.Port{{Port: 80}}}}})
	in.ChallengeName = strings.Repeat("x", 64)
	f, err := planFoundation(in)
	if err != nil {
		t.Fatal(err)
	}
	label := f.Namespace.Labels[bergv1.LabelChallenge]
	if msgs := validation.IsValidLabelValue(label); len(msgs) > 0 || !strings.HasPrefix(label, "xxxxxxxx") {
		t.Errorf("label %q: %v", label, msgs)
	}
	other := in
	other.ChallengeName = strings.Repeat("x", 63) + "y"
	if namespace(other).Labels[bergv1.LabelChallenge] == label {
		t.Error("two long names share one label")
	}
	if f.Namespace.Annotations[bergv1.AnnotationChallenge] != in.ChallengeName {
		t.Errorf("the full name is lost: %v", f.Namespace.Annotations)
	}
	d := planWorkloads(in, nil)[0]
	for where, labels := range map[string]map[string]string{
		"pod": d.Spec.Template.Labels, "Deployment": d.Spec.Selector.MatchLabels,
		"Service": f.Services[0].Spec.Selector, "PodDisruptionBudget": f.DisruptionBudgets[0].Spec.Selector.MatchLabels,
	} {
		if labels[bergv1.LabelChallenge] != label || labels[bergv1.LabelContainer] != "web" {
			t.Errorf("%s: %v", where, labels)
		}
	}
}
