// Package instances starts, renews and ends the instance of a challenge for a user or team of a platform. All state is
// in Kubernetes: a registration is a ConfigMap, an instance a ChallengeInstance. Any number of replicas work side by
// side without a leader.
//
// Reads come from one watch cache, which may lag. Before a write the Store confirms the state with the API server,
// since another replica may have written a moment ago.
//
//	identity.go       pure: the names and IDs that follow from a registration and a source
//	registration.go   pure: a registration and its ConfigMap
//	registrations.go  creates, changes and deletes registrations
//	boot.go           starts an instance
//	renew.go          renews and ends an instance
//	read.go, view.go  what platforms see of an instance
//	wait.go           waits until an instance runs, or cannot
//	seen.go           waits until the cache has a write
//	store.go          the cache, its indexes, and the client
//	errors.go         errors that platforms may see
//
// # What holds
//
// A source has one live instance of a registration at most, but for the moment between two creations at the same time: the younger
// one is then deleted by its creator. No lock is needed for that. Names follow from what all replicas see, and the API server decides
// which creation was the first.
//
// A deletion or a change names the UID of what it means. So it never meets a newer object of the same name.
//
// # After a kill
//
// Each request is a few writes, of which each is complete by itself. A start whose answer was lost is joined by the next request. An
// instance that was created too many is deleted by the next request of its source. A registration that is deleted takes its
// instances with it by their owner references.
package instances
