// Package prepull has the images of Challenges pulled before players need them, without running
// anything of what is in them.
//
// An image is pulled by a pod on the node, whose command cannot exist in any file system: the
// kubelet pulls the image, as it does for players, and then cannot start the container. One
// request stands for all Challenges, because they share what paces them:
//
//	observe  (observe.go)    all reads, into one Observed
//	window   (schedule.go)   pure: when the images of a Challenge are to be pulled
//	wishes   (plan.go)       pure: which images on which nodes (nodes.go) are wanted
//	check    (checks.go)      pure: what has become of a pull
//	next     (next.go)       pure: which pulls begin now
//	build    (controller.go) the namespace of a Challenge, then the pulls in it
//	derive   (status.go)     pure: the condition of each Challenge
//	tidy     (controller.go) takes away what is not needed any more
//
// What is done is found out from the nodes. A node lists some of its images only, and so this
// process remembers the rest (store.go); one that does not remember pulls them again, which
// costs a pod each and nothing of the registry.
package prepull
