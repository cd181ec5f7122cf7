// Package prepull has the images of Challenges pulled before players need them, without running any
// program in them.
//
// An image is pulled by a pod on the node, whose command cannot exist in any file system: the
// kubelet pulls the image, as it does for players, and then cannot start the container. One
// request stands for all Challenges, because they share the limits of concurrent pulls:
//
//	observe  (observe.go)    all reads, into one Observed
//	window   (schedule.go)   pure: when the images of a Challenge are to be pulled
//	plan     (plan.go)       pure: which images on which nodes (nodes.go) are wanted
//	check    (checks.go)     pure: the progress of a pull
//	next     (next.go)       pure: which pulls start now
//	build    (controller.go) the namespace of a Challenge, then the pulls in it
//	status   (status.go)     pure: the condition of each Challenge
//	delete   (controller.go) deletes objects that are not needed any more
//
// The nodes show which images are pulled. A node lists some of its images only, and so this process
// remembers the rest (store.go); a new process pulls them again, which costs a pod each and no
// traffic of the registry.
//
//	reconciler.go    the dependencies
//	images.go        the names of images, and which ones a node lists
//	deployment.go    the pod that pulls one image on one node
//	namespace.go     the objects around it, one namespace for each Challenge
//	rights.go        whether this process may pull
//	watches.go       which events lead to a reconciliation, and what the cache keeps
//	events.go, metrics.go  events and metrics
//
// # What holds
//
// No program of an image runs: the command has more bytes than a file name of Linux can have, and the namespace admits no pod with
// rights on its node.
//
// A pull takes no capacity from players, since its pod requests no resources. At most IMAGE_PREPULL_CONCURRENCY pulls are active, one
// on each node, so the network of a node is not filled.
//
// A namespace is used only by the process that created it. Its name and its annotation can be copied, and the copy of the pull secret
// must not get into a namespace of others.
//
// # After a kill
//
// At most IMAGE_PREPULL_CONCURRENCY Deployments are left, and namespaces that the next leader has not created. It deletes these, and
// creates its own when they are gone. Images that were pulled are on the nodes.
package prepull
