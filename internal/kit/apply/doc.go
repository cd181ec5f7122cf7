// Package apply brings objects into the state of a plan. It creates missing objects, updates
// different ones, deletes unwanted ones, and refuses objects that the custom resource does not own.
// An object in place costs no request.
//
//	steps.go           the order of a plan: which objects wait for which, and when unwanted ones are deleted
//	apply.go           one object: is it in place, create it, update it
//	contains.go        first question: does the live object have every value of the plan
//	checksum.go        second question: was it written from this plan
//	fieldowners.go     third question: has another manager written a field of it
//	metadata.go        labels, annotations and owner references that belong to others and stay
//	replace.go         an object that no update can change
//	driftbackoff.go    how often an object is repaired that another client keeps changing
//	prune.go           deletion of unwanted objects
//	find.go, absent.go what a missing object means: the cache lags, the kind is unknown, or it does not exist
//	namespacetoken.go  a namespace that another client could have created first
//	scale.go           stops the pods of a Deployment
//	kind.go            typed and unstructured objects
//
// # What holds
//
// An object is read from the API server, and its owner checked, before it is written or deleted. The cache only decides that
// nothing needs to be done, or whether to ask. A create needs no such read, because the API server refuses a name that exists.
//
// Each update carries the resourceVersion and each deletion the UID that was read, so no write of another client is lost and
// no successor of the same name is deleted. After a conflict the object is read and compared again. That does not keep two
// leaders with different plans apart: the fence of the lease does, see docs/adr/0013-fenced-writes.md.
//
// A plan can stop after any object: by an error, or because the process is killed. The objects before it are complete and the
// next reconciliation finds them in place. So the order of steps is the order in which a half-built plan is harmless: pods come
// after the policies that confine them and after the objects that they mount.
//
// Nothing in memory decides which content is right. After a restart the DriftBackoff is empty, which costs writes without delay
// and reads of objects that an admission webhook changes, but no other result.
package apply
