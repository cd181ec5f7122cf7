package retention

import (
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"k8s.io/apimachinery/pkg/util/sets"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/registry"
	"github.com/bergctf/berg-operator/internal/kibaship/rules"
)

// Names are the images of one repository that objects name.
type Names struct {
	repository    name.Repository
	digests, tags sets.Set[string]
}

func newNames(repository name.Repository) *Names {
	return &Names{repository, sets.New[string](), sets.New[string]()}
}

// has reports whether an image is named, by its digest or one of its tags.
func (n *Names) has(image registry.Stored) bool {
	return n.digests.Has(image.Digest) || n.tags.HasAny(image.Tags...)
}

// add adds the reference of an image. One of another repository, or none at all, adds nothing. With a digest the tag counts, too: the tag may
// have moved, and a person may mean either.
func (n *Names) add(reference string) {
	base, digest, _ := strings.Cut(reference, "@")
	tag, err := name.NewTag(base)
	if err != nil || tag.Context().Name() != n.repository.Name() {
		return
	}
	if digest == "" || strings.HasSuffix(base, ":"+tag.TagStr()) {
		n.tags.Insert(tag.TagStr())
	}
	if digest != "" {
		n.digests.Insert(digest)
	}
}

// addDeployment adds the images of all runs that a Deployment has recorded; and the commit that it asks for, if it builds this repository: a
// commit of another one has another image.
func (n *Names) addDeployment(d *kibashipv1.Deployment, builds bool) {
	s := &d.Status
	if s.BuiltImage != nil {
		n.add(s.BuiltImage.Reference)
	}
	for _, run := range []*kibashipv1.PipelineRunStatus{s.CurrentPipelineRun, s.LastSuccessfulRun} {
		if run != nil {
			n.add(run.Image)
		}
	}
	for i := range s.RunHistory {
		n.add(s.RunHistory[i].Image)
	}
	if source := d.Spec.GitRepository; builds && source != nil && source.CommitSHA != "" {
		n.add(n.repository.Name() + ":" + source.CommitSHA)
	}
}

// addApplication adds the image that an Application of type DockerImage names.
func (n *Names) addApplication(a *kibashipv1.Application) {
	if a.Spec.DockerImage == nil {
		return
	}
	n.add(a.Spec.DockerImage.Image)
	if image, err := rules.ParseImage(a.Spec.DockerImage.Image, a.Spec.DockerImage.Tag); err == nil {
		n.add(image.Reference.Name())
		if image.Tag != "" {
			n.add(image.Reference.Context().Name() + ":" + image.Tag)
		}
	}
}

// imageFields are the fields of a pod, or of an object with a template of one, that name an image.
var imageFields = sets.New("image", "imageID", "reference")

// addObject adds the images that an object of Kubernetes names in any depth. Fields of other objects with such a name may add too
// many images. That keeps an image too long, and deletes none too early.
func (n *Names) addObject(content any) {
	switch content := content.(type) {
	case map[string]any:
		for key, value := range content {
			if text, ok := value.(string); ok && imageFields.Has(key) {
				n.add(strings.TrimPrefix(text, "docker-pullable://"))
			}
			n.addObject(value)
		}
	case []any:
		for _, value := range content {
			n.addObject(value)
		}
	}
}
