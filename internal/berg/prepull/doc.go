// Package prepull has the images of Challenges pulled before players need them, without running any
// program in them.
//
// An image is pulled by a pod on the node, whose command cannot exist in any file system: the
// kubelet pulls the image, as it does for players, and then cannot start the container. One
// request stands for all Challenges, because they share the limits of concurrent pulls:
//
//	observe  (observe.go)    all reads, into one Observed
//	window   (schedule.go)   pure: when the images of a Challenge are to be pulled
//	wishes   (plan.go)       pure: which images on which nodes (nodes.go) are wanted
//	check    (checks.go)      pure: the progress of a pull
//	next     (next.go)       pure: which pulls start now
//	build    (controller.go) the namespace of a Challenge, then the pulls in it
//	derive   (status.go)     pure: the condition of each Challenge
//	tidy     (controller.go) deletes objects that are not needed any more
//
// The nodes show which images are pulled. A node lists some of its images only, and so this process
// remembers the rest (store.go); a new process pulls them again, which costs a pod each and no
// traffic of the registry.
package prepull
