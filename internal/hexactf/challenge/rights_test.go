package challenge

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

func TestRights(t *testing.T) {
	byDefault := testConfig(t, nil)
	for name, tc := range map[string]struct {
		with  func(c *corev1.Container, s *corev1.SecurityContext)
		field string // "": allowed
	}{
		"an ordinary container":         {with: func(*corev1.Container, *corev1.SecurityContext) {}},
		"privileged":                    {with: func(_ *corev1.Container, s *corev1.SecurityContext) { s.Privileged = ptr.To(true) }, field: "c.securityContext.privileged"},
		"not privileged":                {with: func(_ *corev1.Container, s *corev1.SecurityContext) { s.Privileged = ptr.To(false) }},
		"an open /proc":                 {with: func(_ *corev1.Container, s *corev1.SecurityContext) { s.ProcMount = ptr.To(corev1.UnmaskedProcMount) }, field: "c.securityContext.procMount"},
		"a usual /proc":                 {with: func(_ *corev1.Container, s *corev1.SecurityContext) { s.ProcMount = ptr.To(corev1.DefaultProcMount) }},
		"no seccomp":                    {with: seccomp(corev1.SeccompProfileTypeUnconfined), field: "c.securityContext.seccompProfile.type"},
		"a seccomp profile of the node": {with: seccomp(corev1.SeccompProfileTypeLocalhost), field: "c.securityContext.seccompProfile.type"},
		"the runtime's seccomp profile": {with: seccomp(corev1.SeccompProfileTypeRuntimeDefault)},
		"no AppArmor": {with: func(_ *corev1.Container, s *corev1.SecurityContext) {
			s.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
		}, field: "c.securityContext.appArmorProfile.type"},
		"an SELinux type": {with: func(_ *corev1.Container, s *corev1.SecurityContext) {
			s.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"}
		}, field: "c.securityContext.seLinuxOptions"},
		"a process of a Windows node": {with: func(_ *corev1.Container, s *corev1.SecurityContext) {
			s.WindowsOptions = &corev1.WindowsSecurityContextOptions{HostProcess: ptr.To(true)}
		}, field: "c.securityContext.windowsOptions"},
		"user, group, read-only root": {with: func(_ *corev1.Container, s *corev1.SecurityContext) {
			s.RunAsUser, s.RunAsGroup, s.ReadOnlyRootFilesystem, s.AllowPrivilegeEscalation = ptr.To[int64](0), ptr.To[int64](0), ptr.To(true), ptr.To(true)
		}},
		"SYS_ADMIN":                 {with: adds("SYS_ADMIN"), field: "c.securityContext.capabilities.add[0]"},
		"sys_module in small":       {with: adds("KILL", "sys_module"), field: "c.securityContext.capabilities.add[1]"},
		"CAP_BPF with its prefix":   {with: adds("CAP_BPF"), field: "c.securityContext.capabilities.add[0]"},
		"every capability":          {with: adds("ALL"), field: "c.securityContext.capabilities.add[0]"},
		"every capability in small": {with: adds("all"), field: "c.securityContext.capabilities.add[0]"},
		"a listed capability":       {with: adds("SYS_PTRACE", "cap_chown")},
		"dropped capabilities": {with: func(_ *corev1.Container, s *corev1.SecurityContext) {
			s.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
		}},
		"a port of the node": {with: func(c *corev1.Container, _ *corev1.SecurityContext) {
			c.Ports = []corev1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 81, HostPort: 81}}
		}, field: "c.ports[1].hostPort"},
		"an address of the node": {with: func(c *corev1.Container, _ *corev1.SecurityContext) {
			c.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostIP: "127.0.0.1"}}
		}, field: "c.ports[0].hostIP"},
		"a variable from a Secret": {with: func(c *corev1.Container, _ *corev1.SecurityContext) {
			c.Env = []corev1.EnvVar{{Name: "A", Value: "a"}, {Name: "B", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}}}}
		}, field: "c.env[1].valueFrom.secretKeyRef"},
		"an optional variable from a Secret": {with: func(c *corev1.Container, _ *corev1.SecurityContext) {
			c.Env = []corev1.EnvVar{{Name: "B", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k", Optional: ptr.To(true)}}}}
		}, field: "c.env[0].valueFrom.secretKeyRef"},
		"variables from a Secret": {with: func(c *corev1.Container, _ *corev1.SecurityContext) {
			c.EnvFrom = []corev1.EnvFromSource{{Prefix: "A_"}, {SecretRef: &corev1.SecretEnvSource{}}}
		}, field: "c.envFrom[1].secretRef"},
		"a variable from a ConfigMap": {with: func(c *corev1.Container, _ *corev1.SecurityContext) {
			c.Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{Key: "k", Optional: ptr.To(true)}}}}
		}, field: "c.env[0].valueFrom.configMapKeyRef"},
		"variables from a ConfigMap": {with: func(c *corev1.Container, _ *corev1.SecurityContext) {
			c.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{}}}
		}, field: "c.envFrom[0].configMapRef"},
		"variables from the pod and its resources": {with: func(c *corev1.Container, _ *corev1.SecurityContext) {
			c.Env = []corev1.EnvVar{
				{Name: "IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
				{Name: "CPU", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}},
			}
		}},
		"a liveness probe of another host": {with: func(c *corev1.Container, _ *corev1.SecurityContext) {
			c.LivenessProbe = &corev1.Probe{ProbeHandler: get("169.254.169.254")}
		}, field: "c.livenessProbe.httpGet.host"},
		"a readiness probe of the node itself": {with: func(c *corev1.Container, _ *corev1.SecurityContext) {
			c.ReadinessProbe = &corev1.Probe{ProbeHandler: dial("127.0.0.1")}
		}, field: "c.readinessProbe.tcpSocket.host"},
		"a startup probe of another host": {with: func(c *corev1.Container, _ *corev1.SecurityContext) {
			c.StartupProbe = &corev1.Probe{ProbeHandler: get("kubernetes.default")}
		}, field: "c.startupProbe.httpGet.host"},
		"a probe of the pod": {with: func(c *corev1.Container, _ *corev1.SecurityContext) {
			c.StartupProbe, c.ReadinessProbe = &corev1.Probe{ProbeHandler: get("")}, &corev1.Probe{ProbeHandler: dial("")}
		}},
		"a hook that calls another host": {with: func(c *corev1.Container, _ *corev1.SecurityContext) {
			c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: get("10.0.0.1").HTTPGet}}
		}, field: "c.lifecycle.postStart.httpGet.host"},
		"a last hook that calls another host": {with: func(c *corev1.Container, _ *corev1.SecurityContext) {
			c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{TCPSocket: dial("10.0.0.1").TCPSocket}}
		}, field: "c.lifecycle.preStop.tcpSocket.host"},
	} {
		t.Run(name, func(t *testing.T) {
			c := corev1.Container{Name: "web", Image: "example.com/web", SecurityContext: &corev1.SecurityContext{}}
			tc.with(&c, c.SecurityContext)
			errs := validateRights(byDefault, field.NewPath("c"), c)
			if tc.field == "" {
				if len(errs) > 0 {
					t.Fatalf("refused: %v", errs)
				}
				return
			}
			if len(errs) != 1 || errs[0].Field != tc.field {
				t.Fatalf("got %v, want one error of %s", errs, tc.field)
			}
			if !strings.Contains(errs[0].Detail, "administrator") {
				t.Errorf("%q does not say what to do", errs[0].Detail)
			}
			trusted := testConfig(t, map[string]string{"HEXACTF_TRUSTED_AUTHORS": "true"})
			if errs := validateRights(trusted, field.NewPath("c"), c); len(errs) > 0 {
				t.Errorf("refused to a trusted author: %v", errs)
			}
		})
	}
}

