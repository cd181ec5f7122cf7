package deployment

import (
	"cmp"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/registry"
	"github.com/bergctf/berg-operator/internal/kibaship/rules"
	"github.com/bergctf/berg-operator/internal/kibaship/source"
)

// The steps of a run and their results. Each writes its results to a directory in which no other
// step can write.
const (
	stepClone, stepPrepare, stepBuild, stepPush = "clone", "prepare", "build", "push"

	resultCommit, resultTime, resultDigest, resultProblem = "commit", "time", "digest", "problem"

	resultSize = "size"

	resultArchitecture, resultCached, resultWarning = "architecture", "cached", "warning"
)

// The workspaces: where the source and the archive of the image lie, and three that hold one
// file each. A step that does not name one does not have it.
const (
	workspaceSource    = "source"
	workspaceToken     = "git-token"
	workspacePull      = "pull-login"
	workspaceLogin     = "registry-login"
	workspaceAuthority = "authorities"

	tokenKey     = "token"
	pullFile     = "config.json"
	authorityKey = "ca.crt"
	archiveName  = "image.tar"
)

// program is where every image of this operator has it.
const program = "/manager"

// unprivilegedUser is the user of the steps that need no rights, and the group that owns the source.
const unprivilegedUser = int64(65532)

//go:embed clone.sh
var cloneScript string

type object = map[string]any

func (in Inputs) workspace(name string) string { return "$(workspaces." + name + ".path)" }

// workspaces returns the declared workspaces of a step, a Task or the Pipeline, by name.
func workspaces(names []string) []any {
	var all []any
	for _, name := range names {
		all = append(all, object{"name": name})
	}
	return all
}

// with returns the workspaces of a step: the source, and each named workspace that this run has.
func (in Inputs) with(names ...string) []string {
	all := []string{workspaceSource}
	for _, name := range names {
		if in.binding(name) != nil {
			all = append(all, name)
		}
	}
	return all
}

// binding returns the binding of a workspace in a run, nil for an unknown workspace. Each Secret is optional and has one key
// alone. A Secret that lacks the key makes the step report that, and not the pod wait.
func (in Inputs) binding(name string) object {
	switch {
	case name == workspaceSource && in.Builds.Workspace == config.WorkspaceVolume:
		claim := object{
			"accessModes": []any{"ReadWriteOnce"},
			"resources":   object{"requests": object{"storage": in.Builds.StorageSize.String()}},
		}
		if in.Builds.StorageClass != "" {
			claim["storageClassName"] = in.Builds.StorageClass
		}
		return object{"name": name, "volumeClaimTemplate": object{"metadata": object{"labels": in.billingLabels()}, "spec": claim}}
	case name == workspaceSource:
		return object{"name": name, "emptyDir": object{"sizeLimit": in.Builds.StorageSize.String()}}
	case name == workspaceToken && in.private():
		return object{"name": name, "secret": object{
			"secretName": in.Git.SecretRef.Name, "items": []any{object{"key": tokenKey, "path": tokenKey}}, "optional": true,
		}}
	case name == workspacePull && in.pullSecret() != "":
		return object{"name": name, "secret": object{
			"secretName": in.pullSecret(), "items": []any{object{"key": registry.ConfigKey, "path": pullFile}}, "optional": true,
		}}
	case name == workspaceLogin && in.Builds.RegistrySecret != "":
		return object{"name": name, "secret": object{
			"secretName": in.Builds.RegistrySecret, "items": []any{object{"key": registry.ConfigKey, "path": registry.ConfigKey}}, "optional": true,
		}}
	case name == workspaceAuthority && in.Builds.CAConfigMap != "":
		return object{"name": name, "configMap": object{
			"name": in.Builds.CAConfigMap, "items": []any{object{"key": authorityKey, "path": authorityKey}}, "optional": true,
		}}
	default:
		return nil
	}
}

// pullSecret is the Secret with which images behind FROM are read and the cache is used, "" for none.
func (in Inputs) pullSecret() string {
	if ref := in.Git.ImagePullSecretRef; ref != nil && ref.Name != "" {
		return ref.Name
	}
	return in.Builds.PullSecret
}

