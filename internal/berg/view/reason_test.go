package view

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func TestEveryCauseHasARow(t *testing.T) {
	for _, cause := range bergv1.Causes {
		row, known := explanations[cause]
		if !known || row.Players == "" || row.Organisers == "" {
			t.Errorf("%s has no sentences: %+v", cause, row)
		}
		if cause != bergv1.CauseNotReadyYet && len(row.Remedies) == 0 {
			t.Errorf("%s has no remedy of its own", cause)
		}
	}
	if len(explanations) != len(bergv1.Causes) {
		t.Errorf("%d rows for %d causes", len(explanations), len(bergv1.Causes))
	}
	if got := Explain("OfANewerOperator"); got.Players != explanations[bergv1.CauseNotReadyYet].Players {
		t.Errorf("an unknown cause: %+v", got)
	}
}

// Each start is "not ready yet" for a moment: a cause on its routes would cost a write.
func TestOnlyACauseThatNeedsAPersonIsPublic(t *testing.T) {
	for name, tc := range map[string]struct {
		cause        bergv1.Cause
		kind, reason string
		want         bergv1.Cause
	}{
		"starting":               {cause: bergv1.CauseNotReadyYet},
		"waiting":                {cause: bergv1.CauseQueued},
		"an image is missing":    {cause: bergv1.CauseImageUnavailable, want: bergv1.CauseImageUnavailable},
		"running":                {},
		"running, and crashed":   {kind: bergv1.ConditionHealthy, reason: "CrashLoopBackOff", want: bergv1.CauseCrashing},
		"running, and not ready": {kind: bergv1.ConditionHealthy, reason: bergv1.ReasonPodsNotReady},
	} {
		i := &bergv1.ChallengeInstance{}
		i.Status.Cause = tc.cause
		if tc.kind != "" {
			i.Status.Conditions = []metav1.Condition{{Type: tc.kind, Status: metav1.ConditionFalse, Reason: tc.reason}}
		}
		if got := PublicCause(i); got != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// apiReasons returns the reasons of conditions and events of ChallengeInstances, as the API declares them.
func apiReasons(t *testing.T) (all []Reason) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../../api/berg/v1/challengeinstance_types.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Reason") || len(spec.Values) == 0 {
			return true
		}
		if literal, ok := spec.Values[0].(*ast.BasicLit); ok {
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, Reason(text))
		}
		return true
	})
	return all
}

func TestEveryReasonHasARow(t *testing.T) {
	all := apiReasons(t)
	if len(all) < 40 {
		t.Fatalf("only %d reasons were found", len(all))
	}
	pods := []Reason{bergv1.ReasonStartDeadline, bergv1.ReasonPodsNotReady, bergv1.ReasonStarting, bergv1.ReasonCreating} // the pods say more
	placeholder := regexp.MustCompile(`\{[A-Z]+\}`)
	known := []string{"{STEP}", "{OBJECT}", "{NAME}", "{NAMESPACE}", "{CHALLENGE}", "{OBJECTS}", "{UID}"}
	for _, reason := range all {
		row, listed := reasons[reason]
		if !listed {
			t.Errorf("%s has no row: which cause is it, and what helps?", reason)
		}
		if row.Cause != "" && !slices.Contains(pods, reason) && (row.Sentence == "" || row.Do == "") {
			t.Errorf("%s has a cause and no sentences: %+v", reason, row)
		}
	}
	for reason, row := range reasons {
		if row.Cause != "" && !slices.Contains(bergv1.Causes, row.Cause) {
			t.Errorf("%s leads to %s, which the schema refuses", reason, row.Cause)
		}
		for _, found := range placeholder.FindAllString(row.Sentence+row.Do, -1) {
			if !slices.Contains(known, found) {
				t.Errorf("%s: nothing replaces %s", reason, found)
			}
		}
	}
}

func TestFindCause(t *testing.T) {
	for _, tc := range []struct {
		condition string
		reason    Reason
		want      bergv1.Cause
	}{
		{bergv1.ConditionChallengeFound, bergv1.ReasonNamespaceNotAllowed, bergv1.CauseInvalid},
		{bergv1.ConditionRoutesCreated, bergv1.ReasonAPINotInstalled, bergv1.CauseAddressPending},
		{bergv1.ConditionNetworkPolicyCreated, bergv1.ReasonAPINotInstalled, bergv1.CauseRefused},
		{bergv1.ConditionServicesCreated, bergv1.ReasonWriteFailed, bergv1.CauseAddressPending},
		{bergv1.ConditionServicesCreated, "", bergv1.CauseAddressPending},
		{bergv1.ConditionServicesCreated, bergv1.ReasonRefused, bergv1.CauseRefused},
		{bergv1.ConditionPodsReady, "OutOfcpu", bergv1.CauseNoCapacity},
		{bergv1.ConditionPodsReady, "Novelty", bergv1.CauseNotReadyYet},
		{bergv1.ConditionPodsReady, "", bergv1.CauseNotReadyYet},
		{bergv1.ConditionPodsReady, "ErrImagePull", bergv1.CauseImageUnavailable},
	} {
		if got := FindCause(tc.condition, tc.reason); got != tc.want {
			t.Errorf("%s, %s: %s, want %s", tc.condition, tc.reason, got, tc.want)
		}
	}
	if !CannotPull("ImagePullBackOff") || CannotPull("CrashLoopBackOff") || CannotPull("") {
		t.Error("what cannot be pulled is not known")
	}
}

