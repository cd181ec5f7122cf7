package operator

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/bergctf/berg-operator/internal/kit/clockskew"
)

// A stop that was asked for leaves no error in the log. The manager reports one in some
// of its stops, so it is stopped until it has.
func TestAStopIsNoError(t *testing.T) {
	said := make(chan string, 100) // the manager goes on speaking when it has ended
	logger := funcr.New(func(_, line string) {
		if calm := strings.Contains(line, calmly); calm || strings.Contains(line, `"error"=`) {
			select {
			case said <- line:
			default:
			}
		}
	}, funcr.Options{})
	for end := time.Now().Add(time.Minute); len(said) == 0; {
		if time.Now().After(end) {
			t.Fatal("no manager reports the loss of its lease any more: stopping.go is not needed")
		}
		options := ctrl.Options{Logger: logger, Metrics: server.Options{BindAddress: "0"}}
		lock := &record{}
		elect(&options, &lease{Interface: lock, clocks: clockskew.New(clock.RealClock{}), candidate: make(chan struct{}), deposed: func() { t.Error("deposed") }}, "lease")
		mgr, err := ctrl.NewManager(&rest.Config{Host: "https://api.example.com"}, options)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
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
	if line := <-said; !strings.Contains(line, calmly) {
		t.Error(line)
	}
}

func TestOtherErrorsAreNotCalmed(t *testing.T) {
	var lines []string
	logger := calmLogger(funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
	logger.Error(errors.New(falseAlarmReason), "another message")
	logger.Error(errors.New("another reason"), falseAlarm)
	logger.Error(nil, falseAlarm)
	logger.WithValues("controller", "any").Error(errors.New(falseAlarmReason), falseAlarm)
	if len(lines) != 4 {
		t.Fatalf("%d lines were said: %q", len(lines), lines)
	}
	for _, line := range lines {
		if !strings.Contains(line, `"error"=`) {
			t.Errorf("an error became %s", line)
		}
	}
}