func TestAllowedCapabilities(t *testing.T) {
	for setting, allowed := range map[string]map[string]bool{
		"":              {"NET_ADMIN": true, "SYS_ADMIN": false, "ALL": false},
		"NONE":          {"KILL": false, "ALL": false},
		"ALL":           {"SYS_ADMIN": true, "ALL": true},
		"CAP_SYS_ADMIN": {"SYS_ADMIN": true, "CAP_SYS_ADMIN": true, "KILL": false},
	} {
		rights := testConfig(t, map[string]string{"HEXACTF_ALLOWED_CAPABILITIES": setting})
		for capability, want := range allowed {
			c := corev1.Container{SecurityContext: &corev1.SecurityContext{}}
			adds(corev1.Capability(capability))(&c, c.SecurityContext)
			if got := len(validateRights(rights, nil, c)) == 0; got != want {
				t.Errorf("%q: %s allowed %v, want %v", setting, capability, got, want)
			}
		}
	}
	if testConfig(t, nil).TrustedAuthors {
		t.Error("authors are trusted without a setting")
	}
}

// Fields of the library that a later version adds must be decided here before an author may use them.
func TestEveryFieldOfAContainerIsKnown(t *testing.T) {
	known := map[reflect.Type]string{
		reflect.TypeFor[corev1.Container](): "Name Image Command Args WorkingDir Ports EnvFrom Env Resources ResizePolicy RestartPolicy RestartPolicyRules VolumeMounts " +
			"VolumeDevices LivenessProbe ReadinessProbe StartupProbe Lifecycle TerminationMessagePath TerminationMessagePolicy ImagePullPolicy SecurityContext Stdin StdinOnce TTY",
		reflect.TypeFor[corev1.SecurityContext](): "Capabilities Privileged SELinuxOptions WindowsOptions RunAsUser RunAsGroup RunAsNonRoot ReadOnlyRootFilesystem " +
			"AllowPrivilegeEscalation ProcMount SeccompProfile AppArmorProfile",
		reflect.TypeFor[corev1.EnvVarSource]():     "FieldRef ResourceFieldRef ConfigMapKeyRef SecretKeyRef FileKeyRef",
		reflect.TypeFor[corev1.EnvFromSource]():    "Prefix ConfigMapRef SecretRef",
		reflect.TypeFor[corev1.ProbeHandler]():     "Exec HTTPGet TCPSocket GRPC",
		reflect.TypeFor[corev1.LifecycleHandler](): "Exec HTTPGet TCPSocket Sleep",
		reflect.TypeFor[corev1.Lifecycle]():        "PostStart PreStop StopSignal",
		reflect.TypeFor[corev1.ContainerPort]():    "Name HostPort ContainerPort Protocol HostIP",
		reflect.TypeFor[corev1.GRPCAction]():       "Port Service Mode",
	}
	for of, names := range known {
		fields := strings.Fields(names)
		for _, f := range reflect.VisibleFields(of) {
			if !slices.Contains(fields, f.Name) {
				t.Errorf("%s.%s: decide in rights.go whether an author may use it, then name it here", of, f.Name)
			}
		}
	}
}

func seccomp(kind corev1.SeccompProfileType) func(*corev1.Container, *corev1.SecurityContext) {
	return func(_ *corev1.Container, s *corev1.SecurityContext) {
		s.SeccompProfile = &corev1.SeccompProfile{Type: kind}
	}
}

func adds(capabilities ...corev1.Capability) func(*corev1.Container, *corev1.SecurityContext) {
	return func(_ *corev1.Container, s *corev1.SecurityContext) {
		s.Capabilities = &corev1.Capabilities{Add: capabilities}
	}
}

func get(host string) corev1.ProbeHandler {
	return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: host, Path: "/"}}
}

func dial(host string) corev1.ProbeHandler {
	return corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: host}}
}
