package evening

import (
	"fmt"
	"slices"
	"strings"
	"time"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// Moment is a line of the timeline of an instance.
type Moment struct {
	At           time.Time
	What, Detail string
	// Bad: it is an event of type Warning, or a condition that is False.
	Bad bool
}

// timeline is what is known of an instance, by time: its creation, the stages of its start, its conditions and its events.
func timeline(r *Row, events []Event) (all []Moment) {
	all = append(all, Moment{At: r.Created, What: "Created"})
	for _, s := range r.Stages {
		all = append(all, Moment{At: s.At, What: "Stage " + s.Name, Detail: "over, it took " + took(s.Took)})
	}
	if !r.Ready.IsZero() {
		all = append(all, Moment{At: r.Ready, What: "Running", Detail: "all pods were ready for the first time"})
	}
	for _, c := range r.Conditions {
		if !c.Since.IsZero() {
			all = append(all, Moment{
				At: c.Since, What: c.Type + " is " + c.Status, Detail: joined(c.Reason, c.Message), Bad: c.Status == "False",
			})
		}
	}
	return inOrder(append(all, eventMoments(events)...))
}

func eventMoments(events []Event) (all []Moment) {
	for _, e := range events {
		m := Moment{At: e.Last, What: "Event " + e.Reason, Detail: e.Message, Bad: e.Warning}
		if e.Count > 1 {
			m.Detail = strings.TrimSpace(fmt.Sprintf("%s (%d times since %s)", m.Detail, e.Count, formatClock(e.First)))
		}
		all = append(all, m)
	}
	return all
}

func inOrder(all []Moment) []Moment {
	slices.SortStableFunc(all, func(a, b Moment) int { return a.At.Compare(b.At) })
	return all
}

func joined(reason, message string) string {
	if reason == "" || message == "" {
		return reason + message
	}
	return reason + ": " + message
}

// Remedy is a line of the plugin that helps.
type Remedy struct{ Says, Command string }

// Remedies are the lines for an instance: first those for what is wrong with it.
func Remedies(r *Row) []Remedy {
	command := func(verb, name, namespace string) string {
		return "kubectl berg " + verb + " " + quoted(name) + " -n " + quoted(namespace)
	}
	var all []Remedy
	for _, remedy := range causeRemedies[bergv1.Cause(r.Cause)] {
		command := remedy.Command
		for placeholder, value := range map[string]string{"NAMESPACE": r.Namespace, "INSTANCE": r.Name, "CHALLENGE": r.Challenge} {
			command = strings.ReplaceAll(command, "<"+placeholder+">", quoted(value))
		}
		all = append(all, Remedy{remedy.Says, command})
	}
	all = append(all, Remedy{"See what is wrong, and what helps:", command("why", r.Name, r.Namespace)})
	if r.Cause != string(bergv1.CauseCrashing) {
		all = append(all, Remedy{"Read what its programs wrote:", command("logs", r.Name, r.Namespace)})
	}
	return append(all,
		Remedy{"Give it more time:", command("extend 30m", r.Name, r.Namespace)},
		Remedy{"End it:", command("end", r.Name, r.Namespace)},
	)
}

// remediesOf are the lines that help with a cause, in addition to those for every instance.
var causeRemedies = map[bergv1.Cause][]Remedy{
	bergv1.CauseNotReadyYet: nil, // nothing is wrong
	bergv1.CauseQueued: {
		{"See what has the room, and what ends next:", "kubectl berg list -n <NAMESPACE>"},
	},
	bergv1.CauseOwnerBusy: {
		{"See the owner's previous instance:", "kubectl berg list -n <NAMESPACE>"},
	},
	bergv1.CauseFrozen: {
		{"Let new instances of the Challenge start again:", "kubectl berg unfreeze --challenge <CHALLENGE> -n <NAMESPACE>"},
	},
	bergv1.CauseNoCapacity: {
		{"See what the cluster lacks:", "kubectl berg doctor"},
		{"Calculate how many nodes are needed, here for 100 players:", "kubectl berg plan --players 100 -n <NAMESPACE>"},
	},
	bergv1.CauseImageUnavailable: {
		{"After the image of the Challenge is corrected, try it with an instance of your own:", "kubectl berg try <CHALLENGE> -n <NAMESPACE>"},
		{"Then update those that exist:", "kubectl berg rollout <CHALLENGE> -n <NAMESPACE>"},
	},
	bergv1.CauseCrashing: {
		{"Read what its programs wrote before they ended:", "kubectl berg logs <INSTANCE> --previous -n <NAMESPACE>"},
		{"After the Challenge is corrected, update the instances that exist:", "kubectl berg rollout <CHALLENGE> -n <NAMESPACE>"},
	},
	bergv1.CauseRefused: {
		{"Check the cluster and the operator:", "kubectl berg doctor"},
	},
	bergv1.CauseAddressPending: {
		{"Check the Gateway and the nodes:", "kubectl berg doctor"},
	},
	bergv1.CauseInvalid: {
		{"After the Challenge is corrected, try it with an instance of your own:", "kubectl berg try <CHALLENGE> -n <NAMESPACE>"},
	},
}

// quoted returns a word for a shell. Names of Kubernetes stay as they are; anything else is for no shell to read.
func quoted(word string) string {
	for _, c := range word {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '=' {
			return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return word
}
