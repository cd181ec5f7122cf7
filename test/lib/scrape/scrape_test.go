package scrape

import (
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
)

const page = `# HELP depth Depth of a queue.
# TYPE depth gauge
depth{controller="one",name="a"} 3
depth{controller="one-more",name="b"} 4
depth{controller="other",name="c"} 5
# TYPE took_seconds histogram
took_seconds_bucket{le="0.1"} 1
took_seconds_bucket{le="+Inf"} 2
took_seconds_sum 0.5
took_seconds_count 2
# TYPE up untyped
up 1
`

func TestSeries(t *testing.T) {
	all, err := Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{
		`depth{controller="one", name="a"}`:      3,
		`depth{controller="one-more", name="b"}`: 4,
		`depth{controller="other", name="c"}`:    5,
		`took_seconds_bucket{le="0.1"}`:          1,
		`took_seconds_bucket{le="+Inf"}`:         2,
		"took_seconds_sum":                       0.5,
		"took_seconds_count":                     2,
		"up":                                     1,
	}
	if got := all.Series(); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSum(t *testing.T) {
	all, err := Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	one := func(labels model.Metric) bool { return strings.HasPrefix(string(labels["controller"]), "one") }
	for _, test := range []struct {
		name  string
		match func(model.Metric) bool
		want  float64
	}{
		{"depth", nil, 12},
		{"depth", one, 7},
		{"took_seconds_count", nil, 2},
		{"took_seconds_count", one, 0},
		{"dep", nil, 0},
	} {
		if got := all.Sum(test.name, test.match); got != test.want {
			t.Errorf("sum of %s: got %v, want %v", test.name, got, test.want)
		}
	}
}

func TestParseRefusesOtherText(t *testing.T) {
	if _, err := Parse(strings.NewReader("<html>no metrics</html>\n")); err == nil {
		t.Error("there is no error")
	}
}

func TestFetch(t *testing.T) {
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Authorization") {
		case "":
			w.WriteHeader(http.StatusUnauthorized)
		case "Bearer secret":
			_, _ = w.Write([]byte(page))
		default:
			w.WriteHeader(http.StatusForbidden)
		}
	})
	for scheme, start := range map[string]func(http.Handler) *httptest.Server{
		"http": httptest.NewServer, "https": httptest.NewTLSServer,
	} {
		server := start(serve)
		defer server.Close()
		if !strings.HasPrefix(server.URL, scheme+"://") {
			t.Fatalf("the URL %s is not of %s", server.URL, scheme)
		}
		for token, want := range map[string]int{"": http.StatusUnauthorized, "wrong": http.StatusForbidden} {
			_, err := Fetch(t.Context(), server.URL, token)
			if status := (*StatusError)(nil); !errors.As(err, &status) || status.Code != want {
				t.Errorf("%s with token %q: got %v, want status %d", scheme, token, err, want)
			}
		}
		all, err := Fetch(t.Context(), server.URL, "secret")
		if err != nil || all.Series()["up"] != 1 {
			t.Errorf("%s: got %v, %v", scheme, all, err)
		}
	}
}
