package rules

import (
	"regexp"
	"slices"
	"strings"

	"github.com/bergctf/berg-operator/internal/config"
)

// linuxCapabilities are the capabilities of capabilities(7). The container runtime starts no container with
// another one.
var linuxCapabilities = []string{
	"AUDIT_CONTROL", "AUDIT_READ", "AUDIT_WRITE", "BLOCK_SUSPEND", "BPF", "CHECKPOINT_RESTORE", "CHOWN", "DAC_OVERRIDE",
	"DAC_READ_SEARCH", "FOWNER", "FSETID", "IPC_LOCK", "IPC_OWNER", "KILL", "LEASE", "LINUX_IMMUTABLE", "MAC_ADMIN", "MAC_OVERRIDE",
	"MKNOD", "NET_ADMIN", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_RAW", "PERFMON", "SETFCAP", "SETGID", "SETPCAP", "SETUID",
	"SYSLOG", "SYS_ADMIN", "SYS_BOOT", "SYS_CHROOT", "SYS_MODULE", "SYS_NICE", "SYS_PACCT", "SYS_PTRACE", "SYS_RAWIO",
	"SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "WAKE_ALARM",
}

// capabilityProblem returns why there is no such capability, "" if there is.
func capabilityProblem(name string) string {
	known := func(name string) bool {
		return name == config.AllCapabilities || slices.Contains(linuxCapabilities, name)
	}
	if known(Capability(name)) {
		return ""
	}
	if upper := Capability(strings.ToUpper(name)); known(upper) {
		return "must be in upper case: " + upper
	}
	return "is no capability of Linux, and no container starts with it: see capabilities(7) for the names"
}

const (
	imageDomain    = `(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?`
	imageComponent = `[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*`
)

// imageReference follows the grammar of github.com/distribution/reference, by which the kubelet parses references.
var imageReference = regexp.MustCompile(`^(?:` + imageDomain + `/)?` + imageComponent + `(?:/` + imageComponent + `)*` +
	`(?::(\w[\w.-]{0,127}))?(?:@([A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?$`)

// imageProblem returns why the kubelet refuses a reference, "" if it does not.
func imageProblem(image string) string {
	switch {
	case imageReference.MatchString(image):
		return ""
	case strings.Contains(image, "://"):
		return "must be an image reference without a scheme such as https://"
	case strings.Contains(image, "${"):
		return "must be an image reference: a variable is left in it. Put its value in its place"
	case imageReference.MatchString(strings.ToLower(image)):
		return "must be an image reference: all before the tag must be in lower case"
	default:
		return "must be an image reference, for example ghcr.io/example/guestbook:1"
	}
}

// movingTag reports whether the content of an image changes under the same reference: it has no digest, and no tag or latest.
func movingTag(image string) bool {
	parts := imageReference.FindStringSubmatch(image)
	return parts != nil && parts[2] == "" && (parts[1] == "" || parts[1] == "latest")
}
