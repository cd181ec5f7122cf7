package manifests

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/rules"
	"github.com/bergctf/berg-operator/internal/config"
)

func parseContainer(t *testing.T, text string) bergv1.Container {
	t.Helper()
	c := bergv1.Container{Hostname: "web", Image: "example.com/web:1"}
	if err := yaml.UnmarshalStrict([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// A later variable takes the place of an earlier one of its name.
func TestLaterVariablesReplaceEarlierOnes(t *testing.T) {
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
		for _, e := range environment(in, parseContainer(t, tc.container), endpoints) {
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
		r := resources(defaults, parseContainer(t, text))
		got := "cpu " + r.Requests.Cpu().String() + " of " + r.Limits.Cpu().String() +
			", memory " + r.Requests.Memory().String() + " of " + r.Limits.Memory().String()
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// Kubernetes connects to one port of a container, and does not ask the author's liveness probe before that.
func TestTheFirstPublicTCPPortMustAcceptAConnection(t *testing.T) {
	for container, want := range map[string]struct{ port, failures int32 }{
		`{}`:                   {},
		`{ports: [{port: 1}]}`: {},
		`{ports: [{port: 1, type: publicPort, protocol: udp}]}`: {},
		`{ports: [{port: 1, type: publicPort}]}`:                {1, math.MaxInt32},
		`{ports: [{port: 1}, {port: 2, type: publicPort, protocol: UDP}, {port: 3, type: publicHttpRoute}, {port: 4, type: publicPort}]}`: {3, math.MaxInt32},
		`{ports: [{port: 3, type: publicTlsRoute}]}`:                                                                                                 {3, math.MaxInt32},
		`{ports: [{port: 1, type: publicPort, connectAtStart: false}]}`:                                                                              {},
		`{ports: [{port: 1, type: publicPort, connectAtStart: false}, {port: 2, type: publicPort, connectAtStart: true}]}`:                           {2, math.MaxInt32},
		`{ports: [{port: 1, type: publicPort}], readinessProbe: {httpGet: {port: 1}}}`:                                                               {},
		`{ports: [{port: 1, type: publicPort}], livenessProbe: {httpGet: {port: 1}}}`:                                                                {1, 30},
		`{ports: [{port: 1, type: publicPort}], livenessProbe: {httpGet: {port: 1}, initialDelaySeconds: 5, periodSeconds: 7, failureThreshold: 2}}`: {1, 19},
		`{ports: [{port: 1, type: publicPort}], livenessProbe: {periodSeconds: 2147483647, failureThreshold: 2147483647}}`:                           {1, math.MaxInt32},
	} {
		in := testInputs(testConfig(t, nil), Snapshot{})
		c := parseContainer(t, container)
		probe := podSpec(in, c, nil).Containers[0].StartupProbe
		if want.port == 0 {
			if probe != nil || StartupPort(c) != 0 {
				t.Errorf("%s: %+v", container, probe)
			}
			continue
		}
		if probe == nil || probe.TCPSocket == nil || probe.TCPSocket.Port.IntVal != want.port || probe.FailureThreshold != want.failures || probe.PeriodSeconds != 1 {
			t.Errorf("%s: %+v, want %+v", container, probe, want)
		}
	}
}

// Nodes of an administrator who lets them pull nothing run what is on them.
func TestAuthorsChooseWhenImagesArePulled(t *testing.T) {
	for _, tc := range []struct {
		configured corev1.PullPolicy
		container  string
		want       corev1.PullPolicy
	}{
		{corev1.PullIfNotPresent, `{}`, corev1.PullIfNotPresent},
		{corev1.PullIfNotPresent, `{imagePullPolicy: Always}`, corev1.PullAlways},
		{corev1.PullAlways, `{imagePullPolicy: IfNotPresent}`, corev1.PullIfNotPresent},
		{corev1.PullNever, `{imagePullPolicy: Always}`, corev1.PullNever},
	} {
		in := testInputs(testConfig(t, map[string]string{"CHALLENGE_IMAGE_PULL_POLICY": string(tc.configured)}), Snapshot{})
		if got := podSpec(in, parseContainer(t, tc.container), nil).Containers[0].ImagePullPolicy; got != tc.want {
			t.Errorf("%s with %s: %s, want %s", tc.container, tc.configured, got, tc.want)
		}
	}
}

// Kubernetes gives a group to all volumes of a pod, and lets it read their files.
func TestFlagOfAGroup(t *testing.T) {
	for container, want := range map[string]struct {
		group *int64
		mode  int32
	}{
		`{dynamicFlag: {content: {path: /f}}}`:                          {nil, 0o444},
		`{dynamicFlag: {content: {path: /f, group: 1337}}}`:             {ptr.To[int64](1337), 0o440},
		`{dynamicFlag: {content: {path: /f, group: 1337, mode: 0640}}}`: {ptr.To[int64](1337), 0o640},
		`{dynamicFlag: {executable: {path: /f}}}`:                       {nil, 0o111},
	} {
		spec := podSpec(testInputs(testConfig(t, nil), Snapshot{}), parseContainer(t, container), nil)
		if got := spec.SecurityContext.FSGroup; (got == nil) != (want.group == nil) || got != nil && *got != *want.group {
			t.Errorf("%s: the pod's group is %v", container, got)
		}
		if got := *spec.Volumes[0].ConfigMap.Items[0].Mode; got != want.mode {
			t.Errorf("%s: mode %#o, want %#o", container, got, want.mode)
		}
	}
}

// Programs of container images listen on port 80 as any user, ping, and run browsers, wherever their author tests them.
func TestPodsHaveTheDefaultsOfContainerEngines(t *testing.T) {
	started := func(userNamespaces bool) Inputs {
		in := testInputs(testConfig(t, nil), Snapshot{})
		if userNamespaces {
			in.Config.UserNamespaces = config.UserNamespacesTrue
		}
		return in
	}
	for name, tc := range map[string]struct {
		in        Inputs
		container string
		groups    string // "": no sysctl
		shared    string // "": the 64 MiB of the runtime
		limit     string
	}{
		"default":                 {started(false), `{}`, "0 2147483647", "256Mi", "512Mi"},
		"a user namespace":        {started(true), `{}`, "0 65535", "256Mi", "512Mi"},
		"a small limit":           {started(false), `{resourceLimits: {memory: 100Mi}}`, "0 2147483647", "", "100Mi"},
		"a large limit":           {started(false), `{resourceLimits: {memory: 4Gi}}`, "0 2147483647", "2Gi", "4Gi"},
		"as written":              {started(false), `{sharedMemory: 32Mi}`, "0 2147483647", "32Mi", "512Mi"},
		"above the default limit": {started(false), `{sharedMemory: 1gi}`, "0 2147483647", "1Gi", "1Gi"},
	} {
		spec := podSpec(tc.in, parseContainer(t, tc.container), nil)
		got := map[string]string{}
		for _, s := range spec.SecurityContext.Sysctls {
			got[s.Name] = s.Value
		}
		want := map[string]string{"net.ipv4.ip_unprivileged_port_start": "0", "net.ipv4.ping_group_range": tc.groups}
		if tc.groups == "" {
			want = map[string]string{}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		shared := ""
		for _, v := range spec.Volumes {
			if v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumMemory {
				shared = v.EmptyDir.SizeLimit.String()
				mounts := spec.Containers[0].VolumeMounts
				if len(mounts) != 1 || mounts[0].Name != v.Name || mounts[0].MountPath != "/dev/shm" || mounts[0].ReadOnly {
					t.Errorf("%s: mounts %v", name, mounts)
				}
			}
		}
		if shared != tc.shared {
			t.Errorf("%s: shared memory %q, want %q", name, shared, tc.shared)
		}
		if limit := spec.Containers[0].Resources.Limits.Memory().String(); limit != tc.limit {
			t.Errorf("%s: memory limit %s, want %s", name, limit, tc.limit)
		}
	}
}

// A request that is absent where there is a limit would be as large as the limit.
func TestEphemeralStorage(t *testing.T) {
	for _, tc := range []struct{ request, limit, wantRequest, wantLimit string }{
		{"", "", "64Mi", "1Gi"},
		{"1Gi", "2Gi", "1Gi", "2Gi"},
		{"0", "2Gi", "0", "2Gi"},
		{"1Gi", "0", "1Gi", "absent"},
		{"0", "0", "absent", "absent"},
	} {
		cfg := testConfig(t, map[string]string{"CHALLENGE_EPHEMERAL_STORAGE_REQUEST": tc.request, "CHALLENGE_EPHEMERAL_STORAGE_LIMIT": tc.limit})
		got := resources(cfg.Challenge, parseContainer(t, `{resourceLimits: {memory: 1Mi}}`))
		for what, v := range map[string]struct {
			list corev1.ResourceList
			want string
		}{"request": {got.Requests, tc.wantRequest}, "limit": {got.Limits, tc.wantLimit}} {
			text := "absent"
			if q, there := v.list[corev1.ResourceEphemeralStorage]; there {
				text = q.String()
			}
			if text != v.want {
				t.Errorf("request %q, limit %q: %s %s, want %s", tc.request, tc.limit, what, text, v.want)
			}
		}
	}
}

// Pod Security admits the pods that are planned, with the level that is planned.
func TestSeccompProfile(t *testing.T) {
	for text, want := range map[string]struct {
		profile corev1.SeccompProfileType
		level   string
	}{
		"":               {"RuntimeDefault", "baseline"},
		"RuntimeDefault": {"RuntimeDefault", "baseline"},
		"Unconfined":     {"Unconfined", "privileged"},
	} {
		in := testInputs(testConfig(t, map[string]string{"CHALLENGE_SECCOMP_PROFILE": text}), Snapshot{})
		if got := podSpec(in, parseContainer(t, `{}`), nil).SecurityContext.SeccompProfile.Type; got != want.profile {
			t.Errorf("%q: profile %s, want %s", text, got, want.profile)
		}
		if got := namespace(in).Labels["pod-security.kubernetes.io/enforce"]; got != want.level {
			t.Errorf("%q: level %s, want %s", text, got, want.level)
		}
	}
}

func TestUserNamespaces(t *testing.T) {
	for text, want := range map[string]*bool{"": nil, "false": nil, "true": ptr.To(false)} {
		in := testInputs(testConfig(t, map[string]string{"CHALLENGE_USER_NAMESPACES": text}), Snapshot{})
		if got := podSpec(in, parseContainer(t, `{}`), nil).HostUsers; !cmp.Equal(got, want) {
			t.Errorf("%q: hostUsers %v, want %v", text, got, want)
		}
	}
}

// With auto, the runtime of a RuntimeClass may be one that does not support user namespaces. An instance keeps what it was started with.
func TestUserNamespacesByAuto(t *testing.T) {
	auto := testConfig(t, map[string]string{"CHALLENGE_USER_NAMESPACES": "auto"}).Challenge
	sandboxed := testConfig(t, map[string]string{"CHALLENGE_USER_NAMESPACES": "auto", "CHALLENGE_RUNTIME_CLASS_NAME": "gvisor"}).Challenge
	for name, tc := range map[string]struct {
		cfg       config.Challenge
		supported bool
		container string
		want      *bool
	}{
		"all nodes":                      {auto, true, `{}`, ptr.To(false)},
		"not all nodes":                  {auto, false, `{}`, nil},
		"a RuntimeClass":                 {auto, true, `{runtimeClassName: gvisor}`, nil},
		"a RuntimeClass of all":          {sandboxed, true, `{}`, nil},
		"a jail on some nodes":           {auto, false, `{sandbox: nested}`, ptr.To(false)},
		"a jail with a RuntimeClass too": {auto, true, `{sandbox: nested, runtimeClassName: kata}`, ptr.To(false)},
	} {
		tc.cfg.UserNamespaces = tc.cfg.UserNamespaces.On(tc.supported)
		spec := podSpec(Inputs{Config: tc.cfg}, parseContainer(t, tc.container), nil)
		if !cmp.Equal(spec.HostUsers, tc.want) {
			t.Errorf("%s: hostUsers %v, want %v", name, spec.HostUsers, tc.want)
		}
	}
}

func TestNestedSandbox(t *testing.T) {
	for profile, want := range map[string]*corev1.SeccompProfile{
		"Unconfined":            {Type: corev1.SeccompProfileTypeUnconfined},
		"berg/berg-nested.json": {Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: ptr.To("berg/berg-nested.json")},
	} {
		cfg := testConfig(t, map[string]string{"CHALLENGE_NESTED_SECCOMP_PROFILE": profile})
		spec := podSpec(Inputs{Config: cfg.Challenge}, parseContainer(t, `{sandbox: nested}`), nil)
		got := spec.Containers[0].SecurityContext
		if !cmp.Equal(spec.HostUsers, ptr.To(false)) || !cmp.Equal(got.ProcMount, ptr.To(corev1.UnmaskedProcMount)) || !cmp.Equal(got.SeccompProfile, want) {
			t.Errorf("%s: hostUsers %v, procMount %v, seccompProfile %v", profile, spec.HostUsers, got.ProcMount, got.SeccompProfile)
		}
		if *got.Privileged || len(got.Capabilities.Add) > 0 {
			t.Errorf("%s: a right on the node: %v", profile, got)
		}
	}
}

// In a namespace that root makes, root may read what is of root: the mode of the program does not hold.
func TestNoProgramInANestedSandbox(t *testing.T) {
	c := parseContainer(t, `{hostname: a, image: i, sandbox: nested, dynamicFlag: {executable: {path: /flag}}}`)
	errs := rules.Validate([]bergv1.Container{c}, rules.Allowed{NestedSandbox: true})
	if len(errs) != 1 || errs[0].Field != "spec.containers[0].dynamicFlag.executable" {
		t.Error(errs)
	}
}

func TestUnconfiguredFieldsAreAbsent(t *testing.T) {
	c := parseContainer(t, `{ports: [{port: 80}], resourceLimits: {memory: 128Mi}}`) // half of it is the runtime's /dev/shm
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
		c := parseContainer(t, text)
		got := securityContext(config.Challenge{}, c)
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
	f, err := PlanFoundation(in)
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
	d := PlanWorkloads(in, nil)[0]
	for where, labels := range map[string]map[string]string{
		"pod": d.Spec.Template.Labels, "Deployment": d.Spec.Selector.MatchLabels,
		"Service": f.Services[0].Spec.Selector, "PodDisruptionBudget": f.DisruptionBudgets[0].Spec.Selector.MatchLabels,
	} {
		if labels[bergv1.LabelChallenge] != label || labels[bergv1.LabelContainer] != "web" {
			t.Errorf("%s: %v", where, labels)
		}
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
