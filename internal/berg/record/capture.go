package record

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance"
	"github.com/bergctf/berg-operator/internal/kit/identity"
)

const (
	// parallelLogs is how many logs of an instance are read at the same time.
	parallelLogs = 4
	// allLogs is the maximum size of the logs of one instance in memory, and minLog the minimum share
	// of each container.
	allLogs = 2 << 20
	minLog  = 4 << 10
	// A kubelet counts lines from the end, but cuts a long answer at its end, not at its beginning. So
	// many lines are requested, and fewer if these exceed the size of one read: each number is enough
	// for a whole log of lines that are just too long for the previous number. A line of a log file
	// has at most 16 KiB: the runtime breaks longer ones, for the file.
	manyLines = 4096 // of 256 bytes at most
	someLines = 512  // of 2 KiB at most
	fewLines  = 48   // of any length
	// maxRead is how much of one log is read at a time.
	maxRead = 1 << 20
	// grantAttempts is the number of attempts of a read that a new binding allows: the API server
	// authorises from a cache that lags behind the binding.
	grantAttempts = 7
)

// see reads the pods of an instance and the ends of their logs. A log that cannot be read in time
// is reported as missing. It never fails: what could not be read is named in the result.
func (k *Recorder) see(ctx context.Context, e challengeinstance.Ending) Seen {
	seen := Seen{Logs: map[LogKey]Log{}}
	if e.Namespace.DeletionTimestamp != nil {
		seen.Incomplete = late
	}
	var pods corev1.PodList
	if err := k.Live.List(ctx, &pods, client.InNamespace(e.Namespace.Name), client.MatchingLabels{bergv1.LabelComponent: bergv1.ComponentPod}); err != nil {
		seen.Incomplete = "Its pods could not be listed: " + inWords(err)
		return seen
	}
	seen.Pods = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
		id, found := p.Annotations[bergv1.LabelInstanceID]
		return found && id != e.Instance.Status.InstanceID
	})
	slices.SortFunc(seen.Pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	wanted := wantedLogs(seen.Pods)
	if len(wanted) == 0 {
		return seen
	}
	if err := k.Access.Grant(ctx, e.Instance.UID, e.Namespace.Name); err != nil {
		for _, w := range wanted {
			seen.Logs[w.LogKey] = Log{Missing: "The operator has no right to read it: " + inWords(err)}
		}
		return seen
	}
	limit := min(MaxLog, max(minLog, allLogs/len(wanted))) + newCensor(e.Flags()...).maxBytes()
	var mu sync.Mutex
	var group sync.WaitGroup
	slots := make(chan struct{}, parallelLogs)
	for _, w := range wanted {
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			read := k.readLog(ctx, e.Namespace.Name, w, limit)
			mu.Lock()
			defer mu.Unlock()
			seen.Logs[w.LogKey] = read
		})
	}
	group.Wait()
	return seen
}

// wantedLog is a log that there is.
type wantedLog struct {
	LogKey

	// before: the run before has one of its own.
	before bool
}

// wantedLogs are the logs of the containers that ran.
func wantedLogs(pods []corev1.Pod) (wanted []wantedLog) {
	for _, pod := range pods {
		for _, s := range pod.Status.ContainerStatuses {
			restarted := s.State.Running != nil && s.LastTerminationState.Terminated != nil
			if restarted || s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil {
				wanted = append(wanted, wantedLog{LogKey{pod.Name, s.Name}, restarted})
			}
		}
	}
	return wanted
}

// readLog reads the end of a log, and the end of the previous run's log, which says why the
// container was restarted: the previous one gets a quarter of the limit, or the share that the last
// run leaves unused.
func (k *Recorder) readLog(ctx context.Context, namespace string, w wantedLog, limit int) Log {
	last, err := k.readRun(ctx, namespace, w.LogKey, limit, false)
	if apierrors.IsBadRequest(err) {
		// A kubelet says so, too, while it rotates a log.
		last, err = k.readRun(ctx, namespace, w.LogKey, limit, false)
	}
	if err != nil {
		logsMissing.Inc()
		return Log{Missing: "It could not be read: " + inWords(err)}
	}
	read := Log{Raw: last.bytes(), Cut: last.cut()}
	if !w.before {
		return read
	}
	// A run without a log on the node is not reported as missing.
	if before, err := k.readRun(ctx, namespace, w.LogKey, max(limit/4, limit-len(read.Raw)), true); err == nil {
		read.Before, read.BeforeCut = before.bytes(), before.cut()
	}
	if omitted := len(read.Raw) + len(read.Before) - limit; omitted > 0 {
		read.Raw, read.Cut = read.Raw[omitted:], true
	}
	return read
}

// run is the end of the log of one run.
type run struct {
	tail

	// truncated: there is more before what was read.
	truncated bool
}

func (r *run) cut() bool { return r.truncated || r.tail.cut() }

func (k *Recorder) readRun(ctx context.Context, namespace string, source LogKey, limit int, previous bool) (*run, error) {
	read, err := k.readLines(ctx, namespace, source, limit, previous, manyLines)
	for _, fewer := range []int64{someLines, fewLines} {
		if err != nil || read.written <= maxRead {
			break
		}
		if read, err = k.readLines(ctx, namespace, source, limit, previous, fewer); err == nil {
			read.truncated = true
		}
	}
	return read, err
}

// readLines reads the last lines of a log, and stops when it has read more than maxRead.
func (k *Recorder) readLines(ctx context.Context, namespace string, source LogKey, limit int, previous bool, lines int64) (*run, error) {
	r := &run{tail: tail{limit: limit}}
	stream, err := k.openLog(ctx, namespace, source.Pod, &corev1.PodLogOptions{Container: source.Container, Previous: previous, TailLines: ptr.To(lines)})
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	if _, err := io.Copy(&r.tail, io.LimitReader(stream, maxRead+1)); err != nil {
		return nil, err
	}
	r.truncated = int64(r.fileLines()) >= lines
	return r, nil
}

// openLog asks for a log until the API server knows that it may be read.
func (k *Recorder) openLog(ctx context.Context, namespace, pod string, options *corev1.PodLogOptions) (stream io.ReadCloser, err error) {
	err = identity.WhenGranted(ctx, grantAttempts, func() error {
		stream, err = k.Logs.Pods(namespace).GetLogs(pod, options).Stream(ctx)
		return err
	})
	return stream, err
}

// inWords describes an error without the object that it is about.
func inWords(err error) string {
	switch status := apierrors.APIStatus(nil); {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("there was no answer within %s", timeout)
	case errors.As(err, &status):
		return status.Status().Message
	default:
		return err.Error()
	}
}
