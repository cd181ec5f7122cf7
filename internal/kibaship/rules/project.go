package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
)

// uuid is lower case only: other programs compare texts.
var uuid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// reserved are names that no Project may have or begin with, up to a dash.
var reserved = []string{"default", "kube-system", "kube-public", "kube-node-lease", "kibaship-system"}

// Project returns the violations of a Project by itself.
func Project(p *kibashipv1.Project) Violations {
	all := projectName(p.Name)
	all = append(all, projectLabels(p.Labels)...)
	return append(all, projectSpec(&p.Spec)...)
}

func projectName(name string) (all Violations) {
	bad := func(format string, args ...any) {
		all = append(all, violated(kibashipv1.ReasonInvalidName, "metadata.name", format, args...))
	}
	if !naming.Slug.MatchString(name) {
		bad("%q must consist of lower-case letters, digits and dashes, with a letter or digit at both ends: it is part of the name of a namespace", name)
	}
	if len(name) > naming.MaxProject {
		bad("must be no longer than %d characters: the namespace %s must fit into 63", naming.MaxProject, naming.Namespace("<name>"))
	}
	for _, r := range reserved {
		if name == r || strings.HasPrefix(name, r+"-") {
			bad("%q is reserved: choose a name that does not begin with %s", name, r)
		}
	}
	return all
}

func projectLabels(labels map[string]string) (all Violations) {
	bad := func(label, format string, args ...any) {
		all = append(all, violated(kibashipv1.ReasonInvalidLabels, "metadata.labels["+label+"]", format, args...))
	}
	id, ok := labels[kibashipv1.LabelUUID]
	switch {
	case !ok:
		bad(kibashipv1.LabelUUID, "is required: set the label to the UUID of the project")
	case !uuid.MatchString(id):
		bad(kibashipv1.LabelUUID, "%q is not a UUID: it must match %s, in lower case", id, uuid)
	}
	if id, ok := labels[kibashipv1.LabelWorkspaceUUID]; ok && !uuid.MatchString(id) {
		bad(kibashipv1.LabelWorkspaceUUID, "%q is not a UUID: it must match %s, in lower case; or leave the label out", id, uuid)
	}
	return all
}

// projectSpec checks rules that no schema can express: whether bounds and defaults of amounts fit each other.
func projectSpec(spec *kibashipv1.ProjectSpec) (all Violations) {
	for _, t := range kibashipv1.ApplicationTypeNames {
		policy := PolicyFor(spec, t.Type)
		field := "spec.applicationTypes." + t.Field
		for _, amount := range amounts {
			low, high, preset := amount.value(policy.Min.Limits), amount.value(policy.Max.Limits), amount.value(policy.Default.Limits)
			if less(high, low) {
				all = append(all, violated(kibashipv1.ReasonInvalid, field+".resourceBounds."+"max."+amount.name, "%s is less than min.%s, %s: raise it, or lower the other", high, amount.name, low))
			}
			if less(preset, low) || less(high, preset) {
				all = append(all, violated(kibashipv1.ReasonInvalid, field+".defaultLimits."+amount.name, "%s is not within resourceBounds (%s): bring it there", preset, between(low, high)))
			}
		}
		low, high, preset := policy.Min.Nodes, policy.Max.Nodes, policy.Default.Nodes
		if high != 0 && low > high {
			all = append(all, violated(kibashipv1.ReasonInvalid, field+".resourceBounds.max.nodes", "%d is less than min.nodes, %d: raise it, or lower the other", high, low))
		}
		if preset != 0 && (preset < low || high != 0 && preset > high) {
			all = append(all, violated(kibashipv1.ReasonInvalid, field+".defaultLimits.nodes", "%d is not within resourceBounds: bring it there", preset))
		}
	}
	return all
}

func between(low, high string) string {
	switch {
	case high == "":
		return "at least " + low
	case low == "":
		return "at most " + high
	default:
		return fmt.Sprintf("%s to %s", low, high)
	}
}

// ProjectChange returns the violations of an update of a Project, independent of its other changes: a
// valid uuid is immutable, since every object of the Project carries it.
func ProjectChange(before, after *kibashipv1.Project) Violations {
	was, current := before.Labels[kibashipv1.LabelUUID], after.Labels[kibashipv1.LabelUUID]
	if was == current || !uuid.MatchString(was) {
		return nil
	}
	return Violations{violated(kibashipv1.ReasonInvalidLabels, "metadata.labels["+kibashipv1.LabelUUID+"]",
		"cannot be changed, it was %s: delete this Project and create another one", was)}
}

// UUIDTaken returns the violation of a Project whose uuid an older Project has. If both were
// created in the same second, the violation is for the name that sorts later.
func UUIDTaken(p *kibashipv1.Project, projects []kibashipv1.Project) Violations {
	other := sameUUID(p, projects, func(other *kibashipv1.Project) bool { return older(&other.ObjectMeta, &p.ObjectMeta) })
	if other == nil {
		return nil
	}
	return uuidViolation("%s is the uuid of Project %s: every Project needs its own", p.Labels[kibashipv1.LabelUUID], other.Name)
}

// UUIDInUse returns the violation of a Project that asks for a uuid that another one has. How old
// they are does not matter: at admission the API server has given the newcomer a time already, and
// that may be of the same second. It does not name the other: every pod that reaches the webhook may ask.
func UUIDInUse(p *kibashipv1.Project, projects []kibashipv1.Project) Violations {
	if sameUUID(p, projects, func(*kibashipv1.Project) bool { return true }) == nil {
		return nil
	}
	return uuidViolation("%s is the uuid of another Project: every Project needs its own", p.Labels[kibashipv1.LabelUUID])
}

func uuidViolation(format string, args ...any) Violations {
	return Violations{violated(kibashipv1.ReasonUUIDTaken, "metadata.labels["+kibashipv1.LabelUUID+"]", format, args...)}
}

// sameUUID returns a Project that goes before p and has its uuid, nil if there is none.
func sameUUID(p *kibashipv1.Project, projects []kibashipv1.Project, goesBefore func(*kibashipv1.Project) bool) *kibashipv1.Project {
	id := p.Labels[kibashipv1.LabelUUID]
	if id == "" {
		return nil
	}
	for i := range projects {
		other := &projects[i]
		if other.Name == p.Name || other.Labels[kibashipv1.LabelUUID] != id || !goesBefore(other) {
			continue
		}
		return other
	}
	return nil
}

func older(a, b *metav1.ObjectMeta) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

// UnknownClass returns the violation of a Project whose class is not among the classes.
func UnknownClass(class string, classes []string) Violations {
	switch {
	case class == "" || slices.Contains(classes, class):
		return nil
	case len(classes) == 0:
		return Violations{violated(kibashipv1.ReasonClassNotFound, "spec.class", "ProjectClass %q does not exist, and no other one does: create it", class)}
	default:
		return Violations{violated(kibashipv1.ReasonClassNotFound, "spec.class", "ProjectClass %q does not exist: create it, or name one of these: %s", class, strings.Join(classes, ", "))}
	}
}

// UUID reports whether a text is a UUID as labels must be.
func UUID(text string) bool { return uuid.MatchString(text) }
