package why

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
)

// buildForNodes is the remedy for an image of another architecture.
const buildForNodes = "Build the image for the architecture of the nodes (kubectl get nodes -L kubernetes.io/arch), as in docker buildx build --platform linux/amd64 --push, then run kubectl berg rollout."

// buildProgram is the remedy for a program that no node executes.
const buildProgram = buildForNodes + " A script needs a first line such as #!/bin/sh, without a blank or a byte order mark before it."

// withoutImage removes an image from a message, also where it is part of a URL: its name says nothing about the failure, and a
// challenge may be called forbidden.
func withoutImage(message, image string) string {
	message, image = strings.ToLower(message), strings.ToLower(image)
	name, _, _ := strings.Cut(image, "@")
	name, tag := withoutTag(name)
	parts := []string{image, name + ":" + tag, "/manifests/" + tag}
	for _, path := range []string{name, name[strings.IndexByte(name, '/')+1:]} {
		if strings.Contains(path, "/") {
			parts = append(parts, path)
		}
		parts = append(parts, "/"+path+"/", "/"+path+":") // a short name may be a word of the message
	}
	for _, part := range parts {
		if strings.ContainsFunc(strings.TrimPrefix(part, "/manifests/"), unicode.IsLetter) {
			message = strings.ReplaceAll(message, part, "")
		}
	}
	return message
}

// withoutTag splits a name at its tag. The colon of a registry's port comes before a slash.
func withoutTag(name string) (repository, tag string) {
	colon := strings.LastIndexByte(name, ':')
	if colon < 0 || strings.Contains(name[colon:], "/") {
		return name, ""
	}
	return name[:colon], name[colon+1:]
}

// pullFailure explains the answer of a registry, in lower case and without the image.
func pullFailure(message, thanTheNode string) (text, do string) {
	contains := containsIn(message)
	switch {
	case contains("no match for platform", "no matching manifest", "exec format error", "does not match the specified platform"):
		return ": the registry has it only for another CPU architecture" + thanTheNode, buildForNodes
	case contains("http request to an https server"):
		return ": its registry speaks HTTPS, and the node connects by HTTP",
			"Tell the container runtime of the nodes that the registry speaks HTTPS (containerd: certs.d/REGISTRY/hosts.toml)."
	case contains("server gave http response to https client", "first record does not look like a tls handshake"):
		return ": its registry speaks HTTP, and the node connects by HTTPS",
			"Serve the registry by HTTPS, or tell the container runtime of the nodes that it speaks HTTP (containerd: certs.d/REGISTRY/hosts.toml)."
	case contains("toomanyrequests", "too many requests", "rate limit", ": 429"):
		return ": the registry limits the rate of pulls",
			"Wait, use a mirror, or set the operator's PULL_SECRET_NAME to a login with a higher limit. The node retries within five minutes."
	case contains("no space left on device", "disk quota exceeded"):
		return ": the disk of its node is full", "Free disk space on the node, or make the image smaller. Images that no pod uses are removed by the node when its disk is nearly full."
	case contains("signaturevalidationfailed", "signature validation", "no signature"):
		return ": the node does not accept its signature", "Sign the image as the nodes demand, then run kubectl berg rollout."
	case contains("certificate has expired", "is not yet valid"):
		return ": the certificate of its registry has expired, or the clock of the node is wrong",
			"Renew the registry's certificate, and compare the clock of the node. The node retries within five minutes."
	case contains("certificate is valid for", "doesn't contain any ip sans", "cannot validate certificate for"):
		return ": the certificate of its registry is for another name", "Use the registry's name of the certificate in image of the Challenge, then run kubectl berg rollout."
	case contains("x509", "certificate", "tls: "):
		return ": the node does not trust the registry's certificate", "Make the container runtime of the nodes trust the registry's certificate authority."
	case contains("unauthorized", "authentication required", "no basic auth", "authorization failed", "denied", "forbidden", ": 401", ": 403", "insufficient_scope", "incorrect username"):
		return ": the registry refuses access, or has no such image",
			"Compare its name with the one that was pushed. If it is private, store a login in a Secret in the operator's namespace and set PULL_SECRET_NAME to its name, or correct that Secret."
	case contains("invalidimagename", "invalid reference", "couldn't parse image"):
		return ": its name is invalid", "Correct image in the Challenge, as in ghcr.io/example/web:1, then run kubectl berg rollout."
	case contains("errimageneverpull"):
		return ": it is not on the node, and CHALLENGE_IMAGE_PULL_POLICY is Never", "Load the image onto the nodes, or change the policy."
	case contains("no such host", "lookup ", "timeout", "deadline exceeded", "connection refused", "connection reset", "no route to host", "i/o", "unreachable", ": eof"):
		return ": the node cannot reach the registry", "Check the registry's name in image, and the node's DNS and outbound connections."
	case contains("not found", "manifest unknown", "manifest_unknown", "name unknown", "name_unknown", "does not exist"):
		return ": the registry does not have it", "Push the image, or correct image in the Challenge and run kubectl berg rollout."
	case contains("internal server error", "bad gateway", "service unavailable", "gateway time-out", ": 500", ": 502", ": 503", ": 504"):
		return ": its registry fails", "Wait: the node tries again within five minutes. If it continues, ask who runs the registry."
	case contains("failed to extract layer", "failed to register layer", "failed to unpack", "unexpected media type", "no longer supported", "mediatype", "schema 1"):
		return ": the node cannot unpack it", "Build and push the image again with a recent docker buildx, then run kubectl berg rollout. The message is the container runtime's."
	default:
		return "", "Check the image's name in the Challenge, and whether it needs a login (PULL_SECRET_NAME). For the registry's answer: kubectl get events -A --field-selector reason=Failed"
	}
}

