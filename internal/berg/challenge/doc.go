// Package challenge says in every Challenge whether its instances can run: the conditions Accepted and Ready. Authors find
// mistakes there before the first player does. It writes nothing but these conditions.
//
//	controller.go  the watches, and the events of what changed
//	status.go      pure: the check, and the conditions
//	reconciler.go  the dependencies
package challenge
