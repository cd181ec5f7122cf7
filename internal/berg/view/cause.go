package view

import (
	"strings"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// Explanation explains a Cause.
type Explanation struct {
	// Waits: the instance starts by itself as soon as something else ends.
	Waits bool
	// NeedsPerson: the instance does not run until a person acts.
	NeedsPerson bool
	// Players is a sentence for players. It names nothing of the cluster.
	Players string
	// Organisers is a sentence for organisers. The message of the condition that shows the problem follows it.
	Organisers string
	// Remedies help with this cause. Row.Remedies adds the lines that help with every instance.
	Remedies []Remedy
}

// Remedy is a line of the plugin that helps. Its command may hold <NAMESPACE>, <INSTANCE> and <CHALLENGE>.
type Remedy struct{ Text, Command string }

// explanations has a row for each Cause. The linter and a test name a Cause without one.
var explanations = map[bergv1.Cause]Explanation{
	bergv1.CauseNotReadyYet: {
		Players:    "The instance is starting.",
		Organisers: "It is starting.",
	},
	bergv1.CauseQueued: {
		Waits:      true,
		Players:    "The instance is in the queue because all slots are in use. It starts automatically.",
		Organisers: "It is in the queue.",
		Remedies:   []Remedy{{"See which instances use the slots, and which ones end next:", "kubectl berg list -n <NAMESPACE>"}},
	},
	bergv1.CauseOwnerBusy: {
		Waits:      true,
		Players:    "The instance waits until the previous one is deleted. It starts automatically.",
		Organisers: "It waits until the owner's previous instance is deleted.",
		Remedies:   []Remedy{{"See the owner's previous instance:", "kubectl berg list -n <NAMESPACE>"}},
	},
	bergv1.CauseFrozen: {
		Waits:      true,
		Players:    "The organisers have paused this challenge. The instance starts when they resume it.",
		Organisers: "The Challenge is frozen: none of its instances starts until it is resumed.",
		Remedies:   []Remedy{{"Let new instances of the Challenge start again:", "kubectl berg unfreeze --challenge <CHALLENGE> -n <NAMESPACE>"}},
	},
	bergv1.CauseNoCapacity: {
		Waits:       true,
		NeedsPerson: true,
		Players:     "The servers are full. The instance starts automatically when there is capacity.",
		Organisers:  "No node has enough free resources for its pods.",
		Remedies: []Remedy{
			{"See what the cluster lacks:", "kubectl berg doctor"},
			{"Calculate how many nodes are needed, here for 100 players:", "kubectl berg plan --players 100 -n <NAMESPACE>"},
		},
	},
	bergv1.CauseImageUnavailable: {
		NeedsPerson: true,
		Players:     "The instance cannot start because its image is not available. Tell the organisers.",
		Organisers:  "An image cannot be pulled.",
		Remedies: []Remedy{
			{"Correct the image in spec.containers of the Challenge, or the registry's login, and try it with an instance of your own:", "kubectl berg try <CHALLENGE> -n <NAMESPACE>"},
			{"Then update the instances that exist:", "kubectl berg rollout <CHALLENGE> -n <NAMESPACE>"},
		},
	},
	bergv1.CauseCrashing: {
		NeedsPerson: true,
		Players:     "The instance cannot start because a program in it fails. Tell the organisers.",
		Organisers:  "A program in it keeps exiting.",
		Remedies: []Remedy{
			{"Read what its programs wrote before they exited:", "kubectl berg logs <INSTANCE> --previous -n <NAMESPACE>"},
			{"After you correct the Challenge, update the instances that exist:", "kubectl berg rollout <CHALLENGE> -n <NAMESPACE>"},
		},
	},
	bergv1.CauseRefused: {
		NeedsPerson: true,
		Players:     "The cluster refuses the instance. Tell the organisers.",
		Organisers:  "The cluster refuses one of its objects.",
		Remedies:    []Remedy{{"Check the cluster and the operator:", "kubectl berg doctor"}},
	},
	bergv1.CauseAddressPending: {
		Players:    "The instance has no address yet.",
		Organisers: "It has no address yet.",
		Remedies:   []Remedy{{"Check the Gateway and the nodes:", "kubectl berg doctor"}},
	},
	bergv1.CauseInvalid: {
		NeedsPerson: true,
		Players:     "The challenge has an error. Tell the organisers.",
		Organisers:  "The Challenge has an error.",
		Remedies:    []Remedy{{"After you correct the Challenge, try it with an instance of your own:", "kubectl berg try <CHALLENGE> -n <NAMESPACE>"}},
	},
}

// Explain returns the explanation of a cause. An unknown cause, of a newer operator, is explained as a start in progress.
func Explain(cause bergv1.Cause) Explanation {
	if explanation, known := explanations[cause]; known {
		return explanation
	}
	return explanations[bergv1.CauseNotReadyYet]
}

// PublicCause returns the cause for players of an instance that does not run until a person acts, "" for any other.
func PublicCause(i *bergv1.ChallengeInstance) bergv1.Cause {
	cause := i.Status.Cause
	if problem := FirstProblem(i); cause == "" && problem != nil {
		cause = FindCause(problem.Type, Reason(problem.Reason))
	}
	if cause == "" || !Explain(cause).NeedsPerson {
		return ""
	}
	return cause
}

// Remedies returns the lines of the plugin that help with an instance: first the lines for its cause.
func (r *Row) Remedies() []Remedy {
	all := append(r.CauseRemedies(), r.fill(Remedy{"See what is wrong, and what helps:", "kubectl berg why <INSTANCE> -n <NAMESPACE>"}))
	if r.diagnosis() != bergv1.CauseCrashing {
		all = append(all, r.fill(Remedy{"Read what its programs wrote:", "kubectl berg logs <INSTANCE> -n <NAMESPACE>"}))
	}
	return append(all, r.fill(Remedy{"Give it more time:", "kubectl berg extend 30m <INSTANCE> -n <NAMESPACE>"}),
		r.fill(Remedy{"End it:", "kubectl berg end <INSTANCE> -n <NAMESPACE>"}))
}

// CauseRemedies returns the lines for the cause of an instance alone.
func (r *Row) CauseRemedies() (all []Remedy) {
	for _, remedy := range Explain(r.diagnosis()).Remedies {
		all = append(all, r.fill(remedy))
	}
	return all
}

// fill puts names into a command. They are quoted for a shell, so that a hostile name stays one word.
func (r *Row) fill(remedy Remedy) Remedy {
	fill := strings.NewReplacer("<NAMESPACE>", Quote(r.Namespace), "<INSTANCE>", Quote(r.Name), "<CHALLENGE>", Quote(r.Challenge))
	remedy.Command = fill.Replace(remedy.Command)
	return remedy
}

// Quote returns a word for a shell. Names of Kubernetes stay as they are; a shell takes everything else literally.
func Quote(word string) string {
	for _, c := range word {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '=' {
			return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return word
}
