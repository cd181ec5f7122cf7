package application

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/poll"
)

// Observed is everything outside the Application that decides what it is.
type Observed struct {
	// Project is the Project that the Application names; nil if it does not exist.
	Project *kibashipv1.Project
	// SecretsKnown: the Secrets of the namespace are known. Missing are the named Secrets that do not
	// exist.
	SecretsKnown bool
	Missing      []string
	// AutoBuild is nil where pushes start no builds, or the Application is not Ready.
	AutoBuild *AutoBuild
}

// AutoBuild holds the builds of pushes to a repository. A nil one is not known, as the Application is not Ready.
type AutoBuild struct {
	// Off: the settings have nothing ask for new commits.
	Off      bool
	Answered bool
	Answer   poll.Answer
	Refs     []kibashipv1.AutoBuildRef
	// URL and Secret are of the webhook, empty for none. SecretProblem is why there is no Secret.
	URL, Secret, SecretProblem string
	// Refused: the API server refused a write.
	Refused bool
	// started are the builds that this reconciliation has started.
	started []started
}

// started is a build. Before is the commit whose build it ends, "" for none.
type started struct{ ref, commit, before string }

// condition returns the condition AutoBuild.
func (b *AutoBuild) condition() (status metav1.ConditionStatus, reason, message string) {
	switch {
	case b == nil:
		return metav1.ConditionUnknown, kibashipv1.ReasonWaiting, "Pushes start builds when the Application is Ready"
	case b.Off:
		return metav1.ConditionFalse, kibashipv1.ReasonAutoBuildOff,
			"Nothing asks the repository for new commits: an administrator must set GIT_POLL_INTERVAL or GIT_WEBHOOK_URL"
	case b.Answer.Problem != "":
		return metav1.ConditionFalse, kibashipv1.ReasonRepositoryNotRead, "The repository cannot be read, which is tried again: " + b.Answer.Problem
	case !b.Answered:
		return metav1.ConditionUnknown, kibashipv1.ReasonWaiting, "The repository is being asked for its newest commits"
	case len(b.Refs) == 0:
		return metav1.ConditionFalse, kibashipv1.ReasonNothingMatches,
			"The repository has no branch or tag that is to be built: push one, or correct spec.gitRepository.autoBuild"
	case b.Answer.Branches > kibashipv1.MaxBranches:
		return metav1.ConditionFalse, kibashipv1.ReasonTooManyBranches, fmt.Sprintf(
			"%d branches match, and the first %d by name are built: match fewer by spec.gitRepository.autoBuild.branches", b.Answer.Branches, kibashipv1.MaxBranches)
	case b.SecretProblem != "":
		return metav1.ConditionFalse, kibashipv1.ReasonWebhookSecretInTheWay, b.SecretProblem
	default:
		return metav1.ConditionTrue, kibashipv1.ReasonWatching, "Pushes start builds: status.autoBuild.refs has the newest commits"
	}
}