// A row says the same of a problem wherever it is shown.
func TestRows(t *testing.T) {
	instance := func(phase bergv1.Phase, cause bergv1.Cause, c ...metav1.Condition) *bergv1.ChallengeInstance {
		return &bergv1.ChallengeInstance{Status: bergv1.ChallengeInstanceStatus{Phase: phase, Cause: cause, Conditions: c}}
	}
	failed := func(kind, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	deleted := instance(bergv1.PhaseTerminating, "", failed(bergv1.ConditionNamespaceDeleted, bergv1.ReasonTerminating, ""))
	deleted.DeletionTimestamp = &metav1.Time{}
	stuck := instance(bergv1.PhaseTerminating, "", failed(bergv1.ConditionNamespaceDeleted, bergv1.ReasonDeletionBlocked, "a finalizer"))
	stuck.DeletionTimestamp = &metav1.Time{}
	withdrawn := instance(bergv1.PhaseRunning, "", failed(bergv1.ConditionChallengeFound, bergv1.ReasonChallengeMissing, "gone"))
	withdrawn.Status.InstanceID = "id"
	for name, tc := range map[string]struct {
		i           *bergv1.ChallengeInstance
		state       State
		needsPerson bool
		sentence    string
	}{
		"new":           {instance("", ""), Starting, false, "It is starting."},
		"runs":          {instance(bergv1.PhaseRunning, ""), Running, false, ""},
		"withdrawn":     {withdrawn, Running, false, ""},
		"queued":        {instance(bergv1.PhasePending, bergv1.CauseQueued, failed(bergv1.ConditionAdmitted, bergv1.ReasonQueued, "Queued: full")), Waiting, false, "It is in the queue. Queued: full"},
		"no capacity":   {instance(bergv1.PhaseStarting, bergv1.CauseNoCapacity), Waiting, true, "No node has enough free resources for its pods."},
		"crashes":       {instance(bergv1.PhaseStarting, bergv1.CauseCrashing, failed(bergv1.ConditionPodsReady, "CrashLoopBackOff", "exit code 1")), Starting, true, "A program in it keeps exiting. exit code 1"},
		"failed":        {instance(bergv1.PhaseFailed, bergv1.CauseAddressPending), Failed, true, "It has no address yet."},
		"runs, crashes": {instance(bergv1.PhaseRunning, "", failed(bergv1.ConditionHealthy, "CrashLoopBackOff", "exit code 1")), Running, true, "A program in it keeps exiting. exit code 1"},
		"runs, is silent": {
			instance(bergv1.PhaseRunning, "", failed(bergv1.ConditionHealthy, bergv1.ReasonPodsNotReady, "Not ready: web")), Running, true,
			"It was ready, and is not ready now. Not ready: web",
		},
		"is deleted": {deleted, Ending, false, ""},
		"is stuck":   {stuck, Ending, true, "The cluster refuses one of its objects. a finalizer"},
	} {
		r := NewRow(tc.i)
		if r.State != tc.state || r.NeedsPerson != tc.needsPerson || r.Sentence != tc.sentence {
			t.Errorf("%s: %s, needs a person %t: %q", name, r.State, r.NeedsPerson, r.Sentence)
		}
	}
}

func TestRemediesAreCommands(t *testing.T) {
	for _, cause := range bergv1.Causes {
		r := &Row{Namespace: "berg", Name: "one", Challenge: "web", State: Starting, Cause: cause}
		commands := map[string]bool{}
		for _, remedy := range r.Remedies() {
			if commands[remedy.Command] || remedy.Text == "" || strings.ContainsAny(remedy.Command, "<>") || !strings.HasPrefix(remedy.Command, "kubectl berg ") {
				t.Errorf("%s: %q, %q", cause, remedy.Text, remedy.Command)
			}
			commands[remedy.Command] = true
		}
		if !commands["kubectl berg why one -n berg"] || !commands["kubectl berg end one -n berg"] {
			t.Errorf("%s lacks a line that helps with every instance", cause)
		}
	}
	for word, want := range map[string]string{"web-1.x": "web-1.x", "": "", "a b": "'a b'", "it's": `'it'\''s'`, "$(x)": "'$(x)'", "-n": "-n"} {
		if got := Quote(word); got != want {
			t.Errorf("%q becomes %q", word, got)
		}
	}
}
