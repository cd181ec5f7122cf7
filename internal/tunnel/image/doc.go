// Package image makes the image of the client proxy without a daemon: a base image, and one
// layer with one file on it. The same base and the same program give the same digest.
package image
