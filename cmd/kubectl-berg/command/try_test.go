package command

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

func TestChallengeNameForms(t *testing.T) {
	for text, want := range map[string][2]string{
		"guestbook":                             {"", "guestbook"},
		"berg/guestbook":                        {"berg", "guestbook"},
		"challenge/guestbook":                   {"", "guestbook"},
		"challenges/guestbook":                  {"", "guestbook"},
		"challenges.berg.norelect.ch/guestbook": {"", "guestbook"},
		"challenge/berg/guestbook":              {"berg", "guestbook"},
	} {
		if namespace, name := splitChallenge(text); namespace != want[0] || name != want[1] {
			t.Errorf("%s: %q and %q, want %q", text, namespace, name, want)
		}
	}
	s := selection{challenge: "challenge/guestbook"}
	if err := s.check(nil, true); err != nil || s.challenge != "guestbook" {
		t.Errorf("%q, %v", s.challenge, err)
	}
}

// silentServer creates what it is asked to create, and never answers.
type silentServer struct {
	t     *testing.T
	ended atomic.Bool
}

func (a *silentServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/challenges/guestbook"):
		replyWith(w, http.StatusOK, &bergv1.Challenge{
			TypeMeta:   metav1.TypeMeta{Kind: "Challenge", APIVersion: bergv1.GroupVersion.String()},
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "guestbook"},
		})
	case r.Method == http.MethodPost:
		panic(http.ErrAbortHandler)
	case r.Method == http.MethodGet:
		a.ended.Store(true) // it looks for the instance, to delete it
		refuse(http.StatusNotFound, metav1.StatusReasonNotFound)(w)
	default:
		a.t.Errorf("%s %s", r.Method, r.URL)
	}
}

func TestTryDeletesAnInstanceOfUnknownFate(t *testing.T) {
	server := &silentServer{t: t}
	r, c, out := connected(t, server)
	err := r.tryOne(t.Context(), c, "challenge/guestbook", tryOptions{once: true, timeout: time.Minute, wait: time.Second})
	if got := console.Code(err); got != console.ExitUnreachable {
		t.Errorf("exit code %d, want %d: %v\n%s", got, console.ExitUnreachable, err, out)
	}
	if !server.ended.Load() {
		t.Errorf("the command did not look for the instance:\n%s", out)
	}
}
