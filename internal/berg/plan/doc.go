// Package plan calculates the resources of a cluster that an event needs. It is pure.
// docs/capacity.md has the measurements on which it is based.
//
//	plan.go      what an event needs, and which limit it reaches first
//	stock.go     what a cluster has, and for how many more instances that is enough
//	headroom.go  the same where the free capacity of each node is known
//	share.go     an even distribution of a limit
//
// An amount of 0 is not known, and limits nothing. Sums of fractions are compared with a margin, so that rounding decides nothing.
package plan
