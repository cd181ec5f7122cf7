package v1alpha1

// AutoBuild starts a build for each push. The operator asks the repository itself for its newest commits, after a webhook and at
// intervals: a webhook alone builds nothing.
type AutoBuild struct {
	// Whether a push starts a build.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Enabled",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:booleanSwitch"}
	Enabled bool `json:"enabled"`

	// Branches to build, as names or patterns such as release/*, where * stands for characters other than a slash. Each branch gets
	// a Deployment of its own, at most 20. Default: the branch of the Application, unless tags are given. Branches of forks, and pull
	// requests, are never built.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=255
	// +kubebuilder:validation:items:XValidation:rule=`self.matches(r'^[a-zA-Z0-9_*?\[][a-zA-Z0-9._/+@#*?\[\]^-]*$')`,message="must be a name of a branch, or a pattern with * and ?, such as release/*"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Branches"
	Branches []string `json:"branches,omitempty"`

	// Tags to build, as names or patterns such as v*. The highest version among the matching tags is built, in one Deployment.
	// Default: no tags.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=255
	// +kubebuilder:validation:items:XValidation:rule=`self.matches(r'^[a-zA-Z0-9_*?\[][a-zA-Z0-9._/+@#*?\[\]^-]*$')`,message="must be a name of a tag, or a pattern with * and ?, such as v*"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Tags"
	Tags []string `json:"tags,omitempty"`

	// Whether the provider shows at a commit how its build goes: pending, success or failure. The token of secretRef must have the
	// right to write commit statuses, and the administrator must allow it by GIT_COMMIT_STATUS.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Commit Status",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:booleanSwitch"}
	CommitStatus bool `json:"commitStatus,omitempty"`
}

// AutoBuildStatus is the observed state of builds that pushes start.
type AutoBuildStatus struct {
	// Address that the provider calls after a push. Empty where the administrator has set no GIT_WEBHOOK_URL.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Webhook URL"
	WebhookURL string `json:"webhookURL,omitempty"`

	// Secret in this namespace with the secret of the webhook, in the key secret, and in the key signing-token as GitLab's signing token.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Webhook Secret",xDescriptors={"urn:alm:descriptor:io.kubernetes:Secret"}
	WebhookSecret string `json:"webhookSecret,omitempty"`

	// The branches and the tag that are built, with their newest commits.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=21
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Refs"
	Refs []AutoBuildRef `json:"refs,omitempty"`
}

// AutoBuildRef is a branch or a tag that pushes build.
type AutoBuildRef struct {
	// Name in the repository, such as refs/heads/main.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Ref"
	Ref string `json:"ref"`

	// Newest commit that the repository has there.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Commit SHA"
	CommitSHA string `json:"commitSHA"`

	// Deployment that builds it.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Deployment"
	Deployment string `json:"deployment"`

	// Why the commit is not built. Empty: the Deployment builds it, or has built it.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Message"
	Message string `json:"message,omitempty"`
}

const (
	// AnnotationPushed on an Application asks the operator to look for new commits: any value that it did not have before. The
	// receiver of webhooks writes it. On a Deployment it is the last commit that a push had it build.
	AnnotationPushed = "platform.operator.kibaship.com/pushed"
	// AnnotationRef on a Deployment is the branch or tag that it builds by itself.
	AnnotationRef = "platform.operator.kibaship.com/ref"
	// AnnotationReported on a Deployment is the commit and the state that the provider was last sent.
	AnnotationReported = "platform.operator.kibaship.com/reported-status"

	// ConditionAutoBuild of an Application: pushes start builds. Absent where autoBuild is not enabled.
	ConditionAutoBuild = "AutoBuild"

	// MaxBranches is how many branches of an Application are built by themselves.
	MaxBranches = 20
)

// The reasons of ConditionAutoBuild, and of events about builds that pushes start.
const (
	// ReasonWatching: pushes start builds.
	ReasonWatching = "Watching"
	// ReasonAutoBuildOff: neither GIT_POLL_INTERVAL nor GIT_WEBHOOK_URL is set.
	ReasonAutoBuildOff = "AutoBuildOff"
	// ReasonRepositoryNotRead: the repository, the token or the git server is at fault. It is tried again.
	ReasonRepositoryNotRead = "RepositoryNotRead"
	// ReasonNothingMatches: no branch or tag matches.
	ReasonNothingMatches = "NothingMatches"
	// ReasonTooManyBranches: more than MaxBranches match.
	ReasonTooManyBranches = "TooManyBranches"
	// ReasonBuildStarted: an event: a push started a build.
	ReasonBuildStarted = "BuildStarted"
	// ReasonBuildReplaced: an event: a newer commit replaces a build.
	ReasonBuildReplaced = "BuildReplaced"
	// ReasonCommitStatusRefused: an event: the provider does not take the state of a build.
	ReasonCommitStatusRefused = "CommitStatusRefused"
	// ReasonWebhookSecretInTheWay: a Secret with the name for the webhook exists, and is not the Application's.
	ReasonWebhookSecretInTheWay = "WebhookSecretInTheWay"
)
