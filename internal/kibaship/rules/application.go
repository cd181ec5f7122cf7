package rules

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
)

// Application returns the violations of an Application by itself.
func Application(a *kibashipv1.Application) (all Violations) {
	project := a.Spec.ProjectRef.Name
	if project == "" {
		all = append(all, violated(kibashipv1.ReasonInvalidSpec, "spec.projectRef.name", "is required: name the Project"))
	}
	switch _, ok := naming.Application(a.Name, project); {
	case !naming.IsApplication(a.Name):
		all = append(all, violated(kibashipv1.ReasonInvalidName, "metadata.name",
			"%q must be project-<project>-app-<app>-kibaship-com: %s", a.Name, naming.ApplicationPattern))
	case project != "" && !ok:
		all = append(all, violated(kibashipv1.ReasonInvalidName, "metadata.name",
			"%q does not belong to Project %s: it must be project-%s-app-<app>-kibaship-com", a.Name, project, project))
	}
	if want := naming.Namespace(project); project != "" && a.Namespace != want {
		all = append(all, violated(kibashipv1.ReasonWrongNamespace, "metadata.namespace",
			"an Application of Project %s stands in namespace %s, not in %s: create it there", project, want, a.Namespace))
	}
	return append(all, applicationSpec(&a.Spec)...)
}

func applicationSpec(spec *kibashipv1.ApplicationSpec) (all Violations) {
	missing := func(there bool, field string) {
		if !there {
			all = append(all, violated(kibashipv1.ReasonInvalidSpec, "spec."+field, "is required where spec.type is %s", spec.Type))
		}
	}
	switch spec.Type {
	case kibashipv1.TypeGitRepository:
		missing(spec.GitRepository != nil, "gitRepository")
		if spec.GitRepository != nil {
			all = append(all, gitRepository(spec.GitRepository)...)
		}
	case kibashipv1.TypeDockerImage:
		missing(spec.DockerImage != nil, "dockerImage")
		if spec.DockerImage != nil {
			if _, err := ParseImage(spec.DockerImage.Image, spec.DockerImage.Tag); err != nil {
				all = append(all, violated(kibashipv1.ReasonInvalidSpec, "spec.dockerImage.image", "%v", err))
			}
		}
	case kibashipv1.TypeMySQL:
		missing(spec.MySQL != nil, "mysql")
	case kibashipv1.TypeMySQLCluster:
		missing(spec.MySQLCluster != nil, "mysqlCluster")
	case kibashipv1.TypePostgres:
		missing(spec.Postgres != nil, "postgres")
	case kibashipv1.TypePostgresCluster:
		missing(spec.PostgresCluster != nil, "postgresCluster")
	default:
		all = append(all, violated(kibashipv1.ReasonInvalidSpec, "spec.type", "%q is not a type of Application", spec.Type))
	}
	return all
}

var (
	repository = regexp.MustCompile(`^[a-zA-Z0-9._-]+/[a-zA-Z0-9._-]+$`)
	// GitProviders are all git providers.
	GitProviders = []kibashipv1.GitProvider{kibashipv1.GitHub, kibashipv1.GitLab, kibashipv1.Bitbucket}
)

