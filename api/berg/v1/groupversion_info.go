// Package v1 holds the API of CTF challenges and of the instances that players
// start from them.
//
// A Challenge is written by an author and only read by the operator. A
// ChallengeInstance names a Challenge and an owner; the operator turns it into
// a namespace of running containers and deletes it when it expires.
//
// +kubebuilder:object:generate=true
// +groupName=berg.norelect.ch
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "berg.norelect.ch", Version: "v1"}

// AddToScheme registers the kinds of this package with a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&Challenge{}, &ChallengeList{},
		&ChallengeInstance{}, &ChallengeInstanceList{},
		&ChallengeCheck{}, &ChallengeCheckList{},
		&ChallengeInstanceRecord{}, &ChallengeInstanceRecordList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
