package application

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/git"
	"github.com/bergctf/berg-operator/internal/kibaship/hook"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
	"github.com/bergctf/berg-operator/internal/kibaship/poll"
	"github.com/bergctf/berg-operator/internal/kibaship/rules"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/refusal"
)

// refusedInterval is after how long a write is tried again that the API server refused, because of a quota for example.
const refusedInterval = time.Minute

// enabled reports whether pushes are to start builds of an Application.
func enabled(a *kibashipv1.Application) bool {
	source := a.Spec.GitRepository
	return a.Spec.Type == kibashipv1.TypeGitRepository && source != nil && source.AutoBuild != nil && source.AutoBuild.Enabled
}

// autoBuild has Deployments build the newest commits of the repository. The Application must be Ready. It is called only for an
// Application that is Ready, since the operator's rights in the namespace and the Project's limits are known then.
func (r *Reconciler) autoBuild(ctx context.Context, a *kibashipv1.Application) (b *AutoBuild, err error) {
	b = &AutoBuild{Off: !r.Config.Pushes.Enabled()}
	if b.Off {
		r.Poller.Forget(client.ObjectKeyFromObject(a))
		return b, nil
	}
	if err := r.ensureWebhook(ctx, a, b); err != nil {
		return nil, err
	}
	var all kibashipv1.DeploymentList
	if err := r.Client.List(ctx, &all, client.InNamespace(a.Namespace), client.MatchingFields{IndexApplication: a.Name}); err != nil {
		return nil, err
	}
	existing := map[string]*kibashipv1.Deployment{}
	var commits []string
	for i := range all.Items {
		d := &all.Items[i]
		existing[d.Name] = d
		commits = append(commits, d.Annotations[kibashipv1.AnnotationPushed])
	}
	source := a.Spec.GitRepository
	question := poll.Question{
		UID: a.UID, Provider: source.Provider, URL: r.Config.Builds.RepositoryURL(string(source.Provider), source.Repository),
		User: rules.GitUser(source.Provider), Rule: poll.NewRule(source), Pushed: a.Annotations[kibashipv1.AnnotationPushed],
	}
	if source.SecretRef != nil {
		question.Secret = source.SecretRef.Name
	}
	b.Answer, b.Answered = r.Poller.Ask(client.ObjectKeyFromObject(a), question, commits)
	for _, ref := range b.Answer.Refs {
		row := kibashipv1.AutoBuildRef{Ref: ref.Name, CommitSHA: ref.Commit, Deployment: deploymentName(a, ref)}
		if b.Answer.Skipped[ref.Commit] {
			row.Message = "The message of the commit says [skip ci]"
		} else if row.Message, err = r.deploy(ctx, a, ref, existing[row.Deployment], b); err != nil {
			return nil, err
		}
		b.Refs = append(b.Refs, row)
	}
	return b, nil
}

func deploymentName(a *kibashipv1.Application, ref git.Ref) string {
	if branch, ok := strings.CutPrefix(ref.Name, git.Heads); ok {
		return naming.PushedBranch(a.Name, branch)
	}
	return naming.PushedTag(a.Name)
}

