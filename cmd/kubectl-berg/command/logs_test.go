package command

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/utils/clock"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

// fastClock is a clock on which waits take a hundredth of the time.
type fastClock struct{ clock.RealClock }

func (fastClock) After(d time.Duration) <-chan time.Time { return time.After(d / 100) }

// podLogs is an API server with one instance. Each request for the log of a pod gets its next answer.
// When all answers are used, the instance is gone.
type podLogs struct {
	mu      sync.Mutex
	answers map[string][]func(http.ResponseWriter)
	asked   map[string][]url.Values
	lists   []func(http.ResponseWriter)
}

func replyWith(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

func refuse(code int, reason metav1.StatusReason) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		replyWith(w, code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: reason, Code: int32(code), Message: string(reason)})
	}
}

// podsNamed answers with pods that have the names of their containers.
func podsNamed(names ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		all := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
		for _, name := range names {
			all.Items = append(all.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "challenge-o", Name: name, UID: types.UID(name),
				Labels: map[string]string{bergv1.LabelComponent: bergv1.ComponentPod, bergv1.LabelContainer: name},
			}})
		}
		replyWith(w, http.StatusOK, all)
	}
}

// writing answers with lines. The last digit of a line is its second. A broken stream ends within a line.
func writing(broken bool, lines ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		for _, text := range lines {
			_, _ = fmt.Fprintf(w, "2030-06-01T12:00:0%sZ %s\n", text[len(text)-1:], text)
		}
		if broken {
			_, _ = fmt.Fprint(w, "2030-06-01T12:0")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}
}

func (p *podLogs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	reply := refuse(http.StatusNotFound, metav1.StatusReasonNotFound)
	switch name := path.Base(path.Dir(r.URL.Path)); {
	case strings.HasSuffix(r.URL.Path, "/pods"):
		reply = p.lists[0]
		p.lists = p.lists[min(1, len(p.lists)-1):]
	case strings.HasSuffix(r.URL.Path, "/log"):
		p.asked[name] = append(p.asked[name], r.URL.Query())
		if all := p.answers[name]; len(all) > 0 {
			reply, p.answers[name] = all[0], all[1:]
			if len(all) == 1 {
				delete(p.answers, name)
			}
		}
	case len(p.answers) > 0:
		reply = func(w http.ResponseWriter) { replyWith(w, http.StatusOK, theInstance()) }
	}
	p.mu.Unlock()
	reply(w)
}

func theInstance() *bergv1.ChallengeInstance {
	i := &bergv1.ChallengeInstance{
		TypeMeta:   metav1.TypeMeta{Kind: "ChallengeInstance", APIVersion: bergv1.GroupVersion.String()},
		ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: "alice", UID: "1"},
	}
	i.Status.Namespace = "challenge-o"
	return i
}

// connected returns the program on a fast clock, connected to a server, and its output.
func connected(t *testing.T, to http.Handler) (*root, *cluster.Cluster, *bytes.Buffer) {
	t.Helper()
	server := httptest.NewServer(to)
	t.Cleanup(server.Close)
	t.Setenv("KUBECONFIG", path.Join(t.TempDir(), "none"))
	flags := genericclioptions.NewConfigFlags(false)
	flags.APIServer = &server.URL
	var out bytes.Buffer
	r := &root{Console: console.New(nil, &out, &out, func(string) string { return "" }), flags: flags, clock: fastClock{}}
	c, err := r.open()
	if err != nil {
		t.Fatal(err)
	}
	return r, c, &out
}

// followed returns the output of logs -f.
func followed(t *testing.T, p *podLogs, o logOptions) (string, error) {
	t.Helper()
	p.asked = map[string][]url.Values{}
	r, c, out := connected(t, p)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	o.follow = true
	err := r.showLogs(ctx, c, theInstance(), o)
	if ctx.Err() != nil {
		t.Fatal("logs -f does not end although the instance is gone")
	}
	return out.String(), err
}

