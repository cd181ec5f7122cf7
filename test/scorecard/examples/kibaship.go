package examples

import (
	"strings"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
)

var _ = add(family{addToScheme: kibashipv1.AddToScheme, tried: kibashipProjects})

// kibashipProjects returns the Projects. Applications and Deployments stand in the namespaces of
// Projects: they are tried while their Project is Ready.
func kibashipProjects(all []unstructured.Unstructured, at place) (tried []resource, _ error) {
	var examples kibashipExamples
	for _, e := range all {
		if e.GroupVersionKind().Group != kibashipv1.GroupVersion.Group {
			continue
		}
		var err error
		switch e.GetKind() {
		case "Project":
			examples.projects, err = readInto(examples.projects, e)
		case "Application":
			examples.applications, err = readInto(examples.applications, e)
		case "Deployment":
			examples.deployments, err = readInto(examples.deployments, e)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, p := range examples.projects {
		tried = append(tried, examples.project(p, at.prefix))
	}
	return tried, nil
}

func readInto[T any](all []*T, e unstructured.Unstructured) ([]*T, error) {
	one, err := read[T](e)
	if err != nil {
		return nil, err
	}
	return append(all, one), nil
}

// kibashipExamples are those of the family.
type kibashipExamples struct {
	projects     []*kibashipv1.Project
	applications []*kibashipv1.Application
	deployments  []*kibashipv1.Deployment
}

// project gives the example of a Project a name and a uuid that no other Project has. The ClusterRole
// that it needs an administrator creates, who may not have done so: then the Project must say
// that, and nothing can be tried in it.
func (x kibashipExamples) project(p *kibashipv1.Project, prefix string) resource {
	example := p.Name
	p.ObjectMeta = metav1.ObjectMeta{Name: prefix + p.Name, Labels: map[string]string{kibashipv1.LabelUUID: uuid.NewString()}}
	return resource{
		Object: p, example: example,
		runs: string(kibashipv1.ProjectReady), fails: string(kibashipv1.ProjectFailed),
		phase: func() string {
			c := meta.FindStatusCondition(p.Status.Conditions, kibashipv1.ConditionAccessReady)
			if c != nil && c.Reason == kibashipv1.ReasonAdminRoleMissing {
				return string(kibashipv1.ProjectReady)
			}
			return string(p.Status.Phase)
		},
		conditions: func() []metav1.Condition { return p.Status.Conditions },
		namespace:  func() string { return p.Status.NamespaceName },
		then: func() (next []resource) {
			if p.Status.Phase != kibashipv1.ProjectReady {
				return nil
			}
			for _, a := range x.applications {
				if a.Spec.ProjectRef.Name == example {
					next = append(next, x.application(a, example, p))
				}
			}
			return next
		},
	}
}

// application moves the example of an Application into a Project.
func (x kibashipExamples) application(a *kibashipv1.Application, project string, p *kibashipv1.Project) resource {
	example := a.Name
	a.ObjectMeta = metav1.ObjectMeta{Namespace: p.Status.NamespaceName, Name: moved(a.Name, project, p.Name)}
	a.Spec.ProjectRef.Name = p.Name
	if a.Spec.DockerImage != nil {
		// The example's image is never asked for: no registry of the Internet is reached.
		a.Spec.DockerImage.Image = "registry.invalid/team/app"
	}
	return resource{
		Object: a, example: example,
		runs: kibashipv1.ApplicationReady, fails: kibashipv1.ApplicationFailed,
		phase:      func() string { return a.Status.Phase },
		conditions: func() []metav1.Condition { return a.Status.Conditions },
		namespace:  func() string { return "" },
		then: func() (next []resource) {
			for _, d := range x.deployments {
				if d.Spec.ApplicationRef.Name == example {
					next = append(next, deploymentExample(d, project, p, a.Name))
				}
			}
			return next
		},
	}
}

// deploymentExample moves the example of a Deployment into the namespace of its Application. Whether Tekton and
// a registry can be reached is not its matter: it must say where it stands.
func deploymentExample(d *kibashipv1.Deployment, project string, p *kibashipv1.Project, application string) resource {
	const reported = "reported"
	example := d.Name
	d.ObjectMeta = metav1.ObjectMeta{Namespace: p.Status.NamespaceName, Name: moved(d.Name, project, p.Name)}
	d.Spec.ApplicationRef.Name = application
	return resource{
		Object: d, example: example,
		runs: reported, fails: string(kibashipv1.DeploymentFailed),
		phase: func() string {
			if meta.IsStatusConditionTrue(d.Status.Conditions, kibashipv1.ConditionApplicationReady) &&
				meta.FindStatusCondition(d.Status.Conditions, kibashipv1.ConditionSucceeded) != nil {
				return reported
			}
			return string(d.Status.Phase)
		},
		conditions: func() []metav1.Condition { return d.Status.Conditions },
		namespace:  func() string { return "" },
	}
}

// moved is a name with another Project in it.
func moved(name, from, to string) string {
	return "project-" + to + strings.TrimPrefix(name, "project-"+from)
}