// containsIn returns a function that reports whether a text has one of some words, which must be in lower case.
func containsIn(text string) func(words ...string) bool {
	text = strings.ToLower(text)
	return func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
}

// unschedulable explains the message of the scheduler.
func unschedulable(message string) (text, do string) {
	contains := containsIn(message)
	const scheduler = " The message is the scheduler's."
	switch {
	case contains("insufficient", "too many pods"):
		return "no node has enough free resources",
			"Add nodes, end instances, or lower resourceRequests in the Challenge." + scheduler + " kubectl berg plan calculates what an event needs."
	case contains("0/0 nodes", "no nodes available"):
		return "the cluster has no node", "Add nodes." + scheduler
	case contains("topology spread", "affinity rules"):
		return "the cluster spreads pods in a way that leaves no node for its pod",
			"Ask the administrator to change the constraints that the message names: a Challenge has none, the scheduler's settings or an admission webhook add them." + scheduler
	case contains("node.kubernetes.io/disk-pressure", "node.kubernetes.io/memory-pressure", "node.kubernetes.io/pid-pressure"):
		return "its nodes run out of disk, memory or process numbers", "Free memory and disk space on the nodes, end instances, or add nodes: kubectl describe nodes says what is short." + scheduler
	case contains("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.kubernetes.io/network-unavailable"):
		return "no node is ready", "Look at the nodes: kubectl get nodes. Pods start when a node is ready." + scheduler
	case contains("were unschedulable", "taint"):
		return "no node takes its pods", "End a drain (kubectl uncordon NODE), add nodes, or ask the administrator to remove the taints that the message names." + scheduler
	case contains("node affinity", "node selector", "nodeselector", "node(s) didn't match", "runtimeclass"):
		return "no node is one that its pods ask for",
			"Its RuntimeClass asks for nodes with certain labels, and dynamicFlag.executable for amd64: correct runtimeClassName in the Challenge, or add such a node." + scheduler
	default:
		return "the scheduler finds no node for its pod", "Add nodes, or change what the message names." + scheduler
	}
}

// rejection explains the reason with which a pod ended that Kubernetes replaces, "" for other reasons.
func rejection(reason string) (text, do string) {
	const replaced = "Kubernetes starts another pod."
	switch {
	case strings.HasPrefix(reason, "OutOf"), reason == "Preempting":
		return "its node had no capacity left when the pod arrived", replaced + " If this continues, add nodes or lower resourceRequests in the Challenge."
	case slices.Contains([]string{"NodeShutdown", "Terminated", "Shutdown", "NodeLost", "NodeAffinity", "UnexpectedAdmissionError", "TaintManagerEviction", "TopologyAffinityError"}, reason):
		return "its node went away, or refuses the pod (" + reason + ")", replaced + " If this continues, look at the node: kubectl get nodes"
	case slices.Contains([]string{string(corev1.PodFailed), string(corev1.PodSucceeded), "DeadlineExceeded"}, reason):
		return "its pod has ended (" + reason + ")", replaced + " If this continues, its events say more: kubectl get events -A --field-selector involvedObject.kind=Pod"
	}
	return "", ""
}

// meaning is the usual meaning of an exit code, with a remedy.
type meaning struct{ text, do string }

