// Package rules validates Projects, Applications and Deployments. It is pure: the webhooks refuse violations with it, and the
// controllers report violations that reached storage without a webhook.
//
//	project.go      names, labels and bounds of Projects, and the uuid that no two may have
//	application.go  specs of Applications, and what their Projects allow
//	deployment.go   names of Deployments
//	image.go        references of images
//	policy.go       what a Project says of a type of Application
//	rules.go        violations and their texts
//
// Each function returns all violations that it finds, in a fixed order, so that a message does not change without a change of the
// object. A violation says what to do about it.
package rules