// file is the path of a workspace's one file, "" where there is no such workspace.
func (in Inputs) file(workspace, key string) string {
	if in.binding(workspace) == nil {
		return ""
	}
	return in.workspace(workspace) + "/" + key
}

func (in Inputs) repositoryPath() string { return in.workspace(workspaceSource) + "/repository" }

func (in Inputs) contextPath() string { return path.Join(in.repositoryPath(), literal(in.context())) }

// preparedPath is where the step that prepares leaves the Dockerfile for the builder.
func (in Inputs) preparedPath() string { return in.workspace(workspaceSource) + "/Dockerfile" }

// dockerfilePath is the path of the Dockerfile in the repository.
func (in Inputs) dockerfilePath() string {
	return path.Join(in.context(), cmp.Or(rooted(in.Git.DockerfilePath), "Dockerfile"))
}

// rooted is a path below the directory that is built. It never lies outside.
func rooted(p string) string { return strings.TrimPrefix(path.Clean("/"+p), "/") }

func declareResults(names ...string) []any {
	var all []any
	for _, name := range names {
		all = append(all, object{"name": name, "type": "string"})
	}
	return all
}

func variables(pairs ...string) []any {
	var all []any
	for pair := range slices.Chunk(pairs, 2) {
		all = append(all, object{"name": pair[0], "value": pair[1]})
	}
	return all
}

// literal is a text in which the kubelet expands nothing:
// https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
func literal(text string) string { return strings.ReplaceAll(text, "$", "$$") }

// confined returns the security context of a step: the profile restricted of Pod Security, plus the
// given capabilities.
func confined(user int64, capabilities ...any) object {
	allowed := object{"drop": []any{"ALL"}}
	if len(capabilities) > 0 {
		allowed["add"] = capabilities
	}
	security := object{
		"allowPrivilegeEscalation": false,
		"capabilities":             allowed,
		"runAsUser":                user,
		"seccompProfile":           object{"type": "RuntimeDefault"},
	}
	if user != 0 {
		security["runAsNonRoot"] = true
	}
	return security
}

// cloneStep returns the step that clones the repository. Values reach the script only as environment variables,
// never as a part of its text, so that no field of an Application is run as a command. It is the only step with
// the token for the git server.
func (in Inputs) cloneStep() object {
	env := variables(
		"SOURCE", in.workspace(workspaceSource),
		"CONTEXT", in.contextPath(),
		"URL", in.url(),
		"COMMIT", "$(params.git-commit)",
		"TAG", "$(params.git-tag)",
		"BRANCH", "$(params.git-branch)",
		"TOKEN_FILE", in.file(workspaceToken, tokenKey),
		"GIT_USER", rules.GitUser(in.Git.Provider),
		"DOCKERFILE_PATH", literal(rooted(in.Git.DockerfilePath)),
		// Tekton and the kubelet replace $(...) in a text, and nothing in this form of one.
		"DOCKERFILE", base64.StdEncoding.EncodeToString([]byte(in.dockerfile())),
		"RESULT", "$(step.results."+resultCommit+".path)",
		"TIME", "$(step.results."+resultTime+".path)",
		"PROBLEM", "$(step.results."+resultProblem+".path)",
	)
	if authority := in.file(workspaceAuthority, authorityKey); authority != "" {
		env = append(env, object{"name": "GIT_SSL_CAINFO", "value": authority})
	}
	return object{
		"name": stepClone, "image": in.Builds.GitImage,
		"command": []any{"/bin/sh", "-c"}, "args": []any{cloneScript},
		"env":              env,
		"results":          declareResults(resultCommit, resultTime, resultProblem),
		"timeout":          in.cloneTimeout().String(),
		"computeResources": in.computeResources(false),
		"workspaces":       workspaces(in.with(workspaceToken, workspaceAuthority)),
		"securityContext":  confined(unprivilegedUser),
	}
}

// cloneTimeout bounds the step that clones, so that the time of a run is left for the build, and a git server that sends without an
// end occupies no slot of the queue for all of it.
func (in Inputs) cloneTimeout() time.Duration { return in.Builds.Timeout / 2 }

// cloneResults refers to the results of the step that clones, from another step of its pod. With a volume that step is in another pod, and
// parameters have them.
type cloneResults struct{ commit, time string }

