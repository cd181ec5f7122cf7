package command

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/why"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

type tryOptions struct {
	timeout, wait        time.Duration
	owner, flag          string
	keep, once, showFlag bool
	labels               []string
}

// How long the deletion may take, and how often it is tried.
const (
	// cleanupTimeout limits the wait for the deletion.
	cleanupTimeout     = 2 * time.Minute
	deletePollInterval = 500 * time.Millisecond
)

func (r *root) try() *cobra.Command {
	var o tryOptions
	c := &cobra.Command{
		Use:   "try CHALLENGE",
		Short: "Start a test instance, show its start and how to connect, delete it on Ctrl-C",
		Long: `Start a test instance of a Challenge, for a new random owner. Its flag has the characters & / $ ', which
careless scripts break. The command shows the progress of the start, then how to connect, and deletes the instance on Ctrl-C. If the command is killed or loses its
connection, the instance expires after --timeout.`,
		Example: `  kubectl berg try guestbook -n berg
  kubectl berg try guestbook --once      # for scripts: check that it starts
  kubectl berg try guestbook --keep      # leave it running`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: firstArgument(r.completeChallenges),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.timeout < time.Second {
				return console.Errorf(console.ExitUsage, "--timeout %s: must be a second or longer", o.timeout)
			}
			if o.owner != "" && uuid.Validate(o.owner) != nil {
				return console.Errorf(console.ExitUsage, "--owner %s: must be a UUID in lower case", o.owner)
			}
			to, err := r.open()
			if err != nil {
				return err
			}
			return r.tryOne(cmd.Context(), to, args[0], o)
		},
	}
	f := c.Flags()
	f.DurationVar(&o.timeout, "timeout", 30*time.Minute, "maximum lifetime of the instance")
	f.DurationVar(&o.wait, "wait", 5*time.Minute, "how long to wait for the instance to run")
	f.StringVar(&o.owner, "owner", "", "owner of the instance, a UUID (default: a random one)")
	f.StringVar(&o.flag, "flag", "", "flag of the instance (default: a random one)")
	f.BoolVar(&o.showFlag, "show-flag", false, "print the flag, to compare it with the one that you find")
	f.BoolVar(&o.keep, "keep", false, "leave the instance running")
	f.BoolVar(&o.once, "once", false, "delete the instance as soon as it runs")
	f.StringSliceVar(&o.labels, "label", nil, "labels of the instance, as in team=red")
	c.MarkFlagsMutuallyExclusive("keep", "once")
	return c
}

// newInstance returns the instance to create.
func (r *root) newInstance(ctx context.Context, c *cluster.Cluster, name string, o tryOptions) (*bergv1.ChallengeInstance, error) {
	namespace, short := splitChallenge(name)
	challenge, err := findChallenge(ctx, c, namespace, short)
	if err != nil {
		return nil, err
	}
	i := &bergv1.ChallengeInstance{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace,
			Name:      "try-" + short[:min(len(short), validation.DNS1123LabelMaxLength-10)] + "-" + utilrand.String(5),
		},
		Spec: bergv1.ChallengeInstanceSpec{
			ChallengeRef: bergv1.ChallengeReference{Name: short, Namespace: namespace},
			OwnerID:      o.owner,
			Flag:         o.flag,
			Timeout:      timeoutText(o.timeout),
		},
	}
	i.Name = strings.ReplaceAll(i.Name, ".-", "-")
	for _, label := range o.labels {
		k, v, ok := strings.Cut(label, "=")
		if !ok {
			return nil, console.Errorf(console.ExitUsage, "--label %s: must be KEY=VALUE", label)
		}
		metav1.SetMetaDataLabel(&i.ObjectMeta, k, v)
	}
	if i.Spec.OwnerID == "" {
		i.Spec.OwnerID = uuid.NewString()
	}
	format := ""
	if challenge == nil {
		// A user who may not read Challenges means the Challenge in the namespace of the instance
		i.Spec.ChallengeRef.Namespace = cmp.Or(namespace, c.Namespace)
	} else {
		i.Spec.ChallengeRef.Namespace = challenge.Namespace
		format = challenge.Spec.FlagFormat
	}
	if i.Spec.Flag == "" {
		i.Spec.Flag = randomFlag(format)
	}
	return i, nil
}

