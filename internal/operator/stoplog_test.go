package operator

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	log.Error(errors.New("the lease is not released"), "the end")
	if len(lines) != 2 {
		t.Errorf("another error: %q", lines)
	}
}
