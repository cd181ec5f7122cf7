package evening

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/api/instances"
)

// Row is an instance as the page shows it. It has no field for a flag.
type Row struct {
	UID             types.UID
	Namespace, Name string
	Challenge       string
	// Owner is the player or team, or the source of a platform.
	Owner string
	State State
	// Cause in one word, and in a sentence for organisers; "" while it runs.
	Cause, Sentence string
	// Problem: a person must act.
	Problem bool
	// Holds: it takes room of the cluster.
	Holds bool
	// Addresses at which players reach it.
	Addresses []string
	Created   time.Time
	// Ready and Ends are zero if it has not run yet, or never ends.
	Ready, Ends time.Time
	// Stages of the start, in their order, with the time that each took.
	Stages []Stage
	// Conditions as the operator wrote them.
	Conditions []Condition
	// Changed is when the page saw a change last, and version its number.
	Changed time.Time
	version uint64
}

// State is how far an instance is.
type State string

// The states of an instance, as the filter has them.
const (
	Running  State = "running"
	Waiting  State = "waiting"
	Starting State = "starting"
	Failed   State = "failed"
	Ending   State = "ending"
)

// states lists every state in the order in which the page counts them.
var states = []State{Running, Starting, Waiting, Failed, Ending}

// Stage is a part of a start.
type Stage struct {
	Name string
	// At is when it was over.
	At   time.Time
	Took time.Duration
}

// Condition is one of an instance.
type Condition struct {
	Type, Status, Reason, Message string
	Since                         time.Time
}

// ID is the identity of a row in the page.
func (r *Row) ID() string { return rowID(r.Namespace, r.Name) }

// causes are what organisers read of each cause, and whether a person must act.
var causes = map[bergv1.Cause]struct {
	sentence string
	problem  bool
}{
	bergv1.CauseNotReadyYet:      {"It is starting.", false},
	bergv1.CauseQueued:           {"It waits in the queue.", false},
	bergv1.CauseOwnerBusy:        {"It waits until the owner's previous instance is gone.", false},
	bergv1.CauseFrozen:           {"The event is frozen: nothing starts until it is resumed.", false},
	bergv1.CauseNoCapacity:       {"No node has room for its pods.", true},
	bergv1.CauseImageUnavailable: {"An image cannot be pulled.", true},
	bergv1.CauseCrashing:         {"A program in it ends again and again.", true},
	bergv1.CauseRefused:          {"The cluster refuses one of its objects.", true},
	bergv1.CauseAddressPending:   {"Its pods are ready, and it has no address yet.", false},
	bergv1.CauseInvalid:          {"The Challenge has an error.", true},
}

// newRow returns what the page shows of an instance.
func newRow(i *bergv1.ChallengeInstance) Row {
	r := Row{
		UID: i.UID, Namespace: i.Namespace, Name: i.Name, Challenge: i.Spec.ChallengeRef.Name,
		Owner: cmp.Or(i.Labels[bergv1.LabelSource], i.Spec.OwnerID), State: rowState(i), Created: i.CreationTimestamp.Time,
	}
	r.Holds = i.Status.StartedAt != nil && r.State != Waiting
	if r.State != Running && r.State != Ending {
		known := causes[cmp.Or(i.Status.Cause, bergv1.CauseNotReadyYet)]
		r.Cause, r.Sentence, r.Problem = string(cmp.Or(i.Status.Cause, bergv1.CauseNotReadyYet)), known.sentence, known.problem || r.State == Failed
		if detail := instances.Detail(i); detail != "" && detail != known.sentence {
			r.Sentence = strings.TrimSpace(r.Sentence + " " + detail)
		}
	}
	if i.Status.ReadyAt != nil {
		r.Ready = i.Status.ReadyAt.Time
	}
	if i.Status.ExpiresAt != nil {
		r.Ends = i.Status.ExpiresAt.Time
	}
	for _, s := range i.Status.Services {
		if address := formatAddress(s); address != "" {
			r.Addresses = append(r.Addresses, address)
		}
	}
	r.Stages = finishedStages(i)
	for _, c := range i.Status.Conditions {
		r.Conditions = append(r.Conditions, Condition{c.Type, string(c.Status), c.Reason, c.Message, c.LastTransitionTime.Time})
	}
	slices.SortStableFunc(r.Conditions, func(a, b Condition) int { return a.Since.Compare(b.Since) })
	return r
}

func rowState(i *bergv1.ChallengeInstance) State {
	switch {
	case instances.Ended(i):
		return Ending
	case i.Status.Phase == bergv1.PhaseRunning:
		return Running
	case i.Status.Phase == bergv1.PhaseFailed:
		return Failed
	case slices.Contains([]bergv1.Cause{bergv1.CauseQueued, bergv1.CauseOwnerBusy, bergv1.CauseFrozen, bergv1.CauseNoCapacity}, i.Status.Cause):
		return Waiting
	default:
		return Starting
	}
}

func formatAddress(s bergv1.ServiceEndpoint) string {
	if s.Hostname == "" {
		return ""
	}
	if s.URL != "" {
		return s.URL
	}
	return fmt.Sprintf("%s:%d", s.Hostname, s.Port)
}

// stageNames are the parts of a start, in their order.
var stageNames = []string{"namespace", "objects", "node", "network", "images", "containers", "ready"}

// finishedStages returns the parts of a start that are over.
func finishedStages(i *bergv1.ChallengeInstance) (all []Stage) {
	start := i.Status.Start
	if start == nil {
		return nil
	}
	before := i.CreationTimestamp.Time
	for n, stageTime := range []*metav1.MicroTime{
		start.NamespaceCreatedAt, start.ObjectsWrittenAt, start.ScheduledAt, start.SandboxesCreatedAt, start.ImagesPulledAt,
		start.ContainersStartedAt, start.PodsReadyAt,
	} {
		if stageTime == nil {
			continue
		}
		all = append(all, Stage{stageNames[n], stageTime.Time, max(stageTime.Sub(before), 0)})
		before = stageTime.Time
	}
	return all
}

// Filter chooses rows.
type Filter struct {
	// Text is a part of the name, the owner, the challenge or the address, in lower case.
	Text string
	// Challenge and State are exact; "" is any.
	Challenge string
	State     State
}

func (f Filter) matches(r *Row) bool {
	if f.Challenge != "" && r.Challenge != f.Challenge || f.State != "" && r.State != f.State {
		return false
	}
	if f.Text == "" {
		return true
	}
	return f.in(append([]string{r.Name, r.Owner, r.Challenge, r.Cause}, r.Addresses...)...)
}

// matchesEnded is matches for an instance that has ended, which has no state.
func (f Filter) matchesEnded(ended Ended) bool {
	return (f.Challenge == "" || f.Challenge == ended.Challenge) && (f.Text == "" || f.in(ended.Name, ended.Owner, ended.Challenge))
}

func (f Filter) in(texts ...string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(strings.ToLower(text), f.Text) })
}

// same reports whether the page shows the same of two rows.
func same(a, b *Row) bool {
	return a.UID == b.UID && a.Holds == b.Holds && a.Challenge == b.Challenge && a.Owner == b.Owner && a.State == b.State && a.Cause == b.Cause && a.Sentence == b.Sentence &&
		a.Problem == b.Problem && a.Ready.Equal(b.Ready) && a.Ends.Equal(b.Ends) && slices.Equal(a.Addresses, b.Addresses) &&
		slices.Equal(a.Stages, b.Stages) && slices.Equal(a.Conditions, b.Conditions)
}
