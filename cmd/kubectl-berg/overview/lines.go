package overview

import (
	"fmt"
	"strings"
	"time"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/doctor"
)

// How much a line shows.
const (
	// problemsShown is the maximum number of groups of instances, namesShown of names in a line, headroomShown of
	// Challenges in a line.
	problemsShown, namesShown, headroomShown = 5, 3, 3
	gib                                      = 1 << 30
)

// Lines returns the lines of a screen, one line for each subject.
func (o Overview) Lines() []doctor.Result {
	lines := append(o.dangerLines(), o.Operator...)
	if doctor.Worst(o.Operator) != console.OK { // an operator that does not work endangers everything
		lines = append(append([]doctor.Result{}, o.Operator...), o.dangerLines()...)
	}
	lines = append(lines, o.instanceLine())
	if u := o.Use; u != nil {
		text := join(amount{u.Active, "in use"}, amount{u.Idle, "idle"}, amount{u.NeverOpened, "never opened"})
		lines = append(lines, doctor.Result{Check: "use", Level: console.OK, Text: text})
	}
	lines = append(lines, o.problemLines()...)
	lines = append(lines, o.queueLine())
	lines = append(lines, o.capacityLines()...)
	if n := o.NodePorts; n != nil {
		lines = append(lines, doctor.Result{Check: "node ports", Level: console.OK, Text: fmt.Sprintf("%.0f of %.0f left, if the range is the default", n.Total-n.Used, n.Total)})
	}
	if c := o.Challenges; c != nil {
		lines = append(lines, failing("Challenges", join(amount{c.Total, "in total"}, amount{c.Frozen, "frozen"}), c.NotAccepted, "cannot run", "Fix what the messages name."))
	}
	lines = append(lines, o.Prepared...)
	if c := o.Checks; c != nil && (c.Enabled || c.Total > 0) {
		text := join(amount{c.Solvable, "solvable"}, amount{c.Unknown, "not known"}, amount{c.Running, "running now"})
		if !c.Enabled {
			text += "; the operator makes none: CHECK_CONCURRENCY is 0"
		}
		lines = append(lines, failing("checks", text, c.Failed, "not solvable", "For the details: kubectl describe challengechecks.berg.norelect.ch -A"))
	}
	if p := o.Prepull; p != nil && (p.Enabled || len(p.Failed) > 0) {
		lines = append(lines, failing("images", join(amount{p.Pulled, "Challenges pulled"}, amount{p.Pulling, "being pulled"}, amount{p.Scheduled, "to be pulled later"}), p.Failed, "not pulled", "docs/berg/images.md explains the messages."))
	}
	if r := o.Records; r != nil && (r.Enabled || r.Total > 0) {
		text := fmt.Sprintf("%d in %s", r.Total, r.Namespace)
		if r.Latest != nil {
			text += fmt.Sprintf(", the latest %s ago", console.Duration(o.At.Sub(r.Latest.Time)))
		}
		lines = append(lines, doctor.Result{Check: "records", Level: console.OK, Text: text})
	}
	if len(o.Unreadable) > 0 {
		lines = append(lines, doctor.Result{Check: "not shown", Level: console.Unknown, Text: strings.Join(o.Unreadable, "; ")})
	}
	for i := range lines {
		lines[i].Text, lines[i].Do = console.OneLine(lines[i].Text), console.OneLine(lines[i].Do)
	}
	return lines
}

// dangerLines returns what endangers the event, a line with the checks that found nothing, and a line with those that could not
// look.
func (o Overview) dangerLines() (lines []doctor.Result) {
	var fine, unseen []string
	for _, d := range o.Dangers {
		switch d.Level {
		case console.OK:
			fine = append(fine, d.Check)
		case console.Unknown:
			unseen = append(unseen, d.Check)
		case console.Waiting, console.Warning, console.Problem:
			lines = append(lines, d)
		}
	}
	if len(unseen) > 0 {
		lines = append(lines, doctor.Result{Check: "not looked at", Level: console.Unknown, Text: strings.Join(unseen, ", "), Do: "kubectl berg doctor says why, and looks with the rights of an administrator."})
	}
	if len(fine) > 0 {
		lines = append(lines, doctor.Result{Check: "looked at", Level: console.OK, Text: strings.Join(fine, ", ")})
	}
	return lines
}

// amount is a number with its unit.
type amount struct {
	n     int
	label string
}

// join joins amounts, without zeros but the first.
func join(all ...amount) string {
	var parts []string
	for i, a := range all {
		if a.n > 0 || i == 0 {
			parts = append(parts, fmt.Sprintf("%d %s", a.n, a.label))
		}
	}
	return strings.Join(parts, ", ")
}

// instanceLine leaves out phases without an instance. Prepared instances are not in the total.
func (o Overview) instanceLine() doctor.Result {
	i := o.Instances
	prepared := ""
	if i.Prepared > 0 {
		prepared = fmt.Sprintf("; %d prepared, without a player", i.Prepared)
	}
	if i.Total == 0 {
		return doctor.Result{Check: "instances", Level: console.OK, Text: "none" + prepared}
	}
	var phases []string
	for _, phase := range bergv1.Phases {
		if n := i.ByPhase[phase]; n > 0 {
			phases = append(phases, fmt.Sprintf("%d %s", n, phase))
		}
	}
	text := fmt.Sprintf("%d in %d namespaces: %s", i.Total, i.Namespaces, strings.Join(phases, ", "))
	if i.Namespaces == 1 {
		text = fmt.Sprintf("%d: %s", i.Total, strings.Join(phases, ", "))
	}
	for _, extra := range []amount{{i.EndSoon, "end within 15 minutes"}, {i.Frozen, "are frozen"}, {i.Outdated, "run an earlier version"}} {
		if extra.n > 0 {
			text += fmt.Sprintf("; %d %s", extra.n, extra.label)
		}
	}
	return doctor.Result{Check: "instances", Level: console.OK, Text: text + prepared}
}

