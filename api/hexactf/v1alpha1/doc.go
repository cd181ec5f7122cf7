// Package v1alpha1 holds the API of HexaCTF challenges.
//
// A Challenge runs the components of a ChallengeDefinition for one player, reports each step to the
// platform by a message, and ends when its time is over.
//
// +kubebuilder:object:generate=true
// +groupName=apps.hexactf.io
// +groupGoName=HexaCTF
package v1alpha1
