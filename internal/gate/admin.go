package gate

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/bergctf/berg-operator/internal/gate/routing"
	"github.com/bergctf/berg-operator/internal/gate/upstream"
	"github.com/bergctf/berg-operator/internal/gate/usage"
	"github.com/bergctf/berg-operator/internal/kit/gateadmin"
	"github.com/bergctf/berg-operator/internal/kit/ports"
)

const (
	// A question that waits is answered after maxWait, and a connection that fails is tried again after retryInterval: nothing says
	// when a program opens its port.
	maxWait       = time.Second
	retryInterval = 25 * time.Millisecond
	dialTimeout   = 500 * time.Millisecond
	// maxWaiting questions wait at a time. Further ones are answered without delay.
	maxWaiting = 256
)

// admin answers the operator, and those that collect metrics. Strangers learn only what the ports for players say as well: whether a name
// that they know is served. The operator asks it for each start, so a question waits for changes and not for a time.
type admin struct {
	table   *routing.Table
	dialer  *upstream.Dialer
	waiting chan struct{}
	usage   *usage.Recorder
}

// adminHandler serves metrics, health, and GET /served?host=NAME, which answers with gateadmin.Served. namespace=NAME counts only routes to pods of
// a namespace, connect=false connects to no pod, and with wait=true the answer comes when all is true, or after a second. GET /usage
// answers with the use of routes; with after=SECONDS only of those that were used since.
func adminHandler(table *routing.Table, dialer *upstream.Dialer, recorder *usage.Recorder, synced []toolscache.InformerSynced) http.Handler {
	a := &admin{table: table, dialer: dialer, waiting: make(chan struct{}, maxWaiting), usage: recorder}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", ports.NewMetricsHandler(metrics.Registry))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		for _, done := range synced {
			if !done() {
				http.Error(w, "the routes and certificates are not read yet", http.StatusServiceUnavailable)
				return
			}
		}
	})
	mux.HandleFunc("GET /served", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(a.answer(r))
	})
	reports := make(chan struct{}, 4)
	mux.HandleFunc("GET /usage", func(w http.ResponseWriter, r *http.Request) {
		select {
		case reports <- struct{}{}:
			defer func() { <-reports }()
		default:
			http.Error(w, "too many requests at a time", http.StatusServiceUnavailable)
			return
		}
		after, _ := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(a.usage.Report(time.Unix(after, 0)))
	})
	return mux
}

// answer answers a question about a host.
func (a *admin) answer(r *http.Request) gateadmin.Served {
	query := r.URL.Query()
	host, _ := routing.SplitHost(query.Get("host"))
	check := func(ctx context.Context) gateadmin.Served {
		return a.check(ctx, host, query.Get("namespace"), query.Get("connect") != "false")
	}
	if query.Get("wait") != "true" {
		return check(r.Context())
	}
	select {
	case a.waiting <- struct{}{}:
		defer func() { <-a.waiting }()
	default:
		return check(r.Context())
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxWait)
	defer cancel()
	for {
		// Both channels are taken before the check: a change that comes during the check is not missed.
		routes, pods := a.table.Changed(), a.dialer.Endpoints.Changed()
		got := check(r.Context())
		if got.Host && got.Pod {
			return got
		}
		var retry <-chan time.Time // a route or an EndpointSlice announces itself
		if got.Host {
			retry = time.After(retryInterval)
		}
		select {
		case <-routes:
		case <-pods:
		case <-retry:
		case <-ctx.Done():
			return got
		}
	}
}

// check reports whether a host is served now.
func (a *admin) check(ctx context.Context, host, namespace string, connect bool) gateadmin.Served {
	backends, known := a.table.Backends(host, namespace)
	if !known {
		return gateadmin.Served{}
	}
	return gateadmin.Served{Host: true, Pod: !slices.ContainsFunc(backends, func(b routing.Backend) bool { return !a.reaches(ctx, &b, connect) })}
}

// reaches reports whether a pod of a backend is ready and, with connect, accepts a connection.
func (a *admin) reaches(ctx context.Context, backend *routing.Backend, connect bool) bool {
	if !connect {
		return len(a.dialer.Endpoints.Addresses(backend.Service, backend.Port)) > 0
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := a.dialer.Dial(ctx, backend)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
