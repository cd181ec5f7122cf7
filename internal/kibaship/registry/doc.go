// Package registry talks to registries of images: it finds out which image a tag means, and
// pushes the archive of an image that was built.
//
//	login.go      the logins of a Secret
//	transport.go  which authorities to trust, and which addresses are denied
//	resolve.go    a tag becomes a digest
//	stored.go     which images a repository has, and their deletion
//	push.go       the program that pushes, in the pod of a build
//	finish.go     times and labels of the commit, in the image that is pushed
//	files.go      what the steps of a build have as files
//
// # What holds
//
// A user who chooses an image chooses the server that is asked for it. So an error contains nothing of the server's answer but
// the codes of the protocol, and a connection is made only to addresses that its Reach accepts, also for a redirect and a token
// server. Files of a build are opened below their root, where a link leads nowhere else.
package registry
