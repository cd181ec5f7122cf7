package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

var errRefused = fmt.Errorf("dial tcp 192.0.2.1:6443: connect: %w", syscall.ECONNREFUSED)

// flakyServer answers lists with one instance after some failures; its watches end immediately.
type flakyServer struct {
	client.WithWatch
	failures int
	err      error
	lists    int
}

func (l *flakyServer) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	l.lists++
	if l.lists <= l.failures {
		return l.err
	}
	into.(*bergv1.ChallengeInstanceList).Items = []bergv1.ChallengeInstance{{ObjectMeta: metav1.ObjectMeta{UID: "1", ResourceVersion: "1"}}}
	return nil
}

func (l *flakyServer) Watch(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
	return watch.NewEmptyWatch(), nil
}

func TestFollowWithoutConnectionAtStart(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "challengeinstances"}, "", errors.New("no"))
	for name, tc := range map[string]struct {
		server  flakyServer
		timeout time.Duration
		code    int
	}{
		"never connected":             {flakyServer{failures: 1000, err: errRefused}, 10 * time.Millisecond, console.ExitUnreachable},
		"not allowed":                 {flakyServer{failures: 1000, err: forbidden}, time.Hour, console.ExitForbidden},
		"connected after one failure": {flakyServer{failures: 1, err: errRefused}, time.Hour, console.ExitOK},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			c := &Cluster{WithWatch: &tc.server, clock: clock.RealClock{}}
			reported := 0
			err := c.Follow(ctx, Follower{
				Timeout: tc.timeout,
				Changed: func(Change) (bool, error) { reported++; return false, nil },
				Synced:  func() (bool, error) { return true, nil },
			})
			if got := console.Code(Explain("follow", err)); got != tc.code {
				t.Errorf("exit code %d, want %d: %v", got, tc.code, err)
			}
			if tc.code == console.ExitOK && reported != 1 {
				t.Errorf("%d instances were reported", reported)
			}
		})
	}
}

func TestExplainedErrorStaysTransient(t *testing.T) {
	err := Explain("list the pods of alice", errRefused)
	if !Transient(err) || console.Code(err) != console.ExitUnreachable {
		t.Errorf("%v: transient %t, exit code %d", err, Transient(err), console.Code(err))
	}
	if err := Explain("again", err); err.Error() != "list the pods of alice: the API server cannot be reached: "+errRefused.Error() {
		t.Errorf("%v", err)
	}
}

func TestAnUntrustedCertificateIsNotTransient(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	response, err := http.Get(server.URL)
	if err == nil {
		_ = response.Body.Close()
	}
	if err == nil || Transient(err) {
		t.Errorf("%v is transient", err)
	}
	if err = Explain("list instances", err); console.Code(err) != console.ExitUnreachable || !strings.Contains(err.Error(), "Check the certificate authority") {
		t.Errorf("%v", err)
	}
}
