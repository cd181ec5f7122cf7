package deployment

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bergctf/berg-operator/internal/config"
)

// The parameters of a Pipeline.
const (
	paramCommit = "git-commit"
	paramTag    = "git-tag"
	paramBranch = "git-branch"
	// paramRepository is where the image goes. It is given to each run, as the Pipeline is brought
	// up to date with the settings while runs are under way.
	paramRepository = "image-repository"

	// paramRun is the name of the run, which becomes the second tag of the image.
	paramRun = "run"

	taskClone = "clone-repository"
	taskBuild = "build"
	// paramCloned is the commit that the first of two Tasks has cloned, for the second.
	paramCloned = "commit"
)

// pipeline is one Task, whose steps share a directory of its pod, or two with a volume.
func pipeline(in Inputs) *unstructured.Unstructured {
	all := in.with(workspaceToken, workspacePull, workspaceLogin, workspaceAuthority)
	var tasks []any
	if in.Builds.Workspace == config.WorkspaceVolume {
		cloneNeeds, buildNeeds := in.with(workspaceToken, workspaceAuthority), in.with(workspacePull, workspaceLogin, workspaceAuthority)
		clone := task(taskClone, cloneNeeds, in.cloneStep())
		clone["taskSpec"].(object)["results"] = []any{object{
			"name": resultCommit, "type": "string", "value": "$(steps." + stepClone + ".results." + resultCommit + ")",
		}}
		build := task(taskBuild, buildNeeds, in.buildStep(), in.pushStep("$(params."+paramCloned+")"))
		build["runAfter"] = []any{taskClone}
		build["params"] = []any{object{"name": paramCloned, "value": "$(tasks." + taskClone + ".results." + resultCommit + ")"}}
		build["taskSpec"].(object)["params"] = []any{object{"name": paramCloned, "type": "string"}}
		tasks = []any{clone, build}
	} else {
		tasks = []any{task(taskBuild, all, in.cloneStep(), in.buildStep(), in.pushStep("$(steps."+stepClone+".results."+resultCommit+")"))}
	}
	u := empty(pipelineKind)
	in.meta(u, in.pipelineName(), "builds the images of a Deployment")
	u.Object["spec"] = object{
		"params": []any{
			object{"name": paramCommit, "type": "string", "default": ""},
			object{"name": paramTag, "type": "string", "default": ""},
			object{"name": paramBranch, "type": "string", "default": ""},
			object{"name": paramRepository, "type": "string", "default": in.repository()},
			object{"name": paramRun, "type": "string", "default": ""},
		},
		"workspaces": workspaces(all),
		"tasks":      tasks,
	}
	return u
}

func task(name string, needs []string, steps ...any) object {
	var bound []any
	for _, workspace := range needs {
		bound = append(bound, object{"name": workspace, "workspace": workspace})
	}
	return object{
		"name": name, "workspaces": bound,
		"taskSpec": object{"workspaces": workspaces(needs), "steps": steps},
	}
}