func newCloneResults(in Inputs) cloneResults {
	if in.Builds.Workspace == config.WorkspaceVolume {
		return cloneResults{"$(params." + paramCloned + resultCommit + ")", "$(params." + paramCloned + resultTime + ")"}
	}
	return cloneResults{stepResult(stepClone, resultCommit), stepResult(stepClone, resultTime)}
}

// stepResult refers to a result of an earlier step of the same Task.
func stepResult(step, result string) string { return "$(steps." + step + ".results." + result + ")" }

// prepareStep returns the step that makes the clone fit for the builder. Its program is the operator's. It runs as root, as the files
// of a context belong to root, and has no other capability than to give files to a user.
func (in Inputs) prepareStep() object {
	prepare := source.Prepare{
		Root: in.repositoryPath(), Dockerfile: literal(in.dockerfilePath()), Output: in.preparedPath(), Time: newCloneResults(in).time,
		Cache:        in.cache(),
		Login:        in.file(workspacePull, pullFile),
		Authorities:  in.file(workspaceAuthority, authorityKey),
		Architecture: "$(step.results." + resultArchitecture + ".path)",
		Cached:       "$(step.results." + resultCached + ".path)",
		Warning:      "$(step.results." + resultWarning + ".path)",
		Problem:      "$(step.results." + resultProblem + ".path)",
	}
	return object{
		"name": stepPrepare, "image": in.PushImage, "command": []any{program}, "args": programArgs(source.Command, prepare.Args()),
		"results":          declareResults(resultArchitecture, resultCached, resultWarning, resultProblem),
		"computeResources": in.computeResources(false),
		"workspaces":       workspaces(in.with(workspacePull, workspaceAuthority)),
		"securityContext":  confined(0, "CHOWN"),
	}
}

func programArgs(command string, args []string) []any {
	all := []any{command}
	for _, arg := range args {
		all = append(all, arg)
	}
	return all
}

// cache is the repository of the cache of an Application, "" for none.
func (in Inputs) cache() string {
	if in.Builds.CacheRegistry == "" {
		return ""
	}
	return in.Builds.CacheRegistry + "/" + in.Project + "/" + in.Application
}

// The requests and maximum limits of steps. Requests are explicit, because Kubernetes would
// otherwise set each request to its limit and a node would need capacity for the limits of all
// steps together. enough is the maximum limit of a step that does not build.
var (
	requested = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi"), corev1.ResourceEphemeralStorage: resource.MustParse("0"),
	}
	enough = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}
)

// computeResources returns the resources of a step. Kubernetes limits the storage of a pod by the
// sum over its containers, so only the step that builds names a limit.
func (in Inputs) computeResources(builds bool) object {
	limits, requests := object{}, object{}
	for name, limit := range in.Builds.Limits {
		ceiling, less := enough[name]
		switch {
		case !builds && !less:
			continue
		case !builds && ceiling.Cmp(limit) < 0:
			limit = ceiling
		}
		request := requested[name]
		if request.Cmp(limit) > 0 {
			request = limit
		}
		limits[string(name)], requests[string(name)] = limit.String(), request.String()
	}
	if len(limits) == 0 {
		return object{}
	}
	return object{"limits": limits, "requests": requests}
}

// dockerfile is for a repository that has none, "" where none can be made.
func (in Inputs) dockerfile() string {
	if in.Builds.BaseImage == "" || in.Git.BuildCommand == "" && in.Git.StartCommand == "" {
		return ""
	}
	text := fmt.Sprintf("FROM %s\nARG %s\n", in.Builds.BaseImage, argCommit)
	for _, arg := range in.Git.BuildArgs {
		text += "ARG " + arg.Name + "\n"
	}
	text += "WORKDIR /app\nCOPY . .\n"
	if in.Git.BuildCommand != "" {
		text += "RUN " + shell(in.Git.BuildCommand) + "\n"
	}
	if in.Git.SPAOutputDirectory != "" {
		text += "ENV SPA_OUTPUT_DIRECTORY=" + quoted(in.Git.SPAOutputDirectory) + "\n"
	}
	if in.Git.StartCommand != "" {
		text += "CMD " + shell(in.Git.StartCommand) + "\n"
	}
	return text
}

