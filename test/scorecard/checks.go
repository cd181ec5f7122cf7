package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/family"
	"github.com/bergctf/berg-operator/internal/operator"
)

// check looks at one promise. It returns what is wrong, one line each.
type check struct {
	name     string
	problems func(bundle) []string
}

var checks = []check{
	{"variables-are-complete", variables},
	{"rights-are-minimal", rights},
	{"rights-are-those-allowed", allowedRights},
	{"pod-is-restricted", podSecurity},
	{"pod-is-manageable", podOperation},
	{"images-can-be-mirrored", images},
	{"kinds-have-examples", kinds},
	{"fields-are-described", fields},
}

// setting is a variable that the operator reads.
type setting struct{ Name, Default string }

// settings are those of the family of an API group, and of the operator itself. Those that tell packages apart have the values
// of this one.
func settings(b bundle) (sections [][]setting) {
	apart := map[string]string{"ENABLED_APIS": b.api(), "LEASE_NAME": b.lease()}
	own := slices.DeleteFunc(families.All(), func(f family.Family) bool { return f.API != b.api() })
	for _, section := range operator.Sections(new(config.Process), own) {
		var all []setting
		for _, s := range section.Settings {
			all = append(all, setting{s.Name, cmp.Or(apart[s.Name], s.Default)})
		}
		sections = append(sections, all)
	}
	return sections
}

// relatedImage is the prefix of variables that are there for operator-sdk.
const relatedImage = "RELATED_IMAGE_"

// variables: a Subscription can set what the operator reads, and the Deployment
// shows every variable with its default.
func variables(b bundle) []string {
	var problems, names []string
	env := map[string]corev1.EnvVar{}
	for _, v := range b.container().Env {
		if strings.HasPrefix(v.Name, relatedImage) {
			continue
		}
		names = append(names, v.Name)
		env[v.Name] = v
	}
	var wanted []string
	inOrder := true
	for _, section := range settings(b) {
		var together []string
		for _, v := range section {
			together = append(together, v.Name)
			got, there := env[v.Name]
			switch {
			case !there:
				problems = append(problems, fmt.Sprintf("the Deployment lacks the variable %s: add it to settings.yaml of its family, or to config/manager/manager.yaml", v.Name))
			case got.ValueFrom == nil && got.Value != v.Default:
				problems = append(problems, fmt.Sprintf("the Deployment sets %s to %q, want %q", v.Name, got.Value, v.Default))
			}
		}
		wanted = append(wanted, together...)
		// Sections may stand in any order: a family adds its own.
		from := max(0, slices.Index(names, together[0]))
		inOrder = inOrder && slices.Equal(names[from:min(from+len(together), len(names))], together)
	}
	for _, name := range names {
		if !slices.Contains(wanted, name) {
			problems = append(problems, fmt.Sprintf("the Deployment sets %s, which the operator does not read", name))
		}
	}
	if len(problems) == 0 && (!inOrder || len(names) != len(wanted)) {
		problems = append(problems, "the variables of the Deployment are not in the order of internal/config")
	}
	if args := b.container().Args; len(args) > 0 {
		problems = append(problems, fmt.Sprintf("the Deployment has the arguments %q, which win over what a Subscription sets", args))
	}
	return problems
}

// The verbs that let their holder gain rights beyond its own.
var escalating = []string{"escalate", "bind", "impersonate"}

// rights: nothing by wildcard, no way to more rights, no reading of foreign
// Secrets.
func rights(b bundle) []string {
	var problems []string
	allowed := b.allowed()
	each := func(scope string, all []operatorsv1alpha1.StrategyDeploymentPermissions, visit func(scope, where string, rule rbacv1.PolicyRule)) {
		for _, p := range all {
			for i, rule := range p.Rules {
				visit(scope, fmt.Sprintf("rule %d of %s for the %s", i, p.ServiceAccountName, scope), rule)
			}
		}
	}
	general := func(scope, where string, rule rbacv1.PolicyRule) {
		for _, list := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs} {
			if slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, "*") }) {
				problems = append(problems, fmt.Sprintf("%s has a wildcard: %v", where, rule))
			}
		}
		if slices.Contains(rule.APIGroups, rbacv1.GroupName) {
			for _, right := range resources(rule) {
				for _, verb := range rule.Verbs {
					if !slices.Contains(allowed[scope+": "+right], verb) {
						problems = append(problems, fmt.Sprintf("%s is about RBAC itself: %v", where, rule))
					}
				}
			}
			return
		}
		for _, verb := range escalating {
			if slices.Contains(rule.Verbs, verb) {
				problems = append(problems, fmt.Sprintf("%s allows %s", where, verb))
			}
		}
	}
	install := b.csv.Spec.InstallStrategy.StrategySpec
	// OLM grants these in all namespaces, too: of what a namespace has, they may name objects, or create some.
	each("namespace", install.Permissions, func(scope, where string, rule rbacv1.PolicyRule) {
		general(scope, where, rule)
		if len(rule.ResourceNames) == 0 && !slices.Equal(rule.Verbs, []string{"create"}) || slices.Contains(rule.Resources, "secrets") {
			problems = append(problems, fmt.Sprintf("%s holds in all namespaces: move it to the Role that the installer binds: %v", where, rule))
		}
	})
	each("cluster", install.ClusterPermissions, func(scope, where string, rule rbacv1.PolicyRule) {
		general(scope, where, rule)
		if !slices.Contains(rule.Resources, "secrets") {
			return
		}
		for _, verb := range rule.Verbs {
			if verb != "create" {
				problems = append(problems, fmt.Sprintf("%s allows to %s Secrets of all namespaces", where, verb))
			}
		}
	})
	return problems
}