// deploy has a Deployment build a commit, and returns why it does not. A Deployment that was once given the commit is left alone: its
// author may have gone back to an earlier one. The commit is noted in the same write that asks for its build. So each commit is
// given once, also after a restart of the operator.
func (r *Reconciler) deploy(ctx context.Context, a *kibashipv1.Application, ref git.Ref, d *kibashipv1.Deployment, b *AutoBuild) (message string, err error) {
	branch, _ := strings.CutPrefix(ref.Name, git.Heads)
	if branch == ref.Name {
		branch = ""
	}
	begun := started{ref: ref.Name, commit: ref.Commit}
	source := &kibashipv1.DeploymentSource{CommitSHA: ref.Commit, Branch: branch}
	notes := map[string]string{kibashipv1.AnnotationRef: ref.Name, kibashipv1.AnnotationPushed: ref.Commit}
	switch {
	case d == nil:
		d = &kibashipv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: a.Namespace, Name: deploymentName(a, ref), Annotations: notes, OwnerReferences: []metav1.OwnerReference{owner(a)},
			},
			Spec: kibashipv1.DeploymentSpec{ApplicationRef: kibashipv1.LocalReference{Name: a.Name}, GitRepository: source},
		}
		err = r.Client.Create(ctx, d)
	case !metav1.IsControlledBy(d, a):
		return "Deployment " + d.Name + " was not created for pushes: delete it, and it is created again for this branch or tag", nil
	// Its end need not be an event for this controller, so it is looked at again after refusedInterval.
	case d.DeletionTimestamp != nil:
		b.Refused = true
		return "Deployment " + d.Name + " is being deleted", nil
	case d.Annotations[kibashipv1.AnnotationPushed] == ref.Commit:
		return "", nil
	default:
		if running := d.Status.CurrentPipelineRun; d.Status.ObservedGeneration != d.Generation || d.Status.Phase == kibashipv1.DeploymentInitializing ||
			running == nil || running.Phase == kibashipv1.DeploymentRunning {
			// The build of the former commit has not ended. The new spec ends it.
			begun.before = d.Annotations[kibashipv1.AnnotationPushed]
		}
		before := d.DeepCopy()
		d.Spec.GitRepository = source
		if d.Annotations == nil {
			d.Annotations = map[string]string{}
		}
		maps.Copy(d.Annotations, notes)
		err = r.Client.Patch(ctx, d, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	}
	switch {
	case err == nil:
		b.started = append(b.started, begun)
		return "", nil
	case outcome.Classify(err) == outcome.Rejected:
		b.Refused = true
		return "The API server refuses the Deployment: " + refusal.Annotate(err.Error()), nil
	default:
		return "", err
	}
}

// owner is the owner reference of an Application. It does not block the deletion, for which another right would be needed.
func owner(a *kibashipv1.Application) metav1.OwnerReference {
	ref := metav1.NewControllerRef(a, kibashipv1.GroupVersion.WithKind("Application"))
	ref.BlockOwnerDeletion = nil
	return *ref
}

// ensureWebhook writes the Secret with which the provider signs webhooks. A Secret that a person made under this name is never
// overwritten.
func (r *Reconciler) ensureWebhook(ctx context.Context, a *kibashipv1.Application, b *AutoBuild) error {
	if r.Config.Pushes.WebhookURL == "" {
		return nil
	}
	key, err := r.Keys.Get(ctx)
	if err != nil {
		return err
	}
	path := hook.NewPath(a.Namespace, a.Name, a.UID)
	secret := hook.Derive(key, path)
	b.URL, b.Secret = r.Config.Pushes.WebhookURL+path, naming.WebhookSecret(a.Name)
	data := map[string][]byte{"url": []byte(b.URL), "secret": []byte(secret.Text()), "signing-token": []byte(secret.SigningToken())}
	live := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: b.Secret}}
	err = r.Writer.Live.Get(ctx, client.ObjectKeyFromObject(live), live)
	switch {
	case apply.Absent(err):
		live = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: a.Namespace, Name: b.Secret, OwnerReferences: []metav1.OwnerReference{owner(a)},
			Labels: map[string]string{kibashipv1.LabelManagedBy: kibashipv1.ManagedBy},
		}, Data: data}
		err = r.Client.Create(ctx, live, client.DisableReadYourWritesConsistency) // no cache has Secrets
	case err != nil:
		return err
	case !metav1.IsControlledBy(live, a):
		b.SecretProblem = fmt.Sprintf("Secret %s exists, and was not created for this webhook: delete it", b.Secret)
		b.Secret, b.Refused = "", true
		return nil
	case !equality.Semantic.DeepEqual(live.Data, data):
		live.Data = data
		err = r.Client.Update(ctx, live, client.DisableReadYourWritesConsistency)
	}
	if outcome.Classify(err) == outcome.Rejected {
		b.SecretProblem, b.Refused = "The API server refuses the Secret of the webhook: "+refusal.Annotate(err.Error()), true
		b.Secret = ""
		return nil
	}
	return err
}
