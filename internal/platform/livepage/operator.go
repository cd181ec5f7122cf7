package livepage

import (
	"io"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/bergctf/berg-operator/internal/berg/plan"
	"github.com/bergctf/berg-operator/internal/kit/settings"
)

// Operator names the objects of the operator that the page follows.
type Operator struct{ Namespace, Deployment, Lease string }

// silence is how long the operator may renew no lease, and an instance may have no status, before the page says so. A new leader
// takes over within half of it.
const silence = 30 * time.Second

// operatorState is what the page knows of the operator.
type operatorState struct {
	// renewal is the last renewal of the lease, and seen when it arrived here, so that clocks need not agree. Zero: no lease is known.
	renewal, seen time.Time
	// plan and maxInstances are its settings.
	plan         plan.Settings
	maxInstances int
}

// OperatorSettings are the operator's settings from which the page calculates, with the operator's defaults.
func OperatorSettings() []settings.Setting { return new(operatorState).settings() }

func (o *operatorState) settings() []settings.Setting {
	return []settings.Setting{
		settings.New("CHALLENGE_MAX_INSTANCES", "0", settings.Int(&o.maxInstances, 0, 100000), ""),
		settings.New("CHALLENGE_CPU_LIMIT", "1000m", settings.Cores(&o.plan.CPULimit), ""),
		settings.New("CHALLENGE_CPU_REQUEST", "100m", settings.Cores(&o.plan.CPURequest), ""),
		settings.New("CHALLENGE_MEMORY_LIMIT", "512Mi", settings.Amount(&o.plan.MemoryLimit), ""),
		settings.New("CHALLENGE_MEMORY_REQUEST", "128Mi", settings.Amount(&o.plan.MemoryRequest), ""),
		settings.New("CHALLENGE_EPHEMERAL_STORAGE_REQUEST", "64Mi", settings.Bytes(&o.plan.DiskRequest), ""),
	}
}

// load reads the settings from variables, and from the ConfigMap as the operator does. Invalid ones, with which the operator does
// not start, change nothing.
func (o *operatorState) load(variables, shared map[string]string) bool {
	read := operatorState{plan: plan.Settings{Policies: 1}}
	_, err := settings.LoadShared("", []settings.Section{{Settings: read.settings()}}, nil, func(name string) string { return variables[name] },
		func() (map[string]string, error) { return shared, nil }, io.Discard)
	if err != nil {
		return false
	}
	o.plan, o.maxInstances = read.plan, read.maxInstances
	return true
}

// scoped limits a cache to one object of the operator.
func (o Operator) scoped(name string) cache.ByObject {
	return cache.ByObject{Namespaces: map[string]cache.Config{o.Namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", name)}}}
}

// trimDeployment keeps the variables from which the page calculates, and options as variables.
func trimDeployment(d *appsv1.Deployment) *appsv1.Deployment {
	kept := &appsv1.Deployment{TypeMeta: d.TypeMeta}
	kept.Namespace, kept.Name, kept.UID, kept.ResourceVersion = d.Namespace, d.Name, d.UID, d.ResourceVersion
	known := OperatorSettings()
	for _, c := range d.Spec.Template.Spec.Containers {
		container := corev1.Container{Name: c.Name}
		for _, v := range c.Env {
			if slices.ContainsFunc(known, func(s settings.Setting) bool { return s.Name == v.Name }) {
				container.Env = append(container.Env, corev1.EnvVar{Name: v.Name, Value: v.Value})
			}
		}
		for _, s := range known {
			if value, given := settings.FindOption(c.Args, s.Name); given {
				container.Env = append(container.Env, corev1.EnvVar{Name: s.Name, Value: value})
			}
		}
		kept.Spec.Template.Spec.Containers = append(kept.Spec.Template.Spec.Containers, container)
	}
	return kept
}
