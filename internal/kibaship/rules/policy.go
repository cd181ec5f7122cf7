package rules

import (
	"k8s.io/apimachinery/pkg/api/resource"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
)

// Policy is the policy of a Project for a type of Application.
type Policy struct {
	Enabled           bool
	Default, Min, Max kibashipv1.ClusterLimits
}

// PolicyFor returns the policy of a Project for a type, with defaults where the Project does not set it. Bounds that are not set
// are empty, and refuse nothing.
func PolicyFor(spec *kibashipv1.ProjectSpec, t kibashipv1.ApplicationType) Policy {
	types := spec.ApplicationTypes
	switch t {
	case kibashipv1.TypeMySQL:
		return single(types.MySQL)
	case kibashipv1.TypeMySQLCluster:
		return cluster(types.MySQLCluster)
	case kibashipv1.TypePostgres:
		return single(types.Postgres)
	case kibashipv1.TypePostgresCluster:
		return cluster(types.PostgresCluster)
	case kibashipv1.TypeDockerImage:
		return single(types.DockerImage)
	case kibashipv1.TypeGitRepository:
	}
	return single(types.GitRepository)
}

func single(p *kibashipv1.TypePolicy) Policy {
	if p == nil {
		return Policy{Enabled: true}
	}
	return Policy{
		Enabled: p.Enabled,
		Default: kibashipv1.ClusterLimits{Limits: p.DefaultLimits},
		Min:     kibashipv1.ClusterLimits{Limits: p.ResourceBounds.Min},
		Max:     kibashipv1.ClusterLimits{Limits: p.ResourceBounds.Max},
	}
}

// cluster: clusters are allowed only where the Project says so.
func cluster(p *kibashipv1.ClusterTypePolicy) Policy {
	if p == nil {
		return Policy{}
	}
	return Policy{Enabled: p.Enabled, Default: p.DefaultLimits, Min: p.ResourceBounds.Min, Max: p.ResourceBounds.Max}
}

// amounts are the amounts in Limits, by the names of their fields.
var amounts = []struct {
	name  string
	value func(kibashipv1.Limits) string
}{
	{"cpu", func(l kibashipv1.Limits) string { return l.CPU }},
	{"memory", func(l kibashipv1.Limits) string { return l.Memory }},
	{"storage", func(l kibashipv1.Limits) string { return l.Storage }},
}

// less reports whether a is less than b; an amount that is left out is not less than anything. The
// schema admits amounts that are numbers with a unit; any other compares as left out.
func less(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	x, err := resource.ParseQuantity(a)
	if err != nil {
		return false
	}
	y, err := resource.ParseQuantity(b)
	return err == nil && x.Cmp(y) < 0
}
