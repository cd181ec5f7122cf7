package rules

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// Image is the image that an Application of type DockerImage names.
type Image struct {
	// Reference is the reference for requests to the registry: the digest if there is one, else the tag.
	Reference name.Reference
	// Tag is the tag that the Application names, also next to a digest. It is empty for a digest alone.
	Tag string
}

// reference matches the reference of an image, as registries and container runtimes parse it:
// https://github.com/distribution/reference/blob/main/regexp.go. Registries serve only this
// algorithm of a digest.
var reference = func() *regexp.Regexp {
	const (
		label     = `(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])`
		host      = `(?:` + label + `(?:\.` + label + `)*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?`
		component = `[a-z0-9]+(?:(?:[._]|__|[-]+)[a-z0-9]+)*`
	)
	return regexp.MustCompile(`^(?:` + host + `/)?` + component + `(?:/` + component + `)*(?::` + tagPattern + `)?(?:@sha256:[0-9a-f]{64})?$`)
}()

const tagPattern = `[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}`

var imageTag = regexp.MustCompile(`^` + tagPattern + `$`)

// maxReference is the maximum length of a reference, as the schema has it.
const maxReference = 512

// ParseImage parses the image of an Application and the tag that replaces its own. There is no other parser: a
// Deployment can look up every image that it accepts. A digest identifies the image, also next to a tag.
func ParseImage(image, tag string) (Image, error) {
	base, digest, byDigest := strings.Cut(image, "@")
	tagged, err := name.NewTag(base, name.WithDefaultTag(""))
	if err != nil || len(image) > maxReference || !reference.MatchString(image) {
		return Image{}, fmt.Errorf("%q is not the reference of an image: it must be [host[:port]/]name[:tag][@sha256:digest], "+
			"with a name in lower case, a host with a dot or a port, or localhost, and a digest of 64 hexadecimal digits", image)
	}
	switch {
	case tag == "":
		tag = tagged.TagStr()
	case !imageTag.MatchString(tag):
		return Image{}, fmt.Errorf("tag %q must match ^%s$", tag, tagPattern)
	}
	if byDigest {
		return Image{Reference: tagged.Context().Digest(digest), Tag: tag}, nil
	}
	if tag == "" {
		tag = name.DefaultTag
	}
	return Image{Reference: tagged.Context().Tag(tag), Tag: tag}, nil
}
