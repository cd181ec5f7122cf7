package challenge

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/bergctf/berg-operator/internal/config"
)

// adminOnly is the remedy for a field that the operator refuses.
const adminOnly = "only an administrator may: leave it out, or ask the administrator for HEXACTF_TRUSTED_AUTHORS=true"

// validateRights returns errors for the fields with which a container reaches its node or reads objects that the author of
// its definition may not read. The operator creates pods with its own rights, so it must not lend the author rights
// that the author lacks.
func validateRights(cfg config.HexaCTF, parent *field.Path, c corev1.Container) field.ErrorList {
	if cfg.TrustedAuthors {
		return nil
	}
	errs := validateSecurityContext(cfg, parent.Child("securityContext"), c.SecurityContext)
	for i, p := range c.Ports {
		fieldPath := parent.Child("ports").Index(i)
		if p.HostPort != 0 {
			errs = append(errs, field.Forbidden(fieldPath.Child("hostPort"), "opens a port of the node, which "+adminOnly+". Players reach a port of the service"))
		}
		if p.HostIP != "" {
			errs = append(errs, field.Forbidden(fieldPath.Child("hostIP"), "opens a port of the node, which "+adminOnly))
		}
	}
	reads := func(fieldPath *field.Path, kind, values string) {
		errs = append(errs, field.Forbidden(fieldPath, "reads a "+kind+" of the namespace, which "+adminOnly+". Write the "+values+" into the definition"))
	}
	for i, e := range c.Env {
		if e.ValueFrom == nil {
			continue
		}
		fieldPath := parent.Child("env").Index(i).Child("valueFrom")
		if e.ValueFrom.SecretKeyRef != nil {
			reads(fieldPath.Child("secretKeyRef"), "Secret", "value")
		}
		if e.ValueFrom.ConfigMapKeyRef != nil {
			reads(fieldPath.Child("configMapKeyRef"), "ConfigMap", "value")
		}
	}
	for i, e := range c.EnvFrom {
		fieldPath := parent.Child("envFrom").Index(i)
		if e.SecretRef != nil {
			reads(fieldPath.Child("secretRef"), "Secret", "values")
		}
		if e.ConfigMapRef != nil {
			reads(fieldPath.Child("configMapRef"), "ConfigMap", "values")
		}
	}
	for _, probe := range []struct {
		name string
		spec *corev1.Probe
	}{{"livenessProbe", c.LivenessProbe}, {"readinessProbe", c.ReadinessProbe}, {"startupProbe", c.StartupProbe}} {
		if probe.spec != nil {
			errs = append(errs, validateTarget(parent.Child(probe.name), probe.spec.HTTPGet, probe.spec.TCPSocket)...)
		}
	}
	if l := c.Lifecycle; l != nil {
		for _, hook := range []struct {
			name string
			spec *corev1.LifecycleHandler
		}{{"postStart", l.PostStart}, {"preStop", l.PreStop}} {
			if hook.spec != nil {
				errs = append(errs, validateTarget(parent.Child("lifecycle", hook.name), hook.spec.HTTPGet, hook.spec.TCPSocket)...)
			}
		}
	}
	return errs
}

// validateSecurityContext allows the fields that it does not name.
func validateSecurityContext(cfg config.HexaCTF, fieldPath *field.Path, s *corev1.SecurityContext) field.ErrorList {
	if s == nil {
		return nil
	}
	var errs field.ErrorList
	forbid := func(fieldPath *field.Path, subject string) {
		errs = append(errs, field.Forbidden(fieldPath, subject+", which "+adminOnly))
	}
	if s.Privileged != nil && *s.Privileged {
		forbid(fieldPath.Child("privileged"), "makes the container root on its node")
	}
	if s.ProcMount != nil && *s.ProcMount != corev1.DefaultProcMount {
		forbid(fieldPath.Child("procMount"), "opens settings of the node's kernel")
	}
	if p := s.SeccompProfile; p != nil && p.Type != corev1.SeccompProfileTypeRuntimeDefault {
		forbid(fieldPath.Child("seccompProfile", "type"), "opens system calls of the node's kernel")
	}
	if p := s.AppArmorProfile; p != nil && p.Type != corev1.AppArmorProfileTypeRuntimeDefault {
		forbid(fieldPath.Child("appArmorProfile", "type"), "takes the node's confinement off")
	}
	if o := s.SELinuxOptions; o != nil && (o.User != "" || o.Role != "" || o.Type != "") {
		forbid(fieldPath.Child("seLinuxOptions"), "takes the node's confinement off")
	}
	if w := s.WindowsOptions; w != nil && (w.HostProcess != nil && *w.HostProcess || w.GMSACredentialSpec != nil || w.GMSACredentialSpecName != nil) {
		forbid(fieldPath.Child("windowsOptions"), "uses the node's account")
	}
	if s.Capabilities != nil {
		for i, added := range s.Capabilities.Add {
			name := strings.TrimPrefix(strings.ToUpper(string(added)), "CAP_")
			if !slices.Contains(cfg.AllowedCapabilities, config.AllCapabilities) && !slices.Contains(cfg.AllowedCapabilities, name) {
				errs = append(errs, field.Forbidden(fieldPath.Child("capabilities", "add").Index(i),
					fmt.Sprintf("adds %q, which HEXACTF_ALLOWED_CAPABILITIES does not list: leave it out, or ask the administrator to list it", added)))
			}
		}
	}
	return errs
}

// validateTarget refuses a host: the node sends these requests, and no network policy confines the node.
func validateTarget(parent *field.Path, http *corev1.HTTPGetAction, tcp *corev1.TCPSocketAction) field.ErrorList {
	var errs field.ErrorList
	if http != nil && http.Host != "" {
		errs = append(errs, field.Forbidden(parent.Child("httpGet", "host"), "lets the node connect to another host, which "+adminOnly+". Without a host it connects to the pod"))
	}
	if tcp != nil && tcp.Host != "" {
		errs = append(errs, field.Forbidden(parent.Child("tcpSocket", "host"), "lets the node connect to another host, which "+adminOnly+". Without a host it connects to the pod"))
	}
	return errs
}
