package application

import (
	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
)

// Observed is everything outside the Application that decides what it is.
type Observed struct {
	// Project is the Project that the Application names; nil if it does not exist.
	Project *kibashipv1.Project
	// SecretsKnown: the Secrets of the namespace are known. Missing are the named Secrets that do not
	// exist.
	SecretsKnown bool
	Missing      []string
	// AutoBuild is what pushes build. It is nil where they start no builds, or the Application is not Ready.
	AutoBuild *AutoBuild
}