func gitRepository(git *kibashipv1.GitRepository) (all Violations) {
	bad := func(field, format string, args ...any) {
		all = append(all, violated(kibashipv1.ReasonInvalidSpec, "spec.gitRepository."+field, format, args...))
	}
	if !slices.Contains(GitProviders, git.Provider) {
		bad("provider", "%q must be one of github.com, gitlab.com, bitbucket.com", git.Provider)
	}
	owner, name, _ := strings.Cut(git.Repository, "/")
	if !repository.MatchString(git.Repository) || noName(owner) || noName(name) {
		bad("repository", "%q must be <organisation>/<repository>, and none of them ., .. or .git", git.Repository)
	}
	if !git.PublicAccess && (git.SecretRef == nil || git.SecretRef.Name == "") {
		bad("secretRef", "SecretRef is required unless PublicAccess is true: name a Secret whose key token holds a git access token, or set publicAccess")
	}
	for _, p := range []struct{ field, value string }{
		{"path", git.Path}, {"rootDirectory", git.RootDirectory}, {"dockerfilePath", git.DockerfilePath}, {"spaOutputDirectory", git.SPAOutputDirectory},
	} {
		if outside(p.value) {
			bad(p.field, "%q leads out of the repository: it must be a path below its root, without line breaks", p.value)
		}
		if strings.Contains(p.value, replaced) {
			bad(p.field, "%q contains %s, which Tekton would replace: rename the directory", p.value, replaced)
		}
	}
	for _, arg := range git.BuildArgs {
		if strings.Contains(arg.Value, replaced) {
			bad("buildArgs", "the value of %s contains %s, which Tekton would replace: leave it out", arg.Name, replaced)
		}
	}
	if git.AutoBuild != nil {
		for _, p := range []struct {
			field    string
			patterns []string
		}{{"autoBuild.branches", git.AutoBuild.Branches}, {"autoBuild.tags", git.AutoBuild.Tags}} {
			for _, pattern := range p.patterns {
				if _, err := path.Match(pattern, ""); err != nil || !refPattern.MatchString(pattern) {
					bad(p.field, "%q must be a name, or a pattern with *, ? and [a-z], such as release/*", pattern)
				}
			}
		}
	}
	return all
}

// refPattern matches names of branches and tags that a Deployment accepts, and patterns of them.
var refPattern = regexp.MustCompile(`^[a-zA-Z0-9_*?\[][a-zA-Z0-9._/+@#*?\[\]^-]*$`)

// GitUser returns the name of a login with a token.
func GitUser(provider kibashipv1.GitProvider) string {
	if provider == kibashipv1.Bitbucket {
		return "x-token-auth"
	}
	return "x-access-token"
}

// replaced is the prefix of variables that Tekton replaces in the arguments of a container. Tekton
// knows no escape: https://tekton.dev/docs/pipelines/variables/
const replaced = "$("

// noName reports whether a part of the name of a repository would be another directory in the URL of a request.
func noName(s string) bool { return s == "." || s == ".." || s == ".git" }

// outside reports whether a path leads out of the repository. One that begins with a slash is rooted there.
func outside(p string) bool {
	clean := path.Clean(cmp.Or(strings.TrimLeft(p, "/"), "."))
	return clean == ".." || strings.HasPrefix(clean, "../") || strings.ContainsAny(p, "\x00\n\r")
}

// Allowed returns the violations of a Project's policies by an Application.
func Allowed(spec *kibashipv1.ApplicationSpec, project *kibashipv1.ProjectSpec) (all Violations) {
	policy := PolicyFor(project, spec.Type)
	if !policy.Enabled {
		return Violations{violated(kibashipv1.ReasonTypeDisabled, "spec.type",
			"the Project does not allow Applications of type %s: set spec.applicationTypes.%s.enabled of the Project", spec.Type, typeField(spec.Type))}
	}
	limits := Effective(spec, project)
	for _, amount := range amounts {
		asked, low, high := amount.value(limits), amount.value(policy.Min.Limits), amount.value(policy.Max.Limits)
		if less(asked, low) || less(high, asked) {
			all = append(all, violated(kibashipv1.ReasonOutOfBounds, "spec.limits."+amount.name,
				"%s is not within what the Project allows for %s: %s", asked, spec.Type, between(low, high)))
		}
	}
	if largest := project.Volumes.MaxStorageSize; less(largest, limits.Storage) {
		all = append(all, violated(kibashipv1.ReasonOutOfBounds, "spec.limits.storage",
			"%s is more than spec.volumes.maxStorageSize of the Project, %s", limits.Storage, largest))
	}
	if block, replicas := clusterReplicas(spec); block != "" {
		if low := policy.Min.Nodes; replicas < low {
			all = append(all, violated(kibashipv1.ReasonOutOfBounds, "spec."+block+".replicas", "%d is less than the %d nodes that the Project wants", replicas, low))
		}
		if high := policy.Max.Nodes; high != 0 && replicas > high {
			all = append(all, violated(kibashipv1.ReasonOutOfBounds, "spec."+block+".replicas", "%d is more than the %d nodes that the Project allows", replicas, high))
		}
	}
	return all
}

