// Package retention deletes images of earlier builds from the registry, where IMAGE_CLEANUP is on.
//
//	names.go     which images objects name
//	decide.go    pure: which images are deleted
//	observe.go   reads the objects and the login
//	clean.go     lists, decides, deletes by digest, and looks again
//	controller.go, watches.go   when, and what the Application says of it
//	reconciler.go, metrics.go   the dependencies, and the counters
//
// An image that a Deployment, an Application or a workload of the Project names is never deleted. Names are read from the cache to decide,
// from the API server before the first deletion, and again after the last one: an image that was named in between is put back, whose layers
// the registry still has. While a build of the Application runs, nothing is deleted, since a build may push any image again.
//
// The login with the right to delete is in a Secret of a namespace of its own, which only this package reads. Builds do not have it.
//
// # After a kill
//
// Nothing is recorded but the condition of the Application, so the next clean-up begins from the registry. A kill between the
// deletions and the last look leaves images unchecked that were named in between: at most the images of one pass, see clean.go.
package retention