// splitChallenge reads NAME or NAMESPACE/NAME. The namespace is "" if there is none.
func splitChallenge(text string) (namespace, name string) {
	text = trimmedChallenge(text)
	if namespace, name, qualified := strings.Cut(text, "/"); qualified {
		return namespace, name
	}
	return "", text
}

// findChallenge reads a Challenge from the namespace of the user or, if it is not there, from any other.
// It returns nil if the user may not read it.
func findChallenge(ctx context.Context, c *cluster.Cluster, namespace, name string) (*bergv1.Challenge, error) {
	challenge := &bergv1.Challenge{}
	first := cmp.Or(namespace, c.Namespace)
	err := c.Get(ctx, key(first, name), challenge)
	switch {
	case err == nil:
		return challenge, nil
	case apierrors.IsForbidden(err):
		return nil, nil
	case !apierrors.IsNotFound(err) || cluster.NotServed(err):
		return nil, cluster.Explain("read Challenge "+name, err)
	case namespace != "":
		return nil, console.Errorf(console.ExitNotFound, "Challenge %s does not exist in namespace %s", name, first)
	}
	var all bergv1.ChallengeList
	if err := c.List(ctx, &all); apierrors.IsForbidden(err) {
		return nil, console.Errorf(console.ExitNotFound, "Challenge %s does not exist in namespace %s. If it is in another namespace, use NAMESPACE/NAME", name, first)
	} else if err != nil {
		return nil, cluster.Explain("look for Challenge "+name, err)
	}
	var found []*bergv1.Challenge
	var candidates []string
	for i := range all.Items {
		if all.Items[i].Name == name {
			found = append(found, &all.Items[i])
			candidates = append(candidates, all.Items[i].Namespace+"/"+name)
		}
	}
	switch len(found) {
	case 0:
		return nil, console.Errorf(console.ExitNotFound, "Challenge %s does not exist. List Challenges: kubectl get challenges.berg.norelect.ch -A", name)
	case 1:
		return found[0], nil
	default:
		return nil, console.Errorf(console.ExitUsage, "several Challenges have this name. Choose one of: %s", strings.Join(candidates, ", "))
	}
}

// randomFlag returns a flag that cannot be guessed, in the format of the Challenge.
func randomFlag(format string) string {
	random := make([]byte, 12)
	_, _ = rand.Read(random)                        // never fails
	text := "try_&/$'" + hex.EncodeToString(random) // a script of the author must leave these characters as they are
	if strings.Count(format, "...") == 1 && len(format) < 256 {
		return strings.Replace(format, "...", text, 1)
	}
	return "flag{" + text + "}"
}

// trial is the test instance from its creation to its deletion. One goroutine uses it. instance is the last version that was
// seen; before the answer to its creation it has no UID. done, cause, problem and expires are what was shown last, so that a
// change is shown once.
type trial struct {
	*root
	cluster  *cluster.Cluster
	options  tryOptions
	instance *bergv1.ChallengeInstance
	began    time.Time
	done     map[string]bool
	cause    bergv1.Cause
	ready    bool
	problem  string
	expires  string
}

// tryEvent is a line of the JSON output of try.
type tryEvent struct {
	Event     string           `json:"event"`
	Name      string           `json:"name"`
	Namespace string           `json:"namespace"`
	Seconds   float64          `json:"seconds"`
	Phase     bergv1.Phase     `json:"phase,omitempty"`
	What      string           `json:"what,omitempty"`
	Services  []serviceCommand `json:"services,omitempty"`
	Finding   *why.Finding     `json:"finding,omitempty"`
	Cause     bergv1.Cause     `json:"cause,omitempty"`
	Start     []view.Stage     `json:"start,omitempty"`
}