// problemLines shows the largest groups, and sums up the rest in one line.
func (o Overview) problemLines() (lines []doctor.Result) {
	for n, p := range o.Problems {
		if n == problemsShown {
			hidden := 0
			for _, rest := range o.Problems[n:] {
				hidden += len(rest.Instances)
			}
			return append(lines, doctor.Result{
				Check: "more", Level: console.Problem,
				Text: fmt.Sprintf("%d instances with %d other problems", hidden, len(o.Problems)-n), Do: "List them: kubectl berg why --all -A",
			})
		}
		names := strings.Join(p.Instances[:min(len(p.Instances), namesShown)], ", ")
		if hidden := len(p.Instances) - namesShown; hidden > 0 {
			names += fmt.Sprintf(" and %d more", hidden)
		}
		check := string(p.Cause)
		if check == "" {
			check = p.Reason
		}
		if check == "" {
			check = "problem"
		}
		lines = append(lines, doctor.Result{Check: check, Level: console.Problem, Text: fmt.Sprintf("%d: %s %s", len(p.Instances), p.Sentence, names), Do: p.Do})
	}
	return lines
}

// queueLine is a warning only where a limit of the operator keeps instances waiting: the other causes end by themselves.
func (o Overview) queueLine() doctor.Result {
	q := o.Queue
	line := doctor.Result{Check: "queue", Level: console.OK, Text: "empty"}
	var parts []string
	if n := q.ByCause[bergv1.CauseQueued]; n > 0 {
		line.Level = console.Warning
		text := fmt.Sprintf("%d wait", n)
		if q.FirstSeconds != nil {
			text += fmt.Sprintf(", the first for %s", console.Duration(time.Duration(*q.FirstSeconds)*time.Second))
		}
		var limits []string
		for n, l := range q.Limits {
			if n == namesShown {
				limits = append(limits, fmt.Sprintf("%d other limits", len(q.Limits)-n))
				break
			}
			limits = append(limits, fmt.Sprintf("%d: %s", l.Instances, l.Message))
		}
		if len(limits) > 0 {
			text += " (" + strings.Join(limits, "; ") + ")"
		}
		parts, line.Do = append(parts, text), "They start when others end. To start more now, raise the limit."
	}
	if n := q.ByCause[bergv1.CauseOwnerBusy]; n > 0 {
		parts = append(parts, fmt.Sprintf("%d wait for the end of an earlier instance of their owner", n))
	}
	if n := q.ByCause[bergv1.CauseFrozen]; n > 0 {
		parts = append(parts, fmt.Sprintf("%d wait for the end of a freeze", n))
	}
	if len(parts) > 0 {
		line.Text = strings.Join(parts, "; ")
	}
	return line
}

// capacityLines shows the Challenges with the least headroom. Each number is for that Challenge alone: they share the nodes.
func (o Overview) capacityLines() []doctor.Result {
	c := o.Capacity
	if c == nil {
		return nil
	}
	text := fmt.Sprintf("%d of %d take instances; reserved: %.0f of %.0f pods, %.1f of %.1f CPUs, %.1f of %.1f GiB memory", c.Ready, c.Nodes,
		c.Pods.Used, c.Pods.Total, c.CPU.Used, c.CPU.Total, c.Memory.Used/gib, c.Memory.Total/gib)
	nodes := doctor.Result{Check: "nodes", Level: console.OK, Text: text}
	if c.Ready == 0 {
		nodes.Level, nodes.Do = console.Problem, "For the reason: kubectl describe nodes"
	}
	lines := []doctor.Result{nodes}
	if len(c.Headroom) == 0 {
		return lines
	}
	var parts []string
	for _, r := range c.Headroom[:min(len(c.Headroom), headroomShown)] {
		if r.By == "" {
			parts = append(parts, fmt.Sprintf("%d or more of %s/%s", r.Most, r.Namespace, r.Challenge))
			break // the others have more
		}
		parts = append(parts, fmt.Sprintf("%d of %s/%s (%s)", r.Most, r.Namespace, r.Challenge, r.By))
	}
	line := doctor.Result{Check: "headroom", Level: console.OK, Text: "for either " + strings.Join(parts, ", or ")}
	if len(parts) == 1 {
		line.Text = "for " + parts[0]
	}
	if c.Headroom[0].Most == 0 {
		line.Level, line.Do = console.Warning, "Further instances wait. Raise the limit in brackets: for nodes, see kubectl berg plan."
	}
	return append(lines, line)
}

// failing returns a line about objects; failed are the failed ones, which may be none.
func failing(check, text string, failed []Named, verb, do string) doctor.Result {
	line := doctor.Result{Check: check, Level: console.OK, Text: text}
	if len(failed) == 0 {
		return line
	}
	line.Level, line.Do = console.Problem, do
	line.Text += fmt.Sprintf("; %d %s:", len(failed), verb)
	for n, f := range failed {
		if n == namesShown {
			line.Text += fmt.Sprintf(" and %d more", len(failed)-n)
			break
		}
		line.Text += fmt.Sprintf(" %s/%s (%s)", f.Namespace, f.Name, f.Message)
	}
	return line
}
