package command

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/why"
)

type tryOptions struct {
	timeout, wait        time.Duration
	owner, flag          string
	keep, once, showFlag bool
	labels               []string
}

// farewell is how long the end of an instance is waited for.
const farewell = 2 * time.Minute

func (r *root) try() *cobra.Command {
	var o tryOptions
	c := &cobra.Command{
		Use:   "try CHALLENGE",
		Short: "Start an instance of your own, show how it starts and how to connect, end it on Ctrl-C",
		Long: `Start an instance of your own of a Challenge, for an owner that nobody else has. It shows the start
as it goes, then how to connect, and ends the instance on Ctrl-C. What you forget, or lose the
connection to, ends by itself after --timeout.`,
		Example: `  kubectl berg try guestbook -n berg
  kubectl berg try guestbook --once      # for scripts: does it start?
  kubectl berg try guestbook --keep      # leave it running`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: one(r.completeChallenges),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.timeout < time.Second {
				return console.Errorf(console.ExitUsage, "--timeout %s: must be a second or longer", o.timeout)
			}
			if o.owner != "" && uuid.Validate(o.owner) != nil {
				return console.Errorf(console.ExitUsage, "--owner %s: must be a UUID, in lower case", o.owner)
			}
			to, err := r.open()
			if err != nil {
				return err
			}
			return r.tryOne(cmd.Context(), to, args[0], o)
		},
	}
	f := c.Flags()
	f.DurationVar(&o.timeout, "timeout", 30*time.Minute, "how long it lives at most")
	f.DurationVar(&o.wait, "wait", 5*time.Minute, "how long it may take until it runs")
	f.StringVar(&o.owner, "owner", "", "a UUID; by default one that nobody has")
	f.StringVar(&o.flag, "flag", "", "its flag; by default one that is made up")
	f.BoolVar(&o.showFlag, "show-flag", false, "print its flag, to compare with what you find")
	f.BoolVar(&o.keep, "keep", false, "leave it running when it runs")
	f.BoolVar(&o.once, "once", false, "end it as soon as it runs")
	f.StringSliceVar(&o.labels, "label", nil, "labels to put on it, as in team=red")
	c.MarkFlagsMutuallyExclusive("keep", "once")
	return c
}

// wanted makes the instance that is to be tried.
func (r *root) wanted(ctx context.Context, c *cluster.Cluster, name string, o tryOptions) (*bergv1.ChallengeInstance, error) {
	namespace, short := challengeOf(name)
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
	if challenge != nil {
		i.Spec.ChallengeRef.Namespace = challenge.Namespace
		format = challenge.Spec.FlagFormat
	}
	if i.Spec.Flag == "" {
		i.Spec.Flag = madeUp(format)
	}
	return i, nil
}

// challengeOf reads NAME or NAMESPACE/NAME; the namespace is "" where none is said.
func challengeOf(text string) (namespace, name string) {
	text = trimmedChallenge(text)
	if namespace, name, qualified := strings.Cut(text, "/"); qualified {
		return namespace, name
	}
	return "", text
}

// findChallenge looks where the user is, then everywhere; nil where it may not be looked for.
func findChallenge(ctx context.Context, c *cluster.Cluster, namespace, name string) (*bergv1.Challenge, error) {
	challenge := &bergv1.Challenge{}
	place := namespace
	if place == "" {
		place = c.Namespace
	}
	err := c.Get(ctx, key(place, name), challenge)
	switch {
	case err == nil:
		return challenge, nil
	case apierrors.IsForbidden(err):
		return nil, nil
	case !apierrors.IsNotFound(err) || cluster.NotServed(err):
		return nil, cluster.Explain("read Challenge "+name, err)
	case namespace != "":
		return nil, console.Errorf(console.ExitNotFound, "there is no Challenge %s in namespace %s", name, place)
	}
	var all bergv1.ChallengeList
	if err := c.List(ctx, &all); apierrors.IsForbidden(err) {
		return nil, console.Errorf(console.ExitNotFound, "there is no Challenge %s in namespace %s: give it as NAMESPACE/NAME if it is elsewhere", name, place)
	} else if err != nil {
		return nil, cluster.Explain("look for Challenge "+name, err)
	}
	var found []*bergv1.Challenge
	var places []string
	for i := range all.Items {
		if all.Items[i].Name == name {
			found = append(found, &all.Items[i])
			places = append(places, all.Items[i].Namespace+"/"+name)
		}
	}
	switch len(found) {
	case 0:
		return nil, console.Errorf(console.ExitNotFound, "there is no Challenge %s: kubectl get challenges -A lists those that are there", name)
	case 1:
		return found[0], nil
	default:
		return nil, console.Errorf(console.ExitUsage, "which one? %s", strings.Join(places, ", "))
	}
}

