package config

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bergctf/berg-operator/internal/kit/settings"
)

// KibaShip configures KibaShip projects.
type KibaShip struct {
	Tekton       TektonMode
	ProjectAdmin string // ClusterRole that is bound in the namespace of each Project
	PodSecurity  PodSecurityLevel
	// ImageRegistries are host[:port] of the registries of a DockerImage; nil: all with a public address.
	ImageRegistries []string
	Builds          Builds
	Retention       ImageRetention
	Pushes          Pushes
}

// ImageRetention configures which images of earlier builds stay in the registry.
type ImageRetention struct {
	On    bool
	Count int
	Age   time.Duration
}

// Pushes configures builds that pushes start. Without an interval and a URL nothing asks for new commits.
type Pushes struct {
	PollInterval time.Duration // 0: repositories are asked after webhooks alone
	WebhookURL   string        // where providers reach the receiver of webhooks, without a slash at the end; "": none is used
	CommitStatus bool
}

// Enabled reports whether pushes can start builds.
func (p Pushes) Enabled() bool { return p.PollInterval > 0 || p.WebhookURL != "" }

// TektonMode decides how a Project treats a cluster without Tekton.
type TektonMode string

// The Tekton modes.
const (
	TektonOptional TektonMode = "optional"
	TektonRequired TektonMode = "required"
	TektonOff      TektonMode = "off"
)

// Builds configures how images are built from Git repositories. The help of each setting
// describes its field.
type Builds struct {
	Providers              map[string]string // base URLs, without a slash at the end
	GitImage, BuilderImage string
	PushImage              string // "": the operator's own image
	BaseImage              string // "": every Application needs a Dockerfile
	BuilderArgs            []string
	PullSecret             string // "": images behind FROM are read without credentials
	Concurrency            int    // 0: no limit
	CacheRegistry          string // host[:port][/path]; "": no cache
	Registry               string // host[:port][/path]; "": nothing is built
	RegistrySecret         string // in the namespace of each Project; "": none
	CAConfigMap            string // in the namespace of each Project; "": none
	Timeout                time.Duration
	ResultTime             time.Duration
	Workspace              BuildWorkspace
	StorageClass           string            // "": the cluster's default
	StorageSize            resource.Quantity // size of the volume, or of the emptyDir
	Limits                 corev1.ResourceList
}

// BuildWorkspace is where a clone is stored until it is built.
type BuildWorkspace string

// The build workspaces.
const (
	// WorkspaceEmptyDir: one Task clones and builds, in a directory of its pod.
	WorkspaceEmptyDir BuildWorkspace = "emptyDir"
	// WorkspaceVolume: one Task clones and another one builds, with a volume between them.
	WorkspaceVolume BuildWorkspace = "volume"
)

// defaultProviders are the git providers unless GIT_PROVIDER_URLS sets other URLs. The API
// calls Bitbucket bitbucket.com; its repositories are at bitbucket.org.
var defaultProviders = map[string]string{
	"github.com":    "https://github.com",
	"gitlab.com":    "https://gitlab.com",
	"bitbucket.com": "https://bitbucket.org",
}