// tryOne starts an instance, shows its progress, and deletes it at the end unless it is kept. It cleans up also when
// the answer to the creation was lost, and after an interruption, with a context of its own.
func (r *root) tryOne(ctx context.Context, c *cluster.Cluster, name string, o tryOptions) (err error) {
	i, err := r.newInstance(ctx, c, name, o)
	if err != nil {
		return err
	}
	t := &trial{root: r, cluster: c, options: o, instance: i, began: r.clock.Now(), done: map[string]bool{}}
	defer t.status("")
	flag := i.Spec.Flag
	if err := t.create(ctx); err != nil {
		if ctx.Err() != nil {
			err = console.Errorf(console.ExitInterrupted, "interrupted before the instance was created")
		}
		if ctx.Err() != nil || console.Code(err) == console.ExitUnreachable { // it may exist although the answer was lost
			return t.cleanUp(err) //nolint:contextcheck // it must work after an interruption
		}
		return err
	}
	t.emit(tryEvent{Event: "created", What: i.Spec.ChallengeRef.Name})
	if r.Format != console.JSON {
		r.Printf("Starting instance %s of Challenge %s in namespace %s\n", i.Name, r.Paint(console.Bold, i.Spec.ChallengeRef.Name), i.Namespace)
		if o.showFlag {
			r.Printf("flag: %s\n", console.OneLine(flag))
		}
	}
	err = t.start(ctx)
	if err != nil || !o.keep && !o.once {
		if err == nil {
			err = t.stay(ctx)
		}
	}
	if err == nil && o.keep {
		t.status("")
		if r.Format != console.JSON {
			r.Printf("The instance keeps running. To end it: kubectl berg end %s -n %s\n", i.Name, i.Namespace)
		}
		return nil
	}
	return t.cleanUp(err) //nolint:contextcheck // likewise
}

// create creates the instance. Its name is fixed, so that a retry after a lost answer does not create a
// second one.
func (t *trial) create(ctx context.Context) error {
	delay := 300 * time.Millisecond
	for range 5 {
		created := t.instance.DeepCopy()
		err := cluster.Attempt(ctx, func(ctx context.Context) error { return t.cluster.Create(ctx, created) })
		if apierrors.IsAlreadyExists(err) {
			created = &bergv1.ChallengeInstance{}
			err = t.cluster.Get(ctx, client.ObjectKeyFromObject(t.instance), created)
			if err == nil && created.Spec.OwnerID != t.instance.Spec.OwnerID {
				return console.Errorf(console.ExitFailed, "instance %s already exists and has another owner: try again", t.instance.Name)
			}
		}
		if err == nil {
			t.instance = created
			return nil
		}
		if !cluster.Transient(err) {
			return cluster.Explain("create the instance", err)
		}
		t.reportConnection(err)
		select {
		case <-ctx.Done():
			return cluster.Explain("create the instance", ctx.Err())
		case <-t.clock.After(delay):
		}
		delay *= 2
	}
	return console.Errorf(console.ExitUnreachable, "create the instance: the API server cannot be reached")
}

// emit writes an event as JSON.
func (t *trial) emit(m tryEvent) {
	if t.Format != console.JSON {
		return
	}
	m.Name, m.Namespace, m.Seconds = t.instance.Name, t.instance.Namespace, t.clock.Since(t.began).Seconds()
	_ = t.WriteLine(m)
}

