// Package cache bounds the memory that a family takes for objects of the cluster, and makes the objects small.
//
// Every family has a cache of its own, with its own selectors and its own list of the fields
// that it reads: two families that watch the same kind do not share an informer.
// They share the slots for lists, so that a start takes no more memory with five families
// than with one.
//
// Kept objects are small by these means:
//
//	transform.go  a family trims fields from each object that it does not read
//	encoded.go    Kubernetes' own kinds are kept encoded, and decoded for each reader
//	intern.go     of other kinds, equal parts of different objects are kept once
//	index.go      values that only one object has share a set
//	lists.go      the objects of a list are made small before the next kind is listed
//	bound.go      an object that others made large loses its content
//
// The others connect these to controller-runtime:
//
//	options.go    the options of a family's cache, and a cache next to it
//	informer.go   an informer of client-go with the index, the lists and the encoding of this package
//	identity.go   the rest of an object that cannot belong to the family
//
// # What holds
//
// A cached object is never changed, because its parts may be shared with other objects. Readers get decoded objects or copies.
// With client.UnsafeDisableDeepCopy a reader of a custom resource gets the cached object itself, and must not write into it.
//
// A cached object may lack fields, owners, finalizers and managedFields. So it is never the base of an update: package apply reads
// the object from the API server first, and a patch contains only the difference of two copies of the cached object.
//
// The memory for an object is bounded also if others set our labels on objects of any size and number of keys.
//
// The objects of an instance of Berg take 9.8 kB, including their index. The informers of controller-runtime would keep 30 kB
// of the same, trimmed in the same way: 200 MB more with 10,000 instances (TestCachesHoldLittleForEachInstance in
// internal/berg). docs/adr/0019-caches.md has the other figures.
package cache