// Section returns the settings, which are read into k.
func (k *KibaShip) Section() settings.Section {
	return settings.Section{
		Title:    "KibaShip projects (platform.operator.kibaship.com)",
		Warnings: k.warnings,
		Settings: slices.Concat([]settings.Setting{
			settings.New("TEKTON_MODE", string(TektonOptional), settings.Enum(&k.Tekton, TektonOptional, TektonRequired, TektonOff), "What happens while Tekton is not installed. optional: Projects are Ready, and get access to Tekton when it is installed. required: Projects are Failed until then. off: Tekton is not used, and nothing is built."),
			settings.New("PROJECT_ADMIN_CLUSTER_ROLE", "kibaship-project-admin", settings.Name(&k.ProjectAdmin, content.IsPathSegmentName), "ClusterRole with which the operator works in the namespace of a Project. An administrator creates it; the operator must be allowed to bind it."),
			settings.New("PROJECT_POD_SECURITY", string(PodSecurityBaseline), settings.Enum(&k.PodSecurity, PodSecurityPrivileged, PodSecurityBaseline, PodSecurityRestricted), "Pod Security level that the namespace of a Project enforces whose podSecurity is empty: privileged, baseline or restricted. Builds need baseline or privileged. With privileged the namespace has no level, and the account of a Project without other bounds has all rights in it: it is root on the nodes."),
			settings.New("IMAGE_REGISTRIES", "", settings.Func(k.setImageRegistries), "Comma-separated registries whose images Applications of type DockerImage may name, as host[:port], for example docker.io,registry.example.org:5000. They may have private addresses. Empty: every registry with a public address. The one of BUILD_REGISTRY is always allowed."),
		}, k.Builds.settings(), k.Pushes.settings(), []settings.Setting{
			settings.New("IMAGE_CLEANUP", "false", settings.Bool(&k.Retention.On), "Whether images of earlier builds are deleted from the registry of BUILD_REGISTRY. Images that a Deployment, an Application or a workload of the Project names stay. It needs the right of config/kibaship/retention, and there the Secret cleanup in the namespace kibaship-images with the login that may delete."),
			settings.New("IMAGE_RETENTION_COUNT", "10", settings.Int(&k.Retention.Count, 0, 10000), "How many of the newest images of an Application stay, by the times of their commits, where its imageRetention does not say. 0: IMAGE_RETENTION_AGE alone decides."),
			settings.New("IMAGE_RETENTION_AGE", "720h", settings.Duration(&k.Retention.Age), "How long after the time of its commit an image stays, where imageRetention of the Application does not say. Older images are deleted if they are not among the newest."),
		}),
	}
}

func (b *Builds) settings() []settings.Setting {
	return []settings.Setting{
		settings.New("GIT_PROVIDER_URLS", "", settings.Func(b.setProviders), "Comma-separated URLs of git providers that are not at their public hosts, as provider=URL, for example github.com=https://git.example.org. bitbucket.com is bitbucket.org unless set."),
		settings.New("BUILD_GIT_IMAGE", "docker.io/alpine/git:v2.49.1", settings.Name(&b.GitImage, image), "Image that clones repositories. It needs git and a shell."),
		settings.New("BUILD_IMAGE", "ghcr.io/osscontainertools/kaniko:v1.28.2", settings.Name(&b.BuilderImage, image), "Image that builds without privileges: kaniko's executor of version 1.24 or newer. It does not push and has no credentials. Use a digest to pin it."),
		settings.New("BUILD_ARGS", "", settings.Func(b.setBuilderArgs), "Comma-separated arguments for the builder in addition to those that every build needs, for example --registry-mirror=mirror.example.org."),
		settings.New("BUILD_PUSH_IMAGE", "", settings.Optional(settings.Name(&b.PushImage, image)), "Image that prepares the source for the builder, and pushes the built image: an image of this operator. Empty: the image that the operator itself runs."),
		settings.New("BUILD_BASE_IMAGE", "", settings.Optional(settings.Name(&b.BaseImage, image)), "Image with a shell that runs the buildCommand of an Application without a Dockerfile. Empty: every Application needs a Dockerfile."),
		settings.New("BUILD_REGISTRY", "", settings.Func(registryAt(&b.Registry)), "Where built images are pushed to, as host[:port][/path], for example registry.example.org/kibaship. Empty: nothing is built."),
		settings.New("BUILD_REGISTRY_SECRET", "", settings.Optional(settings.Name(&b.RegistrySecret, validation.IsDNS1123Subdomain)), "Name of a Secret of type kubernetes.io/dockerconfigjson in the namespace of each Project with the credentials to push images. Empty: no credentials."),
		settings.New("BUILD_PULL_SECRET", "", settings.Optional(settings.Name(&b.PullSecret, validation.IsDNS1123Subdomain)), "Name of a Secret of type kubernetes.io/dockerconfigjson in the namespace of each Project with the credentials to read the images behind FROM, and to read and write the cache. The commands of a Dockerfile can read them. Empty: no credentials, unless an Application names a Secret."),
		settings.New("BUILD_CACHE_REGISTRY", "", settings.Func(registryAt(&b.CacheRegistry)), "Where the builder keeps the layers of earlier builds, as host[:port][/path], below it one repository for each Application. A build succeeds without it, and says so, while it cannot be reached. Empty: no cache."),
		settings.New("BUILD_CA_CONFIG_MAP", "", settings.Optional(settings.Name(&b.CAConfigMap, validation.IsDNS1123Subdomain)), "Name of a ConfigMap in the namespace of each Project whose key ca.crt holds the certificate authorities of git server and registry. Empty: those that the images trust."),
		settings.New("BUILD_TIMEOUT", "30m", settings.Duration(&b.Timeout), "Maximum duration of a run. Then it is stopped. Half of it is the maximum duration of the clone."),
		settings.New("BUILD_CONCURRENCY", "20", settings.Int(&b.Concurrency, 0, 10000), "How many builds of all Projects run at the same time. Others wait, those of the Project with the fewest builds first. 0: no limit."),
		settings.New("DEPLOYMENT_RESULT_TIME", "10m", settings.Duration(&b.ResultTime), "How long a Deployment is Succeeded or Failed before it is Waiting for its next change. Its conditions keep the result."),
		settings.New("BUILD_WORKSPACE", string(WorkspaceEmptyDir), settings.Enum(&b.Workspace, WorkspaceEmptyDir, WorkspaceVolume), "Where a clone is stored until it is built: emptyDir, in the pod that clones and builds; volume, in a volume that two pods use."),
		settings.New("BUILD_STORAGE_CLASS", "", settings.Optional(settings.Name(&b.StorageClass, validation.IsDNS1123Subdomain)), "StorageClass of that volume. Empty: the cluster's default."),
		settings.New("BUILD_STORAGE_SIZE", "24Gi", settings.Amount(&b.StorageSize), "Size of that volume. With emptyDir, the size that clone and image together may take on the node before the run is stopped."),
		settings.New("BUILD_LIMITS", "cpu=2,memory=4Gi,ephemeral-storage=48Gi", settings.Func(b.setLimits), "Comma-separated limits of the step that builds, as resource=amount: cpu, memory, and ephemeral-storage, which is the limit of the whole pod with its emptyDir. A resource that is not listed has no limit; none: no limits. Steps that clone and push have the same limits, but at most 1 cpu and 1Gi. Nothing is requested."),
	}
}