// start waits until the instance runs. It ends with an error, too, if the instance cannot start without help. Its own end of time
// is distinguished from Ctrl-C by ctx.
func (t *trial) start(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, t.options.wait)
	defer cancel()
	t.status("starting")
	err := t.follow(waiting, func(change cluster.Change) (bool, error) {
		t.instance = change.Instance
		if change.Gone || change.Instance.DeletionTimestamp != nil {
			return true, console.Errorf(console.ExitProblem, "the instance was deleted before it ran")
		}
		t.milestones()
		t.causes()
		if t.instance.Status.Phase == bergv1.PhaseRunning {
			return true, nil
		}
		f := why.Explain(why.View{Instance: t.instance, Now: t.cluster.Now()})
		t.status(f.Sentence)
		// Waiting does not help in phase Failed: the author or an administrator must act.
		if t.instance.Status.Phase == bergv1.PhaseFailed {
			return true, t.failed(ctx, console.ExitProblem, "the instance cannot start")
		}
		return false, nil
	}, nil)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return t.failed(ctx, console.ExitTimeout, fmt.Sprintf("the instance is not Running after %s", console.Duration(t.options.wait)))
	case err != nil:
		return cluster.Explain("follow the start", err)
	}
	t.ready = true
	t.status("")
	connections := make([]serviceCommand, 0, len(t.instance.Status.Services))
	for _, s := range t.instance.Status.Services {
		command, browser := connectCommand(s)
		connections = append(connections, serviceCommand{s, command, browser})
	}
	took := view.Stages(t.instance)
	t.emit(tryEvent{Event: "running", Phase: bergv1.PhaseRunning, Services: connections, Start: took})
	if t.Format != console.JSON {
		t.Printf("%s running after %.1fs\n", t.paintSymbol(okSymbol), t.clock.Since(t.began).Seconds())
		if words := view.FormatStages(took); words != "" {
			t.Printf("  %s\n", t.Paint(console.Faint, words))
		}
		t.Printf("\n")
		t.writeServices(t.instance.Status.ConnectionInfo, t.instance.Status.Services)
		t.Printf("\n")
	}
	return nil
}

// failed shows the reason, and returns the error.
func (t *trial) failed(ctx context.Context, code int, message string) error {
	t.status("")
	f := why.Explain(readView(ctx, t.cluster, t.instance))
	t.emit(tryEvent{Event: "failed", Phase: t.instance.Status.Phase, Finding: &f})
	if t.Format != console.JSON {
		t.writeFinding(f, "")
	}
	return console.Errorf(code, "%s", message)
}

// milestones shows the steps that are done and were not shown.
func (t *trial) milestones() {
	for _, step := range slices.Concat(bergv1.BuildConditions, []string{bergv1.ConditionPodsReady}) {
		c := meta.FindStatusCondition(t.instance.Status.Conditions, step)
		if c == nil || c.Status != metav1.ConditionTrue || t.done[step] {
			continue
		}
		t.done[step] = true
		if c.Reason == bergv1.ReasonNotNeeded || c.Reason == bergv1.ReasonFlagNotNeeded {
			continue
		}
		t.emit(tryEvent{Event: "condition", What: step, Phase: t.instance.Status.Phase})
		t.printStep(okSymbol, strings.Join(why.Words(step), " "))
	}
}

// causes shows each cause once, in the word that players see.
func (t *trial) causes() {
	c := t.instance.Status.Cause
	if c == t.cause || c == "" || c == bergv1.CauseNotReadyYet {
		return
	}
	t.cause = c
	t.emit(tryEvent{Event: "cause", Phase: t.instance.Status.Phase, Cause: c})
	t.printStep(waitingSymbol, string(c))
}

// printStep removes the status line first: the next status is written again.
func (t *trial) printStep(s symbol, text string) {
	if t.Format != console.JSON {
		t.status("")
		t.Printf("%s %s\n", t.paintSymbol(s), text)
	}
}

// status replaces the last line of the terminal.
func (t *trial) status(text string) {
	if t.Format != console.JSON {
		t.ShowStatus(text)
	}
}

// stay shows changes until Ctrl-C.
func (t *trial) stay(ctx context.Context) error {
	if t.Format != console.JSON {
		t.Printf("Press Ctrl-C to delete the instance. Otherwise it expires%s.\n", t.expiryText())
	}
	t.expires = t.expiryText()
	err := t.follow(ctx, func(change cluster.Change) (bool, error) {
		t.instance = change.Instance
		if change.Gone || change.Instance.DeletionTimestamp != nil {
			t.emit(tryEvent{Event: "ended"})
			if change.Instance.Spec.TerminationReason == bergv1.TerminationTimeout {
				t.Notef("the instance has expired")
				return true, nil
			}
			return true, console.Errorf(console.ExitProblem, "the instance was deleted")
		}
		if p := string(view.FirstReason(t.instance)); p != t.problem {
			t.problem = p
			f := why.Explain(readView(ctx, t.cluster, t.instance))
			t.emit(tryEvent{Event: "changed", Phase: t.instance.Status.Phase, Finding: &f})
			if t.Format != console.JSON {
				t.writeFinding(f, "")
			}
		}
		if expiry := t.expiryText(); expiry != t.expires {
			t.expires = expiry
			if t.Format != console.JSON {
				t.Printf("It now expires%s.\n", expiry)
			}
		}
		return false, nil
	}, nil)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // Ctrl-C is the usual end
	}
	return cluster.Explain("follow the instance", err)
}

