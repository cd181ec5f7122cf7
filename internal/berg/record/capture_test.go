package record

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// kubelet answers requests for logs over HTTP as a node's does, by way of the API server.
type kubelet struct {
	// lines of the log of the run, and of the one before it, which may be nil.
	lines, before []string
	// forbids is how often it does not know the right yet.
	forbids atomic.Int64
	// moves is how often it has just put the log aside.
	moves atomic.Int64
	// asked counts requests, sent the bytes of their answers.
	asked, sent atomic.Int64
	hangs       bool
}

func (s *kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked.Add(1)
	refuse := func(code int, reason string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":"not this one"}`, code, reason)
	}
	if s.hangs {
		<-r.Context().Done()
		return
	}
	if s.forbids.Add(-1) >= 0 {
		refuse(http.StatusForbidden, "Forbidden")
		return
	}
	if s.moves.Add(-1) >= 0 {
		refuse(http.StatusBadRequest, "BadRequest")
		return
	}
	lines := s.lines
	if r.URL.Query().Get("previous") == "true" {
		lines = s.before
	}
	if lines == nil {
		refuse(http.StatusBadRequest, "BadRequest")
		return
	}
	if r.URL.Path != "/api/v1/namespaces/challenge-1/pods/web-1/log" || r.URL.Query().Get("container") != "web" {
		refuse(http.StatusNotFound, "NotFound")
		return
	}
	tailLines, err := strconv.Atoi(r.URL.Query().Get("tailLines"))
	if err != nil {
		refuse(http.StatusBadRequest, "BadRequest")
		return
	}
	for _, line := range lines[max(0, len(lines)-tailLines):] {
		n, err := fmt.Fprint(w, line)
		s.sent.Add(int64(n))
		if err != nil {
			return
		}
	}
}

// reads returns what a Keeper reads from it.
func (s *kubelet) reads(t *testing.T, limit int, again bool) Log {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.CloseClientConnections)
	t.Cleanup(server.Close)
	logs, err := clientcorev1.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	return (&Recorder{Logs: logs}).readLog(ctx, "challenge-1", wantedLog{LogKey{"web-1", "web"}, again}, limit)
}

func repeated(line string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = line
	}
	return all
}

func TestReadLog(t *testing.T) {
	const limit = MaxLog
	chunk := strings.Repeat("x", 16<<10) // as a runtime breaks a line without an end
	for name, tc := range map[string]struct {
		lines, before []string
		again         bool
		asked         int64
		size          int
		cut           bool
		end           string
	}{
		"nothing":                        {[]string{}, nil, false, 1, 0, false, ""},
		"a few lines":                    {[]string{"one\n", "two\n"}, nil, false, 1, 8, false, "one\ntwo\n"},
		"many short lines":               {append(repeated("0123456789\n", 1_000_000), "end\n"), nil, false, 1, manyLines*11 - 7, true, "0123456789\nend\n"},
		"many lines":                     {append(repeated(strings.Repeat("y", 99)+"\n", 100_000), "end\n"), nil, false, 1, limit, true, "y\nend\n"},
		"lines of 300":                   {append(repeated(strings.Repeat("y", 299)+"\n", 100_000), "end\n"), nil, false, 2, limit, true, "y\nend\n"},
		"lines of 1,000":                 {append(repeated(strings.Repeat("y", 999)+"\n", 50_000), "end\n"), nil, false, 2, limit, true, "y\nend\n"},
		"lines of 3,000":                 {append(repeated(strings.Repeat("y", 2999)+"\n", 10_000), "end\n"), nil, false, 3, limit, true, "y\nend\n"},
		"a gigabyte":                     {append(repeated(chunk, 1<<16), "end\n"), nil, false, 3, limit, true, "xxend\n"},
		"a whole log":                    {repeated("0123456\n", manyLines-1), nil, false, 1, 8 * (manyLines - 1), false, "\n"},
		"as many lines as are asked for": {repeated("0123456\n", manyLines), nil, false, 1, 8 * manyLines, true, "\n"},
		"a run before":                   {[]string{"two\n"}, []string{"one\n"}, true, 2, 4, false, "two\n"},
		"a run before, which the node has not kept": {[]string{"two\n"}, nil, true, 2, 4, false, "two\n"},
		"a run before, shorter than its share":      {repeated(strings.Repeat("z", 99)+"\n", 2000), []string{"one\n"}, true, 2, limit - 4, true, "z\n"},
	} {
		s := &kubelet{lines: tc.lines, before: tc.before}
		got := s.reads(t, limit, tc.again)
		if got.Missing != "" || len(got.Raw) != tc.size || got.Cut != tc.cut || !bytes.HasSuffix(got.Raw, []byte(tc.end)) || s.asked.Load() != tc.asked {
			t.Errorf("%s: %d bytes, cut %t, missing %q, after %d requests", name, len(got.Raw), got.Cut, got.Missing, s.asked.Load())
		}
		if want := strings.Join(tc.before, ""); tc.again && string(got.Before) != want {
			t.Errorf("%s: %q before, want %q", name, got.Before, want)
		}
		// What the connection has buffered by itself is little compared with the log.
		if sent := s.sent.Load(); sent > 32<<20 {
			t.Errorf("%s: %d bytes were sent", name, sent)
		}
	}
}

