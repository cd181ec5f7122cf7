package web

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bergctf/berg-operator/internal/platform/instances"
)

// Platforms show players a general sentence, or nothing. The log has the reason, except for instances that do not exist, which every
// page of a player asks for.
func TestRefusalsAreLogged(t *testing.T) {
	for name, tc := range map[string]struct {
		err       error
		status    int
		words     string
		sentences string
	}{
		"a limit":        {instances.Fail(instances.Exhausted, "SOURCE_MAX_INSTANCES is reached"), 429, "SOURCE_MAX_INSTANCES is reached", "too many requests"},
		"a wrong name":   {instances.Fail(instances.Invalid, "there is no Challenge x"), 400, "there is no Challenge x", "Tell the organisers"},
		"no instance":    {instances.Fail(instances.NotFound, "it has no instance"), 404, "", "no such instance"},
		"the API server": {errors.New("etcd is full"), 500, "etcd is full", "do not answer"},
	} {
		var log bytes.Buffer
		mux := http.NewServeMux()
		Handle(mux, slog.New(slog.NewTextHandler(&log, nil)), func(w http.ResponseWriter, f Failure, _ error) {
			Write(w, f.Status, f.ForPlayers())
		}, map[string]Call{"GET /": func(http.ResponseWriter, *http.Request) error { return tc.err }})
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/x", nil))
		if w.Code != tc.status || (tc.words == "") != (log.Len() == 0) || !strings.Contains(log.String(), tc.words) || !strings.Contains(w.Body.String(), tc.sentences) {
			t.Errorf("%s: %d %s, log %q", name, w.Code, w.Body, log.String())
		}
	}
}
