package deployment

import (
	"encoding/json"
	"fmt"
	"path"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
	kitnaming "github.com/bergctf/berg-operator/internal/kit/naming"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// Inputs is all that a plan depends on: no clock, no randomness, no cluster.
type Inputs struct {
	UID        types.UID
	Name       types.NamespacedName
	Generation int64
	// Again stands for the value of AnnotationRunAgain, "" for none.
	Again string
	// Project, Application and Deployment are the slugs that names are made of.
	Project, Application, Deployment string
	ApplicationName                  string
	// ProjectUUID and WorkspaceUUID identify the Project to its platform; "" if it is not known.
	ProjectUUID, WorkspaceUUID string
	Git                        kibashipv1.GitRepository
	// Commit is the requested commit, "" for the commit of Tag or the newest commit of Branch; Branch is ""
	// for the default branch of the repository.
	Commit, Tag, Branch string
	// Changed: the run of this generation was started to build something else. The Application has changed since.
	Changed bool
	// Earlier is the run of the history that has built the same commit of the same source, "" for none. It is not built again. Adopted is its
	// record where another Deployment of the Application has built it, nil otherwise.
	Earlier string
	Adopted *kibashipv1.PipelineRunStatus
	Builds  config.Builds
	// PushImage pushes: an image of this operator.
	PushImage string
}

// OwnershipLabels are on all objects of a Deployment. Tekton hands the labels of a
// PipelineRun on to its TaskRuns and pods.
var OwnershipLabels = ownership.Labels{
	Domain: "platform.kibaship.com",
	Owner:  "deployment",
	Found:  map[string]string{kibashipv1.LabelManagedBy: kibashipv1.ManagedBy},
}

func ownerFor(d *kibashipv1.Deployment) ownership.Owner { return OwnershipLabels.For(d.UID, nil) }

// maxName is what Tekton takes for its objects.
const maxName = 63

// The labels that platforms look builds up by.
const (
	labelName = "deployment.kibaship.com/name"
	labelSlug = "project.kibaship.com/slug"
)

func (in Inputs) stem() string {
	return "project-" + in.Project + "-app-" + in.Application + "-deployment-" + in.Deployment
}

func (in Inputs) pipelineName() string {
	return kitnaming.Within(in.stem()+"-git-repository-pipeline-kibaship-com", maxName)
}

// runName is that of the run which the spec asks for: each generation has one, each value of AnnotationRunAgain another, and each
// change of what the Application says of the source another. It is the same at each attempt, so a start whose answer was lost is
// found again.
func (in Inputs) runName() string {
	if in.Earlier != "" {
		return in.Earlier
	}
	name := fmt.Sprintf("%s-run-%d", in.stem(), in.Generation)
	if in.Again != "" {
		name += "-" + in.Again
	}
	if in.Changed {
		name += "-" + in.source()
	}
	return kitnaming.Within(name, maxName)
}

// source stands for what is built, and how. A login, the environment of the running Application, and what starts builds are no part of it. A branch is
// none where a commit or a tag is asked for. The fields are those of the API, so a new field that does not change an image must
// be cleared here, or all commits are built again.
func (in Inputs) source() string {
	source := in.Git
	source.PublicAccess, source.SecretRef, source.Env, source.ImagePullSecretRef, source.AutoBuild, source.Branch = false, nil, nil, nil, nil, ""
	if in.Commit == "" && in.Tag == "" {
		source.Branch = in.Branch
	}
	text, _ := json.Marshal(source) // it has strings alone
	return hash(string(text) + in.Commit + in.Tag)
}

// repository is where the images of an Application go.
func (in Inputs) repository() string {
	return in.Builds.Registry + "/" + in.Project + "/" + in.Application
}

// url is where the source is.
func (in Inputs) url() string {
	return in.Builds.RepositoryURL(string(in.Git.Provider), in.Git.Repository)
}

// private reports whether a token is needed, or given.
func (in Inputs) private() bool { return in.Git.SecretRef != nil }

// context is the directory that is built, seen from the root of the repository. It never lies
// outside. Join with a leading slash takes every ".." away.
func (in Inputs) context() string {
	return strings.TrimPrefix(path.Clean(path.Join("/", in.Git.Path, in.Git.RootDirectory)), "/")
}

// billingLabels are the labels by which a platform counts what a Project costs: all that costs has them.
func (in Inputs) billingLabels() object {
	all := object{}
	if in.ProjectUUID != "" {
		all[kibashipv1.LabelUUID] = in.ProjectUUID
	}
	if in.WorkspaceUUID != "" {
		all[kibashipv1.LabelWorkspaceUUID] = in.WorkspaceUUID
	}
	return all
}

// meta is the metadata of an object of the Deployment, which goes with it.
func (in Inputs) meta(u *unstructured.Unstructured, name, purpose string) {
	u.SetName(name)
	u.SetNamespace(in.Name.Namespace)
	labels := map[string]string{
		kibashipv1.LabelDeployment:  deploymentLabel(in.Name.Name),
		kibashipv1.LabelApplication: kitnaming.LabelValue(in.ApplicationName),
		kibashipv1.LabelProjectName: in.Project,
		labelName:                   kitnaming.LabelValue(in.Name.Name),
		labelSlug:                   in.Project,
	}
	for name, value := range in.billingLabels() {
		labels[name] = value.(string)
	}
	u.SetLabels(labels)
	u.SetAnnotations(map[string]string{
		kibashipv1.AnnotationCreatedBy: kibashipv1.ManagedBy,
		kibashipv1.AnnotationProject:   in.Project,
		kibashipv1.AnnotationPurpose:   purpose,
	})
	yes := true
	u.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: kibashipv1.GroupVersion.String(), Kind: "Deployment", Name: in.Name.Name, UID: in.UID,
		Controller: &yes, BlockOwnerDeletion: &yes,
	}})
}