func TestTheRunBeforeHasItsShare(t *testing.T) {
	const limit = 400
	s := &kubelet{lines: repeated("after\n", 500), before: append(repeated("before\n", 500), "why\n")}
	got := s.reads(t, limit, true)
	if len(got.Raw) != limit*3/4 || !got.Cut || !bytes.HasSuffix(got.Raw, []byte("after\n")) {
		t.Errorf("the last run: %d bytes, cut %t", len(got.Raw), got.Cut)
	}
	if len(got.Before) != limit/4 || !got.BeforeCut || !bytes.HasSuffix(got.Before, []byte("before\nwhy\n")) {
		t.Errorf("the run before: %d bytes, cut %t", len(got.Before), got.BeforeCut)
	}
}

func TestALogThatMayBeReadInAMoment(t *testing.T) {
	s := &kubelet{lines: []string{"here\n"}}
	s.forbids.Store(3)
	if got := s.reads(t, 100, false); string(got.Raw) != "here\n" || s.asked.Load() != 4 {
		t.Errorf("%+v after %d requests", got, s.asked.Load())
	}
	s = &kubelet{lines: []string{"here\n"}}
	s.forbids.Store(1000)
	if got := s.reads(t, 100, false); !strings.Contains(got.Missing, "not this one") || s.asked.Load() > 20 {
		t.Errorf("%+v after %d requests", got, s.asked.Load())
	}
}

func TestALogThatIsPutAside(t *testing.T) {
	s := &kubelet{lines: []string{"here\n"}}
	s.moves.Store(1)
	if got := s.reads(t, 100, false); string(got.Raw) != "here\n" || s.asked.Load() != 2 {
		t.Errorf("%+v after %d requests", got, s.asked.Load())
	}
	s = &kubelet{lines: []string{"here\n"}}
	s.moves.Store(1000)
	if got := s.reads(t, 100, false); !strings.Contains(got.Missing, "not this one") || s.asked.Load() != 2 {
		t.Errorf("%+v after %d requests", got, s.asked.Load())
	}
}

func TestALogThatDoesNotCome(t *testing.T) {
	if got := (&kubelet{hangs: true}).reads(t, 100, false); !strings.Contains(got.Missing, "no answer") {
		t.Errorf("%+v", got)
	}
}

// Wherever the end of what is read falls into a flag, nothing of it is in the record.
func TestALogThatIsCutInAFlag(t *testing.T) {
	c := newCensor(secretFlag)
	for n := range 2 * len(secretFlag) {
		s := &kubelet{lines: []string{strings.Repeat(secretFlag, 5000) + strings.Repeat(".", n)}}
		got := s.reads(t, 3000+c.maxBytes(), false)
		text := strings.ReplaceAll(c.log(got.Raw, got.Cut), flagPlaceholder, "")
		if text != strings.Repeat(".", n) {
			t.Fatalf("with %d dots behind: %q", n, text)
		}
	}
}
