package commitstatus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/git"
	"github.com/bergctf/berg-operator/internal/kibaship/poll"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

const (
	// workers is how many states one provider gets at the same time.
	workers = 8
	// A state that was not sent is sent again after firstRetry, then after twice as long each time, at most maxRetry.
	firstRetry, maxRetry = time.Second, 5 * time.Minute
	// maxAnswer is how much of an answer is read, so that its connection serves the next request.
	maxAnswer = 64 << 10
)

// Reconciler sends the states of commits to one provider. Another one has workers of its own, which a provider that hangs does not delay.
type Reconciler struct {
	reconcile.Access
	Config    config.KibaShip
	Providers *poll.Providers
	Provider  kibashipv1.GitProvider

	// waits holds the logins that the provider asked to leave alone. It is lost at a restart, and then learned again from the next
	// answer.
	waits poll.Waits
}

// SetupWithManager opens the watch, which others open too.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("kibaship-commit-status-"+string(r.Provider)).
		For(&kibashipv1.Deployment{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			return o.GetAnnotations()[kibashipv1.AnnotationRef] != ""
		}))).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers, ReconciliationTimeout: reconcile.Timeout,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](firstRetry, maxRetry),
		}).
		Complete(r)
}

// asks reports whether the provider is to show the states of the commits of a Deployment.
func asks(d *kibashipv1.Deployment, a *kibashipv1.Application) bool {
	source := a.Spec.GitRepository
	return d.Spec.GitRepository != nil && metav1.IsControlledBy(d, a) &&
		source != nil && source.AutoBuild != nil && source.AutoBuild.CommitStatus && source.SecretRef != nil
}

// LastTime is how long a Deployment that is being deleted waits for the provider to take its last state.
const LastTime = 30 * time.Second

// Unsent returns for how much longer the deletion of a Deployment waits until no commit is pending at the provider, 0 if it does not wait.
func Unsent(d *kibashipv1.Deployment, a *kibashipv1.Application, now time.Time) time.Duration {
	if _, sent, _ := strings.Cut(d.Annotations[kibashipv1.AnnotationReported], "="); sent != string(pending) || d.DeletionTimestamp == nil || !asks(d, a) {
		return 0
	}
	return max(0, d.DeletionTimestamp.Add(LastTime).Sub(now))
}

// Reconcile sends the state of the commit of a Deployment, unless it was sent. If the build of the commit before has not ended, it was
// cancelled, which is sent first. A build that a deletion ends was cancelled, too. The note in the annotation is written after
// the provider has taken the state. If the note is lost, the same state is sent twice, which changes nothing there.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	d := &kibashipv1.Deployment{}
	if err := r.Client.Get(ctx, req.NamespacedName, d); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	a := &kibashipv1.Application{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: d.Spec.ApplicationRef.Name}, a); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !asks(d, a) || a.Spec.GitRepository.Provider != r.Provider {
		return ctrl.Result{}, nil
	}
	commit, now, deleted := d.Spec.GitRepository.CommitSHA, computeState(d), d.DeletionTimestamp != nil
	if deleted && now == pending {
		now = cancelled
	}
	former, sent, _ := strings.Cut(d.Annotations[kibashipv1.AnnotationReported], "=")
	switch {
	case former == commit && sent == string(now), deleted && sent != string(pending):
		return ctrl.Result{}, nil
	case former != commit && sent == string(pending) && hexadecimal.MatchString(former): // a tenant may write the annotation
		commit, now = former, cancelled
	}
	login := poll.NewLogin(a.Namespace, a.Spec.GitRepository.SecretRef.Name)
	if wait := r.waits.For(login, time.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	refusal, wait, err := r.send(ctx, a, d.Name, commit, now)
	r.waits.Begin(login, time.Now(), wait)
	switch {
	case wait > 0:
		return ctrl.Result{RequeueAfter: wait}, nil
	case err != nil && deleted && !errors.Is(err, errNotSent): // without its token, or its authority: they are deleted, too
	case err != nil:
		return ctrl.Result{}, err
	}
	if refusal != "" {
		reconcile.Warning(r.Events, d, kibashipv1.ReasonCommitStatusRefused, "Report", refusal)
	}
	noted := d.DeepCopy()
	metav1.SetMetaDataAnnotation(&noted.ObjectMeta, kibashipv1.AnnotationReported, commit+"="+string(now))
	return ctrl.Result{}, client.IgnoreNotFound(r.Client.Patch(ctx, noted, client.MergeFrom(d))) // its event sends the next state
}

