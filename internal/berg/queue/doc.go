// Package queue decides which instance may start when not all may. It knows which instances
// hold something in the cluster and which wait, keeps those that wait in the order of their
// creation, and tells whom to look at when there is room. It does nothing itself: what it
// knows comes from the cluster, and is found there again after a restart.
//
// An instance holds room from the moment that it is told to go, since its first write may be
// seen late, until it is gone, with its namespace. There may be a bound on all of them, and
// one on those of each Challenge: who waits for room of its Challenge keeps nobody else
// waiting.
//
// One that waits is believed to be able to start until a look at it finds that it cannot,
// whatever room there is: so none that is younger is faster only because it was looked at
// first.
package queue
