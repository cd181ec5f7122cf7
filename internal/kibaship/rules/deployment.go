package rules

import (
	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
)

// Deployment returns the violations of a Deployment by itself.
func Deployment(d *kibashipv1.Deployment) (all Violations) {
	application := d.Spec.ApplicationRef.Name
	switch _, ok := naming.Deployment(d.Name, application); {
	case !naming.IsApplication(application):
		all = append(all, violated(kibashipv1.ReasonInvalidSpec, "spec.applicationRef.name",
			"%q is not the name of an Application: it must be project-<project>-app-<app>-kibaship-com", application))
	case !naming.IsDeployment(d.Name):
		all = append(all, violated(kibashipv1.ReasonInvalidName, "metadata.name",
			"%q must be project-<project>-app-<app>-deployment-<deployment>-kibaship-com: %s", d.Name, naming.DeploymentPattern))
	case !ok:
		all = append(all, violated(kibashipv1.ReasonNameMismatch, "metadata.name",
			"%q does not belong to Application %s: project and app must be the same in both", d.Name, application))
	}
	return all
}
