// Package image builds the image of the proxies without a daemon: a base image, and one layer with one file on it. The same
// base and the same program give the same digest.
package image