func TestFollowedLogsResumeAfterABrokenStream(t *testing.T) {
	p := &podLogs{
		lists: []func(http.ResponseWriter){podsNamed("web")},
		answers: map[string][]func(http.ResponseWriter){"web": {
			refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest), // the container does not run yet
			writing(true, "one 1", "also 1", "two 2", "also 2"),
			writing(false, "two 2", "also 2", "third 2", "three 3"),
			writing(false, "four 4"),
		}},
	}
	got, err := followed(t, p, logOptions{tail: 10})
	if want := "one 1\nalso 1\ntwo 2\nalso 2\nthird 2\nthree 3\nfour 4\n"; got != want || err != nil {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := p.asked["web"]
	if asked[1].Get("tailLines") != "10" || asked[2].Get("tailLines") != "" || asked[2].Get("sinceTime") != "2030-06-01T12:00:02Z" || asked[3].Get("sinceTime") != "2030-06-01T12:00:03Z" {
		t.Errorf("%v", asked)
	}
}

func TestFollowedLogsOfALaterPod(t *testing.T) {
	read := make(chan struct{})
	p := &podLogs{
		lists: []func(http.ResponseWriter){podsNamed("web"), refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable), podsNamed("web", "db")},
		answers: map[string][]func(http.ResponseWriter){
			"web": {func(w http.ResponseWriter) { // silent until the other log was read
				_ = http.NewResponseController(w).Flush()
				<-read
				writing(false, "web 1")(w)
			}},
			"db": {func(w http.ResponseWriter) { writing(false, "db 1")(w); close(read) }, writing(false)},
		},
	}
	got, err := followed(t, p, logOptions{tail: -1})
	if err != nil || !strings.Contains(got, "db │ db 1\n") || !strings.Contains(got, "web 1\n") {
		t.Errorf("%v\n%s", err, got)
	}
	for _, words := range []string{"no connection, retrying", "connected again"} {
		if strings.Count(got, words) != 1 {
			t.Errorf("%q is not reported exactly once:\n%s", words, got)
		}
	}
}

func TestLinesAreBounded(t *testing.T) {
	long := strings.Repeat("x", 3*maxLine)
	for name, tc := range map[string]struct {
		stream string
		want   []string
		err    error
	}{
		"short":           {"a\nb\n", []string{"a\n", "b\n", ""}, io.EOF},
		"without an end":  {"a\nb", []string{"a\n", "b"}, io.EOF},
		"long":            {long + "\nb\n", []string{long[:maxLine] + truncatedSuffix + "\n", "b\n", ""}, io.EOF},
		"long, no end":    {long, []string{long[:maxLine] + truncatedSuffix + "\n"}, io.EOF},
		"a cut character": {strings.Repeat("x", maxLine-1) + "\u00e4\n", []string{strings.Repeat("x", maxLine-1) + truncatedSuffix + "\n", ""}, io.EOF},
	} {
		lines := bufio.NewReaderSize(strings.NewReader(tc.stream), maxLine)
		for i, want := range tc.want {
			got, err := readLine(lines)
			last := i == len(tc.want)-1
			if got != want || last != errors.Is(err, tc.err) {
				t.Errorf("%s: line %d: %d bytes, %v; want %d bytes", name, i, len(got), err, len(want))
			}
		}
	}
}

func TestForbiddenLogs(t *testing.T) {
	p := &podLogs{
		lists:   []func(http.ResponseWriter){podsNamed("web")},
		answers: map[string][]func(http.ResponseWriter){"web": {refuse(http.StatusForbidden, metav1.StatusReasonForbidden)}, "never asked": {writing(false)}},
	}
	if got, err := followed(t, p, logOptions{tail: -1}); console.Code(err) != console.ExitForbidden {
		t.Errorf("exit code %d, want %d: %v\n%s", console.Code(err), console.ExitForbidden, err, got)
	}
}