// meanings are by exit code: the codes of shells, and 128 plus the signal that ended a program.
var meanings = map[int32]meaning{
	126: {"its command cannot be executed", "Make the program executable in the image (chmod +x), and compare its first line with what the image has."},
	127: {
		"its command was not found",
		"Compare command in the Challenge, and CMD in the Dockerfile, with what the image has. A program that was built for glibc is not found on Alpine, and a script with Windows line endings finds no interpreter.",
	},
	130: {"SIGINT: it was interrupted", "The program asked itself to end, or a player reached its terminal. Let it run without one."},
	132: {"SIGILL: its program has instructions that the CPU of the node lacks", "Build the program without -march=native, or ask for another node."},
	133: {"SIGTRAP: its program stopped itself", "Browsers do so without memory or a sandbox: raise resourceLimits.memory and sharedMemory, and run them with --no-sandbox."},
	134: {"SIGABRT: its program gave up", "The log usually says why."},
	135: {"SIGBUS: often /dev/shm is full", "Raise sharedMemory and resourceLimits.memory of the container in the Challenge, if the program uses shared memory as browsers do."},
	136: {"SIGFPE: a division by zero", "Correct the program: the log may say where."},
	137: {
		"SIGKILL: it used too much memory together with others on its node, or was killed on purpose",
		"Compare what the program needs with resourceLimits.memory and resourceRequests.memory of the container in the Challenge.",
	},
	139: {"SIGSEGV: its program crashed", "If players make it crash, start it once for each connection, as in socat TCP-LISTEN:1337,reuseaddr,fork EXEC:./chall."},
	141: {"SIGPIPE: it wrote to a connection that was closed", "Let the program ignore SIGPIPE, or start it once for each connection."},
	143: {"SIGTERM: it was asked to end", "Its node or one of its own programs asked it to."},
	159: {
		"SIGSYS: it used a system call that a seccomp filter forbids",
		"If the filter is the program's own, let it allow the call. If it is the node's, ask the administrator (CHALLENGE_SECCOMP_PROFILE); a jail needs sandbox: nested in the Challenge.",
	},
}

// A node that lost a container reports 137 for it, which then says nothing: the reason comes first.
func exitMeaning(t *corev1.ContainerStateTerminated) meaning {
	if t.Reason == "Unknown" || t.Reason == "ContainerStatusUnknown" {
		return meaning{"its node was restarted, or does not know how it ended", "If this continues, look at the node: kubectl get nodes"}
	}
	return meanings[t.ExitCode]
}

// logHints name a remedy by the end of a log, the most certain first. Logs may have flags: the advice repeats none of
// their words.
var logHints = []struct {
	says *regexp.Regexp
	do   string
}{
	{
		regexp.MustCompile(`\\r['"’: ]|\^m\b|\r['"’]?: |illegal option -\r|invalid option name\r`),
		"Its log shows Windows line endings in a script: save it with LF (git config core.autocrlf input), and build the image again.",
	},
	{
		// A program that is not there would not be started at all.
		regexp.MustCompile(`(^|\n)([^\n]*\])?\s*exec:? [^\n:]+(: | failed: )no such file or directory|bad interpreter|env: [^\n]*(no such file or directory|not found)`),
		"Its log says that the interpreter of a script, or the loader of a program, is missing: compare the first line of the script with what the image has. " +
			"With Windows line endings, a script has no interpreter, although the image has one: save it with LF. A program that was built for glibc has no loader on Alpine.",
	},
	{
		regexp.MustCompile(`read-only file system`),
		"Its log says that a file is read-only. That of a flag is: let the entrypoint copy it instead of changing it (docs/berg/challenge.md#flags).",
	},
	{
		regexp.MustCompile(`no usable sandbox|running as root without --no-sandbox|zygote_host_impl`),
		"Its log says that a browser has no sandbox: run it with --no-sandbox, or set sandbox: nested in the Challenge.",
	},
	{
		regexp.MustCompile(`(unshare|clone|setns|pivot_root|namespace|nsjail|bwrap|newuidmap|mount)[^\n]*(operation not permitted|permission denied)|(operation not permitted|permission denied)[^\n]*(unshare|clone|namespace)`),
		"Its log says that it may make no namespaces. A jail needs sandbox: nested in the Challenge.",
	},
	{
		regexp.MustCompile(`glibc(xx)?_[0-9.]+' not found|error while loading shared libraries|error loading shared library|error relocating`),
		"Its log says that a library is missing, or older than the one with which the program was built: build the program in the image on which it runs.",
	},
	{
		regexp.MustCompile(`modulenotfounderror|no module named|cannot find module|err_module_not_found|class(notfoundexception| not found)|cannot load such file`),
		"Its log says that a module is missing in the image: install what the program needs in the Dockerfile. Folders that a compose file mounted are not in the image.",
	},
	{
		regexp.MustCompile(`address already in use|\beaddrinuse\b`),
		"Its log says that a port is in use: two programs of the container listen on the same one.",
	},
	{
		regexp.MustCompile(`no space left on device|\benospc\b`),
		"Its log says that a disk is full: raise sharedMemory if it is /dev/shm, or let the program write less (CHALLENGE_EPHEMERAL_STORAGE_LIMIT).",
	},
	{
		regexp.MustCompile(`out of memory|cannot allocate memory|outofmemoryerror|memoryerror|\benomem\b`),
		"Its log says that memory ran out: raise resourceLimits.memory of the container in the Challenge.",
	},
	{
		regexp.MustCompile(`can't start new thread|resource temporarily unavailable|\beagain\b|unable to create (native )?thread`),
		"Its log says that it may start no more processes: let the program start fewer, or ask the administrator for a higher limit of the nodes.",
	},
	{
		regexp.MustCompile(`connection refused|\beconnrefused\b|could not translate host name|getaddrinfo|name or service not known|\benotfound\b|no such host|unknown mysql server host|temporary failure in name resolution`),
		"Its log says that it did not reach another container. All start together: let the program try again until the other one answers, and compare the host with the hostnames in the Challenge.",
	},
	{
		regexp.MustCompile(`no such file or directory|\benoent\b|filenotfounderror|can't open file|could not open input file`),
		"Its log says that a file is missing in the image: COPY it in the Dockerfile. Files and folders that a compose file mounted are not in the image.",
	},
	{
		regexp.MustCompile(`permission denied|\beacces\b|operation not permitted`),
		"Its log says that it may not do something. A flag file belongs to root (dynamicFlag.content.mode and group), capabilities are those of additionalCapabilities, and a jail needs sandbox: nested.",
	},
}

