// Package v1 holds the API of CTF challenges and of the instances that players
// start from them.
//
// A Challenge is written by an author and only read by the operator. A ChallengeInstance names a
// Challenge and an owner; the operator creates a namespace of running containers for it and deletes
// it when it expires.
//
// +kubebuilder:object:generate=true
// +groupName=berg.norelect.ch
// +groupGoName=Berg
package v1