// Effective returns the size of an Application, completed by the presets of its Project. A part that neither sets is empty.
func Effective(spec *kibashipv1.ApplicationSpec, project *kibashipv1.ProjectSpec) kibashipv1.Limits {
	preset := PolicyFor(project, spec.Type).Default
	return kibashipv1.Limits{
		CPU:     cmp.Or(spec.Limits.CPU, preset.CPU),
		Memory:  cmp.Or(spec.Limits.Memory, preset.Memory),
		Storage: cmp.Or(spec.Limits.Storage, preset.Storage),
	}
}

// Replicas returns the number of nodes of a cluster, 1 for any other type.
func Replicas(spec *kibashipv1.ApplicationSpec) int32 {
	_, replicas := clusterReplicas(spec)
	return max(replicas, 1)
}

// clusterReplicas returns the block of a cluster and its nodes; block is "" for any other type.
func clusterReplicas(spec *kibashipv1.ApplicationSpec) (block string, replicas int32) {
	switch {
	case spec.Type == kibashipv1.TypeMySQLCluster && spec.MySQLCluster != nil:
		return "mysqlCluster", spec.MySQLCluster.Replicas
	case spec.Type == kibashipv1.TypePostgresCluster && spec.PostgresCluster != nil:
		return "postgresCluster", spec.PostgresCluster.Replicas
	default:
		return "", 0
	}
}

// Secrets returns the names of the Secrets that an Application needs, each with its field. A Secret that two fields name is there
// once, with the last of them.
func Secrets(spec *kibashipv1.ApplicationSpec) map[string]string {
	needed := map[string]string{}
	need := func(ref *kibashipv1.LocalReference, field string) {
		if ref != nil && ref.Name != "" {
			needed[ref.Name] = field
		}
	}
	switch {
	case spec.Type == kibashipv1.TypeGitRepository && spec.GitRepository != nil:
		need(spec.GitRepository.SecretRef, "spec.gitRepository.secretRef")
		need(spec.GitRepository.Env, "spec.gitRepository.env")
		need(spec.GitRepository.ImagePullSecretRef, "spec.gitRepository.imagePullSecretRef")
	case spec.Type == kibashipv1.TypeDockerImage && spec.DockerImage != nil:
		need(spec.DockerImage.ImagePullSecretRef, "spec.dockerImage.imagePullSecretRef")
	case spec.Type == kibashipv1.TypeMySQL && spec.MySQL != nil:
		need(spec.MySQL.SecretRef, "spec.mysql.secretRef")
	case spec.Type == kibashipv1.TypePostgres && spec.Postgres != nil:
		need(spec.Postgres.SecretRef, "spec.postgres.secretRef")
	case spec.Type == kibashipv1.TypeMySQLCluster && spec.MySQLCluster != nil:
		need(spec.MySQLCluster.SecretRef, "spec.mysqlCluster.secretRef")
	case spec.Type == kibashipv1.TypePostgresCluster && spec.PostgresCluster != nil:
		need(spec.PostgresCluster.SecretRef, "spec.postgresCluster.secretRef")
	}
	return needed
}

func typeField(t kibashipv1.ApplicationType) string {
	for _, name := range kibashipv1.ApplicationTypeNames {
		if name.Type == t {
			return name.Field
		}
	}
	return string(t)
}