// shell is a command in the form that no builder reads anything into.
func shell(command string) string {
	return `["/bin/sh","-c",` + quoted(command) + `]`
}

func quoted(text string) string {
	out, _ := json.Marshal(text) // every string has a JSON form
	return string(out)
}

// buildStep returns the step that runs the builder and the instructions of the Dockerfile: as root
// of its container, which most Dockerfiles expect, without any further right.
func (in Inputs) buildStep() object {
	clone, architecture := newCloneResults(in), stepResult(stepPrepare, resultArchitecture)
	args := []any{
		"--context=dir://" + in.contextPath(),
		"--dockerfile=" + in.preparedPath(),
		"--no-push",
		// A layer is not kept in memory. The step that pushes makes the image reproducible, which the builder does in memory.
		"--compressed-caching=false",
		"--tar-path=" + in.workspace(workspaceSource) + "/" + archiveName,
		"--destination=" + in.repository() + ":build",
		"--build-arg=" + argCommit + "=" + clone.commit,
		"--build-arg=SOURCE_DATE_EPOCH=" + clone.time,
	}
	for _, platform := range []string{"BUILD", "TARGET"} { // as BuildKit names them
		args = append(args, "--build-arg="+platform+"PLATFORM=linux/"+architecture, "--build-arg="+platform+"OS=linux", "--build-arg="+platform+"ARCH="+architecture)
	}
	if in.Git.SPAOutputDirectory != "" {
		args = append(args, "--build-arg=SPA_OUTPUT_DIRECTORY="+literal(in.Git.SPAOutputDirectory))
	}
	for _, arg := range in.Git.BuildArgs {
		args = append(args, "--build-arg="+arg.Name+"="+literal(arg.Value))
	}
	if in.cache() != "" {
		// A cache that is away costs its time, and not the build: the step before has tried it.
		args = append(args, "--cache="+stepResult(stepPrepare, resultCached), "--cache-repo="+in.cache(), "--skip-push-permission-check")
	}
	for _, arg := range in.Builds.BuilderArgs {
		args = append(args, arg)
	}
	step := object{
		"name": stepBuild, "image": in.Builds.BuilderImage,
		"command": []any{"/kaniko/executor"}, "args": args,
		"workspaces":       workspaces(in.with(workspacePull, workspaceAuthority)),
		"computeResources": in.computeResources(true),
		"securityContext":  confined(0, "CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"),
	}
	var env []any
	if authority := in.file(workspaceAuthority, authorityKey); authority != "" {
		env = append(env, variables("SSL_CERT_FILE", authority)...)
	}
	if in.pullSecret() != "" {
		env = append(env, variables("DOCKER_CONFIG", in.workspace(workspacePull))...)
	}
	if env != nil {
		step["env"] = env
	}
	return step
}

// argCommit is the argument of a build that has the commit: the context has no .git to ask.
const argCommit = "SOURCE_COMMIT"

// pushStep pushes the archive under its commit.
func (in Inputs) pushStep() object {
	clone := newCloneResults(in)
	push := registry.Push{
		Root: in.workspace(workspaceSource), Archive: archiveName,
		Destination: "$(params." + paramRepository + "):" + clone.commit,
		Time:        clone.time, Revision: clone.commit, Source: strings.TrimSuffix(in.url(), ".git"),
		Tag:         "$(params." + paramRun + ")",
		Login:       in.file(workspaceLogin, registry.ConfigKey),
		Authorities: in.file(workspaceAuthority, authorityKey),
		Digest:      "$(step.results." + resultDigest + ".path)",
		Size:        "$(step.results." + resultSize + ".path)",
		Problem:     "$(step.results." + resultProblem + ".path)",
	}
	return object{
		"name": stepPush, "image": in.PushImage, "command": []any{program}, "args": programArgs(registry.Command, push.Args()),
		"results":          declareResults(resultDigest, resultSize, resultProblem),
		"computeResources": in.computeResources(false),
		"workspaces":       workspaces(in.with(workspaceLogin, workspaceAuthority)),
		"securityContext":  confined(unprivilegedUser),
	}
}
