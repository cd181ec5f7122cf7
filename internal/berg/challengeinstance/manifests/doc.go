// Package manifests converts a Challenge into the objects of an instance. It validates the Challenge, normalises it into a
// Snapshot, and plans every object. It has no client, no clock and no randomness: secrets are derived from the seed of the
// instance (Inputs).
//
//	snapshot.go   the content that an instance is started with, and keeps
//	changes.go    what a rollout of another content changes
//	inputs.go     all that a plan depends on: identity, owner, names and labels
//	plan.go       the objects in two parts: before and after the node ports are known
//	endpoints.go  the addresses of ports
//	summary.go    errors of a Challenge in one message
//
// The other files are named after the objects that they build. A policy is built for Kubernetes and for Cilium:
// networkpolicy_kubernetes.go and networkpolicy_cilium.go.
//
// # What holds
//
// The same Inputs give the same objects, byte by byte. Defaults of the API server are filled in, so an object that is read back
// equals its plan, and a repair writes nothing where nothing differs. Everything in a pod comes from the snapshot, from the
// configuration in it, or from values that stay for the life of the instance, since any other change would restart it.
//
// The flag is only in the ConfigMaps and variables of containers that ask for it. No label, annotation or name has it.
package manifests
