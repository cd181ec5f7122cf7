package sealed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Changes names what is different in two Privates, for example "environment COLOUR" or "command". It repeats no value.
func Changes(was, now Private) (out []string) {
	names := map[string]bool{}
	for name := range was.Environment {
		names[name] = true
	}
	for name := range now.Environment {
		names[name] = true
	}
	for name := range names {
		a, had := was.Environment[name]
		b, has := now.Environment[name]
		textA, _ := a.Text()
		textB, _ := b.Text()
		if had != has || textA != textB {
			out = append(out, variablePrefix+name)
		}
	}
	slices.Sort(out)
	add := func(what string, a, b any) {
		if !Same(a, b) {
			out = append(out, what)
		}
	}
	add("readinessProbe", was.ReadinessProbe, now.ReadinessProbe)
	add("livenessProbe", was.LivenessProbe, now.LivenessProbe)
	if !slices.Equal(was.Command, now.Command) {
		out = append(out, "command")
	}
	if !slices.Equal(was.Args, now.Args) {
		out = append(out, "args")
	}
	return out
}

// Same reports whether two values are the same in JSON.
func Same(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// The condition UpToDate tells what has changed of what a snapshot does not show, so that a preview of a rollout can name
// it: "Changed and not shown: web (environment COLOUR, command), db (args)".
const (
	noteBegins = ". Changed and not shown: "
	// maxNames and maxName bound what a note says of a container, and maxNote all of it: a message has 2048 bytes.
	maxNames, maxName, maxNote = 5, 64, 1536

	variablePrefix = "environment "
)

var (
	plainName = regexp.MustCompile("^" + variablePrefix + "[-._a-zA-Z0-9]+$")
	noted     = regexp.MustCompile(`([a-z][-a-z0-9]*) \(([^()]*)\)(?:, |$)`)
)

// Changed is what has changed of one container.
type Changed struct {
	Hostname string
	What     []string
}

// Note returns the text of changes, to be put at the end of a message; "" if there are none. Of many variables, and of those
// with an unusual name, it tells no names, and of very many changes their number alone.
func Note(all []Changed) string {
	text := noteOf(all, named)
	if len(text) > maxNote {
		text = noteOf(all, func(what []string) string { return fmt.Sprintf("%d changes", len(what)) })
	}
	return text
}

func noteOf(all []Changed, tell func(what []string) string) string {
	var parts []string
	for _, c := range all {
		if len(c.What) > 0 {
			parts = append(parts, fmt.Sprintf("%s (%s)", c.Hostname, tell(c.What)))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return noteBegins + strings.Join(parts, ", ")
}

// named names the changes of a container.
func named(what []string) string {
	var parts []string
	more := 0
	for _, w := range what {
		variable := strings.HasPrefix(w, variablePrefix)
		if variable && (len(parts) >= maxNames || len(w) > maxName || !plainName.MatchString(w)) {
			more++
			continue
		}
		parts = append(parts, w)
	}
	switch {
	case more == 1:
		parts = append(parts, "1 more variable")
	case more > 1:
		parts = append(parts, fmt.Sprintf("%d more variables", more))
	}
	return strings.Join(parts, ", ")
}

// Noted returns the changes in a message, by hostname.
func Noted(message string) map[string][]string {
	_, note, ok := strings.Cut(message, noteBegins)
	if !ok {
		return nil
	}
	out := map[string][]string{}
	for _, m := range noted.FindAllStringSubmatch(note, -1) {
		out[m[1]] = strings.Split(m[2], ", ")
	}
	return out
}