func (p *Pushes) settings() []settings.Setting {
	return []settings.Setting{
		settings.New("GIT_POLL_INTERVAL", "", settings.Optional(settings.Duration(&p.PollInterval)), "How often the operator asks the repository of each Application with autoBuild for new commits, for example 1m. Empty: only after a webhook."),
		settings.New("GIT_WEBHOOK_URL", "", settings.Func(p.setWebhookURL), "Where git providers reach the receiver of webhooks, for example https://pushes.example.org. Each Application with autoBuild gets an address below it, and a Secret. Empty: no webhooks."),
		settings.New("GIT_COMMIT_STATUS", "false", settings.Bool(&p.CommitStatus), "Whether the operator sends the state of builds, and nothing else of them, to the git providers of Applications that ask for it by autoBuild.commitStatus."),
	}
}

// setWebhookURL accepts no query and no credentials, because paths are appended to it.
func (p *Pushes) setWebhookURL(text string) error {
	p.WebhookURL = strings.TrimRight(text, "/")
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("must be https://host[:port][/path], without credentials")
	}
	return nil
}

// warnings returns one valid combination that is probably not intended.
func (k *KibaShip) warnings() []string {
	b := k.Builds
	switch {
	case b.Registry == "" && b.RegistrySecret != "":
		return []string{"BUILD_REGISTRY_SECRET is set and BUILD_REGISTRY is not: nothing is built"}
	case b.Registry == "" && k.Retention.On:
		return []string{"IMAGE_CLEANUP is set and BUILD_REGISTRY is not: no images are deleted"}
	case b.CacheRegistry != "" && b.PullSecret == "":
		return []string{"BUILD_CACHE_REGISTRY is set and BUILD_PULL_SECRET is not: only a registry that needs no credentials keeps layers, unless an Application names a Secret"}
	case b.Workspace != WorkspaceVolume && b.StorageClass != "":
		return []string{"BUILD_STORAGE_CLASS is not used unless BUILD_WORKSPACE=volume"}
	default:
		return nil
	}
}