// madeUp is a flag that nobody can guess, in the shape that players know.
func madeUp(format string) string {
	random := make([]byte, 12)
	_, _ = rand.Read(random) // it never fails
	text := "try_" + hex.EncodeToString(random)
	if strings.Count(format, "...") == 1 && len(format) < 256 {
		return strings.Replace(format, "...", text, 1)
	}
	return "flag{" + text + "}"
}

// trial is one instance from its creation to its end.
type trial struct {
	*root
	cluster  *cluster.Cluster
	options  tryOptions
	instance *bergv1.ChallengeInstance
	began    time.Time
	spinner  spinner
	done     map[string]bool
	cause    bergv1.Cause
	ready    bool
	unwell   string
	expires  string
}

// moment is what try tells as JSON, in a line each.
type moment struct {
	Event    string       `json:"event"`
	Name     string       `json:"name"`
	Place    string       `json:"namespace"`
	Seconds  float64      `json:"seconds"`
	Phase    bergv1.Phase `json:"phase,omitempty"`
	What     string       `json:"what,omitempty"`
	Services []way        `json:"services,omitempty"`
	Finding  *why.Finding `json:"finding,omitempty"`
	Cause    bergv1.Cause `json:"cause,omitempty"`
	Start    []why.Stage  `json:"start,omitempty"`
}

func (r *root) tryOne(ctx context.Context, c *cluster.Cluster, name string, o tryOptions) (err error) {
	i, err := r.wanted(ctx, c, name, o)
	if err != nil {
		return err
	}
	t := &trial{root: r, cluster: c, options: o, instance: i, began: r.clock.Now(), done: map[string]bool{}}
	t.spinner = spinner{console: r.Console, clock: r.clock}
	defer t.spinner.stop()
	flag := i.Spec.Flag
	if err := t.create(ctx); err != nil {
		if ctx.Err() != nil { // the answer may be lost, and the instance there
			return t.leave(console.Errorf(console.ExitInterrupted, "interrupted before it was started")) //nolint:contextcheck // it has to be done after an interruption
		}
		if console.Code(err) == console.ExitUnreachable { // likewise
			return t.leave(err) //nolint:contextcheck // likewise
		}
		return err
	}
	t.tell(moment{Event: "created", What: i.Spec.ChallengeRef.Name})
	if r.Format != console.JSON {
		r.Printf("%s is being started for you: %s in namespace %s\n", r.Paint(console.Bold, i.Spec.ChallengeRef.Name), i.Name, i.Namespace)
		if o.showFlag {
			r.Printf("its flag is %s\n", console.OneLine(flag))
		}
	}
	err = t.start(ctx)
	if err != nil || !o.keep && !o.once {
		if err == nil {
			err = t.stay(ctx)
		}
	}
	if err == nil && o.keep {
		t.spinner.stop()
		if r.Format != console.JSON {
			r.Printf("It is left running; to end it: kubectl berg end %s -n %s\n", i.Name, i.Namespace)
		}
		return nil
	}
	return t.leave(err) //nolint:contextcheck // likewise
}

// create makes the instance. Its name was chosen beforehand: an answer that is lost leaves no
// second one.
func (t *trial) create(ctx context.Context) error {
	pause := 300 * time.Millisecond
	for range 5 {
		wanted := t.instance.DeepCopy()
		err := cluster.Attempt(ctx, func(ctx context.Context) error { return t.cluster.Create(ctx, wanted) })
		if apierrors.IsAlreadyExists(err) {
			err = t.cluster.Get(ctx, client.ObjectKeyFromObject(t.instance), wanted)
			if err == nil && wanted.Spec.OwnerID != t.instance.Spec.OwnerID {
				return console.Errorf(console.ExitFailed, "an instance %s of somebody else exists: try again", t.instance.Name)
			}
		}
		if err == nil {
			t.instance = wanted
			return nil
		}
		if !cluster.Transient(err) {
			return cluster.Explain("start an instance", err)
		}
		t.tellLost(err)
		select {
		case <-ctx.Done():
			return cluster.Explain("start an instance", ctx.Err())
		case <-t.clock.After(pause):
		}
		pause *= 2
	}
	return console.Errorf(console.ExitUnreachable, "start an instance: the API server cannot be reached")
}

