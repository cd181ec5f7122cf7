package gate

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lease is a lock of one replica, whose API server may be away.
type lease struct {
	away   atomic.Bool
	record atomic.Pointer[resourcelock.LeaderElectionRecord]
}

func (l *lease) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	switch record := l.record.Load(); {
	case l.away.Load():
		return nil, nil, errors.New("no answer")
	case record == nil:
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "gate")
	default:
		return record, []byte(record.RenewTime.String()), nil
	}
}

func (l *lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, record)
}

func (l *lease) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.away.Load() {
		return errors.New("no answer")
	}
	l.record.Store(&record)
	return nil
}

func (*lease) RecordEvent(string) {}
func (*lease) Identity() string   { return "replica" }
func (*lease) Describe() string   { return "gate" }

func TestAReplicaThatLosesItsLeaseLeadsAgain(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	lock, leads, lost, ended := &lease{}, make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- elect(ctx, lock, time.Second, func(ctx context.Context) {
			leads <- struct{}{}
			<-ctx.Done()
			lost <- struct{}{}
		})
	}()
	for range 2 {
		<-leads
		lock.away.Store(true)
		select {
		case <-lost:
		case err := <-ended:
			t.Fatal("the election has ended", err)
		}
		lock.away.Store(false)
	}
	<-leads
	cancel()
	<-lost
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
