// Package challenge says on every Challenge whether instances of it can run: the conditions Accepted and Ready. Authors
// see mistakes there before the first player does. It writes nothing but these conditions.
package challenge
