package prepull

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// fullName returns an image as a node lists it: with its registry, and either tag or digest.
// https://pkg.go.dev/github.com/distribution/reference has the rules.
func fullName(image string) string {
	image, digest, pinned := strings.Cut(image, "@")
	registry, rest, qualified := strings.Cut(image, "/")
	if !qualified || !strings.ContainsAny(registry, ".:") && registry != "localhost" {
		registry, rest = "docker.io", image
		if !strings.Contains(rest, "/") {
			rest = "library/" + rest
		}
	}
	path, tag := rest, "latest"
	if colon := strings.LastIndex(rest, ":"); colon > strings.LastIndex(rest, "/") {
		path, tag = rest[:colon], rest[colon+1:]
	}
	if pinned {
		return registry + "/" + path + "@" + digest
	}
	return registry + "/" + path + ":" + tag
}

// listedImages is how many images a node lists by default, the largest ones; fewer are all.
const listedImages = 50

// listing returns the full names of the images that a node says it has.
func listing(n *corev1.Node) map[string]bool {
	names := map[string]bool{}
	for _, i := range n.Status.Images {
		for _, name := range i.Names {
			names[fullName(name)] = true
		}
	}
	return names
}

// listsAll reports whether a node lists all of its images.
func listsAll(n *corev1.Node) bool { return len(n.Status.Images) < listedImages }
