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
	// paramCloned begins the names of parameters with the results of the first of two Tasks, for the second.
	paramCloned = "cloned-"
)

// pipeline is one Task, whose steps share a directory of its pod, or two with a volume.
func pipeline(in Inputs) *unstructured.Unstructured {
	all := in.with(workspaceToken, workspacePull, workspaceLogin, workspaceAuthority)
	var tasks []any
	if in.Builds.Workspace == config.WorkspaceVolume {
		cloneNeeds, buildNeeds := in.with(workspaceToken, workspaceAuthority), in.with(workspacePull, workspaceLogin, workspaceAuthority)
		clone := task(taskClone, cloneNeeds, in.cloneStep())
		build := task(taskBuild, buildNeeds, in.prepareStep(), in.buildStep(), in.pushStep())
		build["runAfter"] = []any{taskClone}
		var results, params, declared []any
		for _, result := range []string{resultCommit, resultTime} {
			param := paramCloned + result
			results = append(results, object{"name": result, "type": "string", "value": stepResult(stepClone, result)})
			params = append(params, object{"name": param, "value": "$(tasks." + taskClone + ".results." + result + ")"})
			declared = append(declared, object{"name": param, "type": "string"})
		}
		clone["taskSpec"].(object)["results"], build["taskSpec"].(object)["params"], build["params"] = results, declared, params
		tasks = []any{clone, build}
	} else {
		tasks = []any{task(taskBuild, all, in.cloneStep(), in.prepareStep(), in.buildStep(), in.pushStep())}
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