// tell tells it to programs.
func (t *trial) tell(m moment) {
	if t.Format != console.JSON {
		return
	}
	m.Name, m.Place, m.Seconds = t.instance.Name, t.instance.Namespace, t.clock.Since(t.began).Seconds()
	_ = t.WriteLine(m)
}

// milestones are the conditions that are told, in their order, in words.
var milestones = []struct{ condition, words string }{
	{bergv1.ConditionChallengeFound, "the Challenge can be run"},
	{bergv1.ConditionNamespaceCreated, "it has a namespace"},
	{bergv1.ConditionNetworkPolicyCreated, "a network policy isolates it"},
	{bergv1.ConditionServicesCreated, "it has Services"},
	{bergv1.ConditionRoutesCreated, "it has routes"},
	{bergv1.ConditionDeploymentsCreated, "its pods are ordered"},
	{bergv1.ConditionPodsReady, "its pods are ready"},
}

// start waits until it runs.
func (t *trial) start(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, t.options.wait)
	defer cancel()
	t.spinner.show("starting")
	err := t.follow(waiting, func(change cluster.Change) (bool, error) {
		t.instance = change.Instance
		if change.Gone || change.Instance.DeletionTimestamp != nil {
			return true, console.Errorf(console.ExitProblem, "somebody ended it before it ran")
		}
		t.milestones()
		t.causes()
		if t.instance.Status.Phase == bergv1.PhaseRunning {
			return true, nil
		}
		f := why.Explain(why.View{Instance: t.instance, Now: t.cluster.Now()})
		t.spinner.show(f.Sentence)
		// What its author or an administrator must mend does not come right while one waits.
		if t.instance.Status.Phase == bergv1.PhaseFailed {
			return true, t.failed(ctx, console.ExitProblem, "it cannot be started")
		}
		return false, nil
	}, nil)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return t.failed(ctx, console.ExitTimeout, fmt.Sprintf("it does not run after %s", console.Duration(t.options.wait)))
	case err != nil:
		return cluster.Explain("follow the start", err)
	}
	t.ready = true
	t.spinner.stop()
	ways := make([]way, 0, len(t.instance.Status.Services))
	for _, s := range t.instance.Status.Services {
		command, browser := howTo(s)
		ways = append(ways, way{s, command, browser})
	}
	took := why.Stages(t.instance)
	t.tell(moment{Event: "running", Phase: bergv1.PhaseRunning, Services: ways, Start: took})
	if t.Format != console.JSON {
		t.Printf("%s it runs, after %.1fs\n", t.Paint(console.Green, "✓"), t.clock.Since(t.began).Seconds())
		if words := why.InWords(took); words != "" {
			t.Printf("  %s\n", t.Paint(console.Faint, words))
		}
		t.Printf("\n")
		t.writeServices(t.instance.Status.Services)
		t.Printf("\n")
	}
	return nil
}

// failed says why, and returns the error for it.
func (t *trial) failed(ctx context.Context, code int, what string) error {
	t.spinner.stop()
	f := why.Explain(gather(ctx, t.cluster, t.instance))
	t.tell(moment{Event: "failed", Phase: t.instance.Status.Phase, Finding: &f})
	if t.Format != console.JSON {
		t.writeFinding(f, "")
	}
	return console.Errorf(code, "%s", what)
}

// milestones tells of what is done and was not told.
func (t *trial) milestones() {
	for _, m := range milestones {
		for _, c := range t.instance.Status.Conditions {
			if c.Type != m.condition || c.Status != metav1.ConditionTrue || t.done[m.condition] {
				continue
			}
			t.done[m.condition] = true
			if c.Reason == bergv1.ReasonNotNeeded {
				continue
			}
			t.tell(moment{Event: "condition", What: m.condition, Phase: t.instance.Status.Phase})
			if t.Format != console.JSON {
				t.spinner.stop()
				t.Printf("%s %s\n", t.Paint(console.Green, "✓"), m.words)
			}
		}
	}
}

