package deployment

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
)

// account is the ServiceAccount of the pods of a run. It is not the Project's, which may do
// everything in the namespace: the pods get no token anyway, but Tekton hands Secrets of an account
// that are made for it to every step.
const account = "default"

// newPipelineRun gives its pods no rights of Kubernetes: no token is mounted. Logins are workspaces, and each step mounts its
// own.
func newPipelineRun(in Inputs) *unstructured.Unstructured {
	u := empty(pipelineRunKind)
	in.meta(u, in.runName(), "builds an image")
	annotations := u.GetAnnotations()
	// It says later what the run was started for, see Observed.runSource.
	annotations[kibashipv1.AnnotationSource] = in.source()
	u.SetAnnotations(annotations)
	var bindings []any
	for _, name := range in.with(workspaceToken, workspacePull, workspaceLogin, workspaceAuthority) {
		bindings = append(bindings, in.binding(name))
	}
	u.Object["spec"] = object{
		"pipelineRef": object{"name": in.pipelineName()},
		"params": []any{
			object{"name": paramCommit, "value": in.Commit},
			object{"name": paramTag, "value": in.Tag},
			object{"name": paramBranch, "value": in.Branch},
			object{"name": paramRepository, "value": in.repository()},
			object{"name": paramRun, "value": in.runName()},
		},
		"timeouts": object{"pipeline": in.Builds.Timeout.String()},
		"taskRunTemplate": object{
			"serviceAccountName": account,
			"podTemplate": object{
				"automountServiceAccountToken": false,
				"enableServiceLinks":           false,
				"securityContext":              object{"fsGroup": unprivilegedUser},
			},
		},
		"workspaces": bindings,
	}
	return u
}
