package why

import (
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/kit/refusal"
)

// explain returns the explanation of a failed step, and a remedy.
func explain(c *metav1.Condition) (level console.Level, sentence, do string) {
	advice, known := view.Advise(view.Reason(c.Reason))
	if !known {
		advice = view.Advice{Sentence: "The step {STEP} failed: " + c.Reason + ".", Do: "Read the message. The operator retries."}
	}
	level = console.Problem
	if known && !view.Explain(advice.Cause).NeedsPerson {
		level = console.Waiting
	}
	if meaning, found := refusal.Explain(c.Message); found && (c.Reason == bergv1.ReasonRefused || c.Reason == bergv1.ReasonWriteFailed) {
		advice.Sentence, advice.Do = "The {OBJECT} cannot be written: "+meaning.Text+".", meaning.Do+" The operator retries."
	}
	words := Words(c.Type)
	object := strings.Join(words[:max(1, len(words)-1)], " ")
	return level, strings.NewReplacer("{STEP}", strings.Join(words, " "), "{OBJECT}", object).Replace(advice.Sentence), advice.Do
}

// Words returns the words in the name of a condition, as in "network policy created".
func Words(name string) []string {
	var text strings.Builder
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) {
			text.WriteByte(' ')
		}
		text.WriteRune(unicode.ToLower(r))
	}
	return strings.Fields(text.String())
}
