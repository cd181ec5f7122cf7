package operator

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/bergctf/berg-operator/internal/kit/clockskew"
)

func TestAStopWhileCachesFillIsNoError(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	var lines []string
	log := WithQuietStop(ctx, funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})).WithName("a").WithValues("b", 1)
	wait := apierrors.NewTimeoutError("failed waiting for *v1.Pod Informer to sync", 0)
	log.Error(wait, "failed to get informer from cache")
	if len(lines) != 1 || !strings.Contains(lines[0], "error") {
		t.Errorf("a cache that does not fill: %q", lines)
	}
	stop()
	log.Error(wait, "failed to get informer from cache")
	log.Error(context.Canceled, "Failed to watch")
	if len(lines) != 1 {
		t.Errorf("a stop: %q", lines)
	}
	for n, other := range []struct {
		err     error
		message string
	}{
		{errors.New("the lease is not released"), "the end"}, {errors.New(leaseLost), "another message"}, {errors.New("another reason"), afterStop}, {nil, afterStop},
	} {
		if log.Error(other.err, other.message); len(lines) != 2+n {
			t.Errorf("another error: %q", lines)
		}
	}
}

// A stop that was asked for leaves no error in the log. The manager reports one in some
// of its stops, so it is stopped until it has.
func TestAStopIsNoError(t *testing.T) {
	said := make(chan string, 100) // the manager goes on speaking when it has ended
	lines := funcr.New(func(_, line string) {
		if strings.Contains(line, leaseLost) || strings.Contains(line, `"error"=`) {
			select {
			case said <- line:
			default:
			}
		}
	}, funcr.Options{Verbosity: 1})
	for end := time.Now().Add(time.Minute); len(said) == 0; {
		if time.Now().After(end) {
			t.Fatal("no manager reports the loss of its lease any more: stoplog.go need not know it")
		}
		ctx, stop := context.WithCancel(t.Context())
		options := ctrl.Options{Logger: WithQuietStop(ctx, lines), Metrics: server.Options{BindAddress: "0"}}
		lock := &record{}
		elect(&options, &lease{Interface: lock, clocks: clockskew.New(clock.RealClock{}), candidate: make(chan struct{}), deposed: func() { t.Error("deposed") }}, "lease")
		mgr, err := ctrl.NewManager(&rest.Config{Host: "https://api.example.com"}, options)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			<-mgr.Elected()
			stop()
		}()
		if err := mgr.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if lock.held.HolderIdentity != "" {
			t.Fatal("the lease was not given back")
		}
	}
	if line := <-said; strings.Contains(line, `"error"=`) {
		t.Error(line)
	}
}