// newInputs returns what a run of a Deployment is planned from. Its names must have been validated.
func newInputs(o Observed, builds config.Builds, pushImage string) Inputs {
	d, app := o.Deployment, o.Application
	project := app.Spec.ProjectRef.Name
	appSlug, _ := naming.Application(app.Name, project)
	slug, _ := naming.Deployment(d.Name, app.Name)
	in := Inputs{
		UID: d.UID, Name: types.NamespacedName{Namespace: d.Namespace, Name: d.Name}, Generation: d.Generation,
		Again:   effectiveRunAgain(d),
		Project: project, Application: appSlug, Deployment: slug, ApplicationName: app.Name,
		Builds: builds, PushImage: pushImage,
	}
	if o.Project != nil {
		in.ProjectUUID, in.WorkspaceUUID = o.Project.Labels[kibashipv1.LabelUUID], o.Project.Labels[kibashipv1.LabelWorkspaceUUID]
	}
	if app.Spec.GitRepository != nil {
		in.Git = *app.Spec.GitRepository
		in.Branch = in.Git.Branch
	}
	if source := d.Spec.GitRepository; source != nil {
		in.Commit, in.Tag = source.CommitSHA, source.Tag
		if source.Branch != "" {
			in.Branch = source.Branch
		}
	}
	started := o.runSource(in.runName())
	// The name is computed without Changed first: the run of this generation has it.
	in.Changed = started != "" && started != in.source()
	if in.Earlier = findEarlier(o, in); in.Earlier == "" {
		if in.Adopted = findAdopted(o, in); in.Adopted != nil {
			in.Earlier = in.Adopted.Name
		}
	}
	return in
}

// findEarlier returns the run that has built what a spec asks for by a commit, "" if there is none, or if another run is asked for. A
// branch or a tag may have moved since.
func findEarlier(o Observed, in Inputs) string {
	if in.wantsRun(o) {
		return ""
	}
	if run := findBuilt(o.Deployment.Status.RunHistory, in); run != nil {
		return run.Name
	}
	return ""
}

// findAdopted returns the run of another Deployment of the Application that has built what a spec asks for, nil if there is none.
// The record is copied, and the image is not built twice.
func findAdopted(o Observed, in Inputs) *kibashipv1.PipelineRunStatus {
	if in.wantsRun(o) || in.Again != "" {
		return nil
	}
	for i := range o.Siblings {
		if run := findBuilt(o.Siblings[i].Status.RunHistory, in); run != nil && o.Siblings[i].UID != in.UID {
			return run.DeepCopy()
		}
	}
	return nil
}

// wantsRun reports whether a spec asks for a run of its own: it names no commit, a client asks for another run, or the run exists.
func (in Inputs) wantsRun(o Observed) bool {
	s := o.Deployment.Status
	return in.Commit == "" || in.Again != "" && in.Again != s.RunAgain || o.find(in.runName()) != nil || knownRun(&s, in.runName()).Name != ""
}

// findBuilt returns the run of a history that has built what a spec asks for, nil if there is none. The image must be in the
// repository of the settings: after a change of the registry it is built again.
func findBuilt(history []kibashipv1.PipelineRunStatus, in Inputs) *kibashipv1.PipelineRunStatus {
	for i, run := range history {
		if run.Phase == kibashipv1.DeploymentSucceeded && run.Source == in.source() && strings.HasPrefix(run.Image, in.repository()+"@") {
			return &history[i]
		}
	}
	return nil
}

// effectiveRunAgain stands for the value of AnnotationRunAgain that counts. One that is taken off asks for
// nothing: what was last asked for stays, until the spec changes.
func effectiveRunAgain(d *kibashipv1.Deployment) string {
	if value := d.Annotations[kibashipv1.AnnotationRunAgain]; value != "" {
		return hash(value)
	}
	if d.Status.ObservedGeneration == d.Generation {
		return d.Status.RunAgain
	}
	return ""
}

// imageRequest says of an image for what it was looked up: one that is known for it is not looked up
// again.
func imageRequest(d *kibashipv1.Deployment) string {
	text := strconv.FormatInt(d.Generation, 10)
	if rerun := effectiveRunAgain(d); rerun != "" {
		text += "-" + rerun
	}
	return text
}

// deploymentLabel is the value of LabelDeployment of what belongs to a Deployment.
func deploymentLabel(deployment string) string { return kitnaming.LabelValue(deployment) }