// podSecurity: the Pod Security Standard "restricted", a read-only root, a
// numeric user.
func podSecurity(b bundle) []string {
	return eachDeployment(b, func(d operatorsv1alpha1.StrategyDeploymentSpec, want func(bool, string)) {
		pod, spec := d.Spec.Template.Spec.SecurityContext, d.Spec.Template.Spec
		if want(pod != nil, "the pod has no securityContext"); pod == nil {
			return
		}
		want(pod.RunAsNonRoot != nil && *pod.RunAsNonRoot, "the pod does not set runAsNonRoot")
		want(pod.RunAsUser != nil && *pod.RunAsUser > 0, "the pod does not set runAsUser to a number above 0")
		want(pod.SeccompProfile != nil && pod.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault,
			"the pod's seccompProfile is not RuntimeDefault")
		want(!spec.HostNetwork && !spec.HostPID && !spec.HostIPC, "the pod shares a namespace of its host")
		want(len(spec.Volumes) == 0, "the pod has volumes")

		container := spec.Containers[0].SecurityContext
		if want(container != nil, "the container has no securityContext"); container == nil {
			return
		}
		want(container.AllowPrivilegeEscalation != nil && !*container.AllowPrivilegeEscalation, "the container allows privilege escalation")
		want(container.ReadOnlyRootFilesystem != nil && *container.ReadOnlyRootFilesystem, "the container's root is writable")
		want(container.Privileged == nil || !*container.Privileged, "the container is privileged")
		want(container.Capabilities != nil && slices.Contains(container.Capabilities.Drop, "ALL") && len(container.Capabilities.Add) == 0,
			"the container does not drop all capabilities")
	})
}

// eachDeployment calls check for each Deployment of a bundle, with a function that notes a problem unless something is as it must be.
func eachDeployment(b bundle, check func(d operatorsv1alpha1.StrategyDeploymentSpec, want func(ok bool, problem string))) []string {
	var problems []string
	for _, d := range b.csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs {
		check(d, func(ok bool, problem string) {
			if !ok {
				problems = append(problems, d.Name+": "+problem)
			}
		})
	}
	return problems
}

// podOperation: what a cluster needs to run the pod well, and OLM to go on after
// a mistake in the configuration.
func podOperation(b bundle) []string {
	return eachDeployment(b, func(d operatorsv1alpha1.StrategyDeploymentSpec, want func(bool, string)) {
		container := d.Spec.Template.Spec.Containers[0]
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			_, ok := container.Resources.Requests[name]
			want(ok, fmt.Sprintf("the container requests no %s", name))
		}
		want(container.ReadinessProbe != nil, "the container has no readiness probe")
		want(container.LivenessProbe != nil, "the container has no liveness probe")
		want(d.Spec.Template.Spec.PriorityClassName != "", "the pod has no priority class")

		// OLM checks readiness before it looks for a new configuration, and calls a
		// Deployment past its deadline beyond repair.
		want(d.Spec.ProgressDeadlineSeconds != nil && *d.Spec.ProgressDeadlineSeconds == 1<<31-1,
			"progressDeadlineSeconds is not at its maximum: OLM would not apply a fixed configuration")
		update := d.Spec.Strategy.RollingUpdate
		want(update != nil && update.MaxUnavailable != nil && update.MaxUnavailable.IntValue() == 0,
			"maxUnavailable is not 0: a configuration that is refused would stop the operator")
	})
}

// images: a mirror of relatedImages has everything that the operator needs.
func images(b bundle) []string {
	var problems []string
	image := b.container().Image
	var needed []string
	for _, d := range b.csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs {
		needed = append(needed, d.Spec.Template.Spec.Containers[0].Image)
	}
	for _, v := range b.container().Env {
		if strings.HasSuffix(v.Name, "_IMAGE") && !strings.HasPrefix(v.Name, relatedImage) && v.Value != "" {
			needed = append(needed, v.Value)
		}
	}
	slices.Sort(needed)
	needed = slices.Compact(needed)
	related := make([]string, 0, len(needed))
	for _, r := range b.csv.Spec.RelatedImages {
		related = append(related, r.Image)
	}
	slices.Sort(related)
	if !slices.Equal(related, needed) {
		problems = append(problems, fmt.Sprintf("relatedImages are %q, needed are %q", related, needed))
	}
	used := append(b.exampleImages(), b.scorecardImages...)
	for _, i := range append(used, needed...) {
		if !pinned(i) {
			problems = append(problems, fmt.Sprintf("the image %q is not pinned: give it a version or a digest", i))
		}
	}
	if annotated := b.csv.Annotations["containerImage"]; annotated != image {
		problems = append(problems, fmt.Sprintf("the annotation containerImage is %q, the Deployment runs %q", annotated, image))
	}
	return problems
}

// pinned is whether an image is named by digest or by a tag that stays.
func pinned(image string) bool {
	if strings.Contains(image, "@sha256:") {
		return true
	}
	_, tag, found := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	return found && tag != "" && tag != "latest"
}

// kinds: every one is introduced, and has one.
func kinds(b bundle) []string {
	var problems []string
	for _, kind := range b.csv.Spec.CustomResourceDefinitions.Owned {
		if kind.Description == "" || kind.DisplayName == "" {
			problems = append(problems, kind.Kind+" has no description or display name")
		}
		_, group, _ := strings.Cut(kind.Name, ".")
		apiVersion := group + "/" + kind.Version
		if !slices.ContainsFunc(b.examples, func(e unstructured.Unstructured) bool {
			return e.GetKind() == kind.Kind && e.GetAPIVersion() == apiVersion
		}) {
			problems = append(problems, "there is no example of "+kind.Kind)
		}
	}
	return problems
}