// setBuilderArgs refuses an argument with a space in its name: it is a list with another separator.
func (b *Builds) setBuilderArgs(text string) error {
	b.BuilderArgs = slices.Collect(settings.Parts(text))
	for _, arg := range b.BuilderArgs {
		if !strings.HasPrefix(arg, "--") {
			return fmt.Errorf("%q: an argument begins with --", arg)
		}
		if name, _, _ := strings.Cut(arg, "="); strings.ContainsAny(name, " \t") {
			return fmt.Errorf("%q is one argument: separate arguments with a comma, and a name from its value with =", arg)
		}
	}
	return nil
}

// RepositoryURL returns where a repository is. The name is accepted with and without .git, and has it in the result.
func (b *Builds) RepositoryURL(provider, name string) string {
	return b.Providers[provider] + "/" + strings.TrimSuffix(name, ".git") + ".git"
}

// PublicProvider reports whether a provider is at its public address. The reach of connections to it and the URL of its API
// depend on this.
func (b *Builds) PublicProvider(provider string) bool {
	return b.Providers[provider] == defaultProviders[provider]
}

// setProviders begins with the defaults, so that a setting that names one provider leaves the others.
func (b *Builds) setProviders(text string) error {
	b.Providers = maps.Clone(defaultProviders)
	for part := range settings.Parts(text) {
		provider, base, ok := strings.Cut(part, "=")
		if _, known := defaultProviders[provider]; !ok || !known {
			return fmt.Errorf("%q: must be github.com, gitlab.com or bitbucket.com, then = and a URL", part)
		}
		u, err := url.Parse(base)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return fmt.Errorf("the URL of %s: must be https://host[:port][/path], without credentials", provider)
		}
		b.Providers[provider] = strings.TrimRight(base, "/")
	}
	return nil
}

// limited are the resources that BUILD_LIMITS can name.
var limited = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}

// setLimits replaces all limits: a resource that the text does not name has none.
func (b *Builds) setLimits(text string) error {
	b.Limits = corev1.ResourceList{}
	if text == "none" {
		return nil
	}
	for part := range settings.Parts(text) {
		name, amount, ok := strings.Cut(part, "=")
		if !ok || !slices.Contains(limited, corev1.ResourceName(name)) {
			return fmt.Errorf("%q: must be cpu, memory or ephemeral-storage, then = and an amount, for example memory=4Gi; or none alone", part)
		}
		if _, twice := b.Limits[corev1.ResourceName(name)]; twice {
			return fmt.Errorf("%s is given twice", name)
		}
		parse := settings.ParseAmount
		if name == string(corev1.ResourceCPU) {
			parse = settings.ParseCores
		}
		q, err := parse(amount)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		b.Limits[corev1.ResourceName(name)] = q
	}
	return nil
}

// registryAt parses the location of images in a registry.
func registryAt(location *string) func(string) error {
	return func(text string) error {
		*location = strings.TrimRight(text, "/")
		if text == "" {
			return nil
		}
		u, err := url.Parse("https://" + *location)
		if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Contains(*location, "://") || strings.ToLower(*location) != *location {
			return errors.New("must be host[:port][/path] in lower case, without https://, for example registry.example.org/kibaship")
		}
		return nil
	}
}

func (k *KibaShip) setImageRegistries(text string) error {
	k.ImageRegistries = slices.Collect(settings.Parts(text))
	for _, host := range k.ImageRegistries {
		u, err := url.Parse("https://" + host)
		if err != nil || u.Host != host || u.Hostname() == "" || strings.ToLower(host) != host {
			return fmt.Errorf("%q: must be host[:port] in lower case, for example registry.example.org:5000", host)
		}
	}
	return nil
}

// image accepts the reference of an image. The kubelet checks it further.
func image(s string) []string {
	if s == "" || strings.ContainsAny(s, " \t\n") || strings.Contains(s, "://") {
		return []string{"must be the reference of an image, for example registry.example.org/builder:1.2"}
	}
	return nil
}
