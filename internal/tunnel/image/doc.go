// Package image builds the image of the proxies without a daemon: a base image, and one layer with one file on it. The same
// base and the same program give the same digest.
//
//	image.go        asks the registry, and builds and pushes what it lacks
//	layer.go        the layer with the program, and the labels by which an image is recognised
//	credentials.go  the logins of a Secret
//
// Nothing is kept between two calls: the registry has all that is known. Errors and logs have no login.
package image
