package report

import (
	"regexp"
	"slices"
	"strings"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/redact"
)

// SecretPlaceholder replaces a text that resembles a secret.
const SecretPlaceholder = "<secret>"

// Redactor removes flags and secrets from texts.
type Redactor struct {
	flags *redact.Set
	// shapes matches texts in the format of a flag, whether or not the flag is known.
	shapes *regexp.Regexp
}

// secretVariables are in the names of variables of Challenges whose values are removed.
var secretVariables = regexp.MustCompile(`(?i)flag|password|passwd|secret|token|credential|api_?key|private`)

// minSecret is the length from which the value of such a variable is removed: a shorter one occurs in ordinary words.
const minSecret = 6

// NewRedactor returns the Redactor for the flags and secrets in Challenges and instances.
func NewRedactor(challenges []bergv1.Challenge, instances []bergv1.ChallengeInstance) *Redactor {
	var known []string
	formats := []string{"flag{", "ctf{"}
	format := func(text string) {
		if prefix, _, found := strings.Cut(text, "{"); found && len(prefix) >= 2 && !slices.Contains(formats, prefix+"{") {
			formats = append(formats, prefix+"{")
		}
	}
	for i := range challenges {
		spec := &challenges[i].Spec
		known = append(known, spec.Flag)
		format(spec.Flag)
		format(spec.FlagFormat)
		for _, c := range spec.Containers {
			for name, value := range c.Environment {
				if text, err := value.Text(); err == nil && len(text) >= minSecret && secretVariables.MatchString(name) {
					known = append(known, text)
				}
			}
		}
	}
	for i := range instances {
		known = append(known, instances[i].Spec.Flag)
		format(instances[i].Spec.Flag)
	}
	slices.SortFunc(formats, func(a, b string) int { return len(b) - len(a) })
	quoted := make([]string, 0, len(formats))
	for _, f := range formats {
		quoted = append(quoted, regexp.QuoteMeta(f))
	}
	return &Redactor{redact.NewSet(known...), regexp.MustCompile(`(?i)(?:` + strings.Join(quoted, "|") + `)[^}\n]*\}?`)}
}

// cutFrom is the length from which a message may have been cut off, within a flag. Kubernetes keeps 1024 characters of one.
const cutFrom = 500

// Text removes known flags, texts in the format of a flag, and texts that resemble a secret. Known flags go first: a later
// pattern might take a part of one.
func (r *Redactor) Text(text string) string {
	if len(text) >= cutFrom && len(text) <= maxMessage {
		text = r.flags.RemoveCut(text)
	} else {
		text = r.flags.Remove(text)
	}
	return Secrets(r.shapes.ReplaceAllString(text, redact.Mark))
}

// maxMessage is the maximum length of a condition's message.
const maxMessage = 32 << 10

// secretPatterns match secrets. The text of the groups stays.
var secretPatterns = []*regexp.Regexp{
	regexp.MustCompile(`()-----BEGIN [A-Z0-9 ]+-----(?s:.*?)(?:-----END [A-Z0-9 ]+-----|\z)`),
	regexp.MustCompile(`()eyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?`),
	regexp.MustCompile(`([a-z][a-z0-9+.-]*://)[^/\s:@"']*:[^/\s@"']+(@)`),
	regexp.MustCompile(`(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}`),
	regexp.MustCompile(`(?i)((?:password|passwd|secret|token|api[-_]?key|credentials?|authorization)\\*["']?\s*[:=]\s*\\*["']?)[^\s"'\\,;&}<]{4,}`),
}

// Secrets removes texts that resemble a secret.
func Secrets(text string) string {
	for _, shape := range secretPatterns {
		text = shape.ReplaceAllString(text, "${1}"+SecretPlaceholder+"${2}")
	}
	return text
}