// hexadecimal matches commits. What is sent becomes part of a URL.
var hexadecimal = regexp.MustCompile(`^[0-9a-f]{1,64}$`)

// failed are the reasons of a run that has ended without an image.
var failed = []string{
	kibashipv1.ReasonRunFailed, kibashipv1.ReasonRunCancelled, kibashipv1.ReasonRunTimedOut, kibashipv1.ReasonPodRefused, kibashipv1.ReasonImagePullFailed,
}

// computeState is pending while the condition is about another generation, so that no new commit gets an old result.
func computeState(d *kibashipv1.Deployment) state {
	c, generation := meta.FindStatusCondition(d.Status.Conditions, kibashipv1.ConditionSucceeded), d.Generation
	if d.DeletionTimestamp != nil {
		generation-- // the deletion is one
	}
	switch {
	case c == nil || c.ObservedGeneration != generation:
		return pending
	case c.Status == metav1.ConditionTrue:
		return success
	case c.Status == metav1.ConditionFalse && slices.Contains(failed, c.Reason):
		return failure
	default:
		return pending
	}
}

// errNotSent is the error of a state that is sent again. The text of its cause may have an address with a token.
var errNotSent = errors.New("the git provider does not take the state of a commit")

// send sends a state, and returns why the provider refuses it, or for how long it asks to be left alone. A provider with several
// APIs is asked one after another, until one knows the address.
func (r *Reconciler) send(ctx context.Context, a *kibashipv1.Application, deployment, commit string, now state) (refusal string, wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, git.Timeout)
	defer cancel()
	source, builds := a.Spec.GitRepository, r.Config.Builds
	token, err := r.Providers.Token(ctx, a.Namespace, source.SecretRef.Name)
	if err != nil {
		return "", 0, err
	}
	through, err := r.Providers.Client(ctx, a.Namespace, source.Provider)
	if err != nil {
		return "", 0, err
	}
	requests, err := commitState{
		provider: source.Provider, base: builds.Providers[string(source.Provider)], public: builds.PublicProvider(string(source.Provider)),
		repository: strings.TrimSuffix(source.Repository, ".git"), commit: commit, build: newBuildName(deployment), state: now, token: token,
	}.requests(ctx)
	if err != nil {
		return "", 0, errNotSent
	}
	status := 0
	for _, q := range requests {
		answer, err := through.Do(q)
		if err != nil {
			return "", 0, errNotSent
		}
		_, _ = io.CopyN(io.Discard, answer.Body, maxAnswer)
		_ = answer.Body.Close()
		wait = git.RetryAfter(answer, time.Now())
		if status = answer.StatusCode; status != http.StatusNotFound {
			break
		}
	}
	switch {
	case status < 300:
		return "", 0, nil
	case wait > 0:
		return "", wait, nil
	// A moment later the answer may be another one. Any other refusal is final, and is noted as sent.
	case status >= 500, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout:
		return "", 0, fmt.Errorf("%w: it answers %d", errNotSent, status)
	default:
		return fmt.Sprintf("The git provider answers %d (%s) to the state of commit %s: give the token in Secret %s the right to write commit statuses, or set "+
			"spec.gitRepository.autoBuild.commitStatus of the Application to false", status, http.StatusText(status), commit, source.SecretRef.Name), 0, nil
	}
}