// nodeSentences begin what a node answers in place of a log that is gone. It says nothing about the program.
var nodeSentences = regexp.MustCompile(`(?i)^\s*(unable to retrieve container logs for|failed to try resolving symlinks in path|failed to open log file|failed to get container status|container not found|rpc error: )`)

// ReadLog returns the end of a log as far as a program has written it.
func ReadLog(text string) string {
	if nodeSentences.MatchString(text) {
		return ""
	}
	return text
}

// logAdvice returns a remedy by the end of a log, "" if the log says nothing that is known.
func logAdvice(log string) string {
	log = strings.ToLower(log)
	for _, hint := range logHints {
		if hint.says.MatchString(log) {
			return hint.do
		}
	}
	return ""
}

// startAdvice returns a remedy by the message of a container runtime that could not create or start a container. Advice for the
// Secret and ConfigMap of a container is about objects of the operator, because a Challenge names none.
func startAdvice(message string) string {
	const runtime = "The message is the container runtime's. "
	contains := containsIn(message)
	switch {
	case contains(execFormat):
		return buildProgram
	case contains("runasnonroot", "non-root", "run as root", "non-numeric user"):
		return "The nodes refuse images that run as root, or whose user has a name only: write a number that is not 0 as USER in the Dockerfile."
	case contains("not a directory", "are you trying to mount a directory onto a file", "is a directory"):
		return runtime + "Usually dynamicFlag names a path where the image has a folder, or below a file: choose another path in the Challenge."
	case contains("executable file not found", "no such file or directory"):
		return runtime + "The program, or the interpreter in its first line, is missing in the image: compare command in the Challenge, and CMD in the Dockerfile, with what the image has. " +
			"With Windows line endings, a script has no interpreter, although the image has one: save it with LF."
	case contains("permission denied"):
		return runtime + "The program is not executable: chmod +x it in the image."
	case contains("secret ", "configmap "):
		return "The operator writes this object: if it does not come back within a minute, someone keeps deleting it."
	case contains("no space left", "disk quota"):
		return runtime + "The disk of the node is full."
	case contains("seccomp", "apparmor"):
		return runtime + "The node lacks a profile that CHALLENGE_SECCOMP_PROFILE or CHALLENGE_NESTED_SECCOMP_PROFILE names: ask the administrator to install it there."
	case contains("sysctl"):
		return runtime + "The kubelet or the kernel of the node refuses a sysctl: ask the administrator."
	case contains("cgroup", "memory limit too low", "minimum memory limit"):
		return runtime + "Usually resourceLimits.memory is too low to start anything: raise it."
	default:
		return runtime + "Usually the program is missing in the image, or is not executable."
	}
}