// causes tells what keeps it, once for each cause.
func (t *trial) causes() {
	c := t.instance.Status.Cause
	if c == t.cause || c == "" || c == bergv1.CauseNotReadyYet {
		return
	}
	t.cause = c
	t.tell(moment{Event: "cause", Phase: t.instance.Status.Phase, Cause: c})
	if t.Format != console.JSON {
		t.spinner.stop()
		t.Printf("%s %s\n", t.Paint(console.Yellow, "…"), c)
	}
}

// stay waits for Ctrl-C, and tells of what changes.
func (t *trial) stay(ctx context.Context) error {
	if t.Format != console.JSON {
		t.Printf("Ctrl-C ends it; else it ends by itself%s.\n", t.atItsEnd())
	}
	t.expires = t.atItsEnd()
	err := t.follow(ctx, func(change cluster.Change) (bool, error) {
		t.instance = change.Instance
		if change.Gone || change.Instance.DeletionTimestamp != nil {
			t.tell(moment{Event: "ended"})
			if change.Instance.Spec.TerminationReason == bergv1.TerminationTimeout {
				t.Notef("its time is over")
				return true, nil
			}
			return true, console.Errorf(console.ExitProblem, "somebody ended it")
		}
		if p := problemOf(t.instance); p != t.unwell {
			t.unwell = p
			f := why.Explain(gather(ctx, t.cluster, t.instance))
			t.tell(moment{Event: "changed", Phase: t.instance.Status.Phase, Finding: &f})
			if t.Format != console.JSON {
				t.writeFinding(f, "")
			}
		}
		if at := t.atItsEnd(); at != t.expires {
			t.expires = at
			if t.Format != console.JSON {
				t.Printf("It now ends by itself%s.\n", at)
			}
		}
		return false, nil
	}, nil)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // that is what was waited for
	}
	return cluster.Explain("follow the instance", err)
}

func (t *trial) atItsEnd() string {
	if at := t.instance.Status.ExpiresAt; at != nil {
		return " at " + at.Local().Format("15:04:05")
	}
	return ""
}

// follow tells of the instance; begun, which may be nil, is called when it was told whether it is there.
func (t *trial) follow(ctx context.Context, changed func(cluster.Change) (bool, error), begun func() (bool, error)) error {
	uid := t.instance.UID
	return t.cluster.Follow(ctx, cluster.Follower{
		Begun: begun,
		Changed: func(change cluster.Change) (bool, error) {
			if change.Instance.UID != uid {
				return false, nil
			}
			return changed(change)
		},
		Lost: func(err error) {
			t.spinner.stop()
			t.tellLost(err)
		},
		// It is there, and has to be looked after while it lives.
		Timeout: t.options.timeout,
	}, client.InNamespace(t.instance.Namespace), client.MatchingFields{"metadata.name": t.instance.Name})
}

// leave ends the instance, whatever happened, and returns the error of what happened.
func (t *trial) leave(before error) error {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	if t.Format != console.JSON {
		t.spinner.stop()
		t.spinner.show("ending it; Ctrl-C again leaves at once")
	}
	err := t.delete(ctx)
	t.spinner.stop()
	if err != nil {
		by := fmt.Sprintf("it may still run, until its time is over: kubectl berg end %s -n %s", t.instance.Name, t.instance.Namespace)
		if before == nil {
			return console.Errorf(console.Code(err), "%w: %s", err, by)
		}
		return console.Errorf(console.Code(before), "%w; and %s: %s", before, err.Error(), by)
	}
	t.tell(moment{Event: "gone"})
	if t.Format != console.JSON {
		t.Printf("%s it is gone, and nothing is left of it\n", t.Paint(console.Green, "✓"))
	}
	return before
}

// delete deletes exactly the instance that was made, and waits until it is gone.
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
			here := false
			err = t.follow(ctx, func(change cluster.Change) (bool, error) {
				here = true
				return change.Gone, nil
			}, func() (bool, error) { return !here, nil })
			if err == nil || ctx.Err() != nil {
				return cluster.Explain("wait for its end", err)
			}
		case err != nil && !cluster.Transient(err) && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
			return cluster.Explain("end it", err)
		}
		select {
		case <-ctx.Done():
			return cluster.Explain("end it", ctx.Err())
		case <-t.clock.After(nextLook / 4):
		}
	}
}
