// Package registry talks to registries of images: it finds out which image a tag means, and
// pushes the archive of an image that was built.
//
//	login.go      the logins of a Secret
//	transport.go  which authorities to trust, and which addresses are denied
//	resolve.go    a tag becomes a digest
//	push.go       the program that pushes, in the pod of a build
//	finish.go     times and labels of the commit, in the image that is pushed
//	files.go      what the steps of a build have as files
package registry
