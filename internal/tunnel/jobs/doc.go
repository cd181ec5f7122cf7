// Package jobs does what takes too long for a reconciliation: it builds images and calls
// proxies. Each piece of work belongs to the UID of a custom resource; its result waits in
// memory for the next reconciliation, which is called when it is there. Who starts anew after a
// restart does the work again: all of it may be repeated.
package jobs