// expiryText is empty for an instance that does not expire.
func (t *trial) expiryText() string {
	if expiry := t.instance.Status.ExpiresAt; expiry != nil {
		return " at " + expiry.Local().Format("15:04:05")
	}
	return ""
}

// follow reports changes of the instance. synced, which may be nil, is called after the first list. An instance of the same name
// with another UID is not reported.
func (t *trial) follow(ctx context.Context, changed func(cluster.Change) (bool, error), synced func() (bool, error)) error {
	uid := t.instance.UID
	return t.cluster.Follow(ctx, cluster.Follower{
		Synced: synced,
		Changed: func(change cluster.Change) (bool, error) {
			if change.Instance.UID != uid {
				return false, nil
			}
			return changed(change)
		},
		Lost: func(err error) {
			t.status("")
			t.reportConnection(err)
		},
		// The instance exists and must be deleted in the end.
		Timeout: t.options.timeout,
	}, client.InNamespace(t.instance.Namespace), client.MatchingFields{"metadata.name": t.instance.Name})
}

// cleanUp deletes the instance, and returns the error from before. Its context is a new one, because the command's has usually
// ended. before keeps its exit code.
func (t *trial) cleanUp(before error) error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	t.status("deleting the instance; press Ctrl-C again to exit immediately")
	err := t.delete(ctx)
	t.status("")
	if err != nil {
		hint := fmt.Sprintf("The instance may run until it expires. To end it: kubectl berg end %s -n %s", t.instance.Name, t.instance.Namespace)
		if before == nil {
			return console.Errorf(console.Code(err), "%w. %s", err, hint)
		}
		return console.Errorf(console.Code(before), "%w; and %s. %s", before, err.Error(), hint)
	}
	t.emit(tryEvent{Event: "gone"})
	if t.Format != console.JSON {
		t.Printf("%s the instance and all its objects are deleted\n", t.paintSymbol(okSymbol))
	}
	return before
}

// delete deletes exactly the instance that was created, and waits until it is gone. Without a UID, because the answer to the
// creation was lost, the owner identifies it: it is random unless the user named one. The deletion has the UID that was read, so
// that it cannot hit a later instance.
func (t *trial) delete(ctx context.Context) error {
	for {
		latest := &bergv1.ChallengeInstance{}
		err := cluster.Attempt(ctx, func(ctx context.Context) error {
			return t.cluster.Get(ctx, client.ObjectKeyFromObject(t.instance), latest)
		})
		gone := apierrors.IsNotFound(err) || err == nil &&
			(latest.Spec.OwnerID != t.instance.Spec.OwnerID || t.instance.UID != "" && latest.UID != t.instance.UID)
		if gone {
			return nil
		}
		if err == nil && latest.DeletionTimestamp == nil {
			err = cluster.Attempt(ctx, func(ctx context.Context) error {
				return t.cluster.Delete(ctx, latest, client.Preconditions{UID: &latest.UID})
			})
		}
		switch {
		case err == nil && latest.UID != "":
			t.instance = latest
			exists := false
			err = t.follow(ctx, func(change cluster.Change) (bool, error) {
				exists = true
				return change.Gone, nil
			}, func() (bool, error) { return !exists, nil })
			if err == nil || ctx.Err() != nil {
				return cluster.Explain("wait for the deletion of the instance", err)
			}
		case err != nil && !cluster.Transient(err) && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
			return cluster.Explain("delete the instance", err)
		}
		select {
		case <-ctx.Done():
			return cluster.Explain("delete the instance", ctx.Err())
		case <-t.clock.After(deletePollInterval):
		}
	}
}
