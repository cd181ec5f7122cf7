package command

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/why"
)

type logOptions struct {
	container string
	follow    bool
	previous  bool
	tail      int64
	since     time.Duration
	times     bool
}

func (r *root) logs() *cobra.Command {
	var o logOptions
	c := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print the logs of the containers of an instance",
		Example: `  kubectl berg logs alice-guestbook -n berg
  kubectl berg logs alice-guestbook -c web -f
  kubectl berg logs alice-guestbook -c web --previous`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: firstArgument(r.completeInstances),
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := r.open()
			if err != nil {
				return err
			}
			i, err := instance(cmd.Context(), to, trimmed(args[0]))
			if err != nil {
				return err
			}
			return r.showLogs(cmd.Context(), to, i, o)
		},
	}
	f := c.Flags()
	f.StringVarP(&o.container, "container", "c", "", "only this container: a hostname in the Challenge (default: all)")
	f.BoolVarP(&o.follow, "follow", "f", false, "follow the logs until the instance is deleted, also across restarts")
	f.BoolVarP(&o.previous, "previous", "p", false, "print the logs of the previous run of a restarted container")
	f.Int64Var(&o.tail, "tail", -1, "number of lines of each container, from the end (default: all)")
	f.DurationVar(&o.since, "since", 0, "only lines newer than this, as in 10m")
	f.BoolVar(&o.times, "timestamps", false, "print the time of each line")
	c.MarkFlagsMutuallyExclusive("follow", "previous")
	_ = c.RegisterFlagCompletionFunc("container", func(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return r.complete(prefix, func(ctx context.Context, to *cluster.Cluster) (names []string) {
			if len(args) == 0 {
				return nil
			}
			i, err := instance(ctx, to, trimmed(args[0]))
			if err != nil {
				return nil
			}
			pods, _ := instancePods(ctx, to, i)
			for _, p := range pods {
				names = append(names, p.Labels[bergv1.LabelContainer])
			}
			return names
		})
	})
	return c
}

// instancePods sorts by name, so that the containers keep their colours.
func instancePods(ctx context.Context, c *cluster.Cluster, i *bergv1.ChallengeInstance) ([]corev1.Pod, error) {
	var all corev1.PodList
	if err := c.List(ctx, &all, client.InNamespace(why.InstanceNamespace(i)), client.MatchingLabels{bergv1.LabelComponent: bergv1.ComponentPod}); err != nil {
		return nil, cluster.Explain("list the pods of "+i.Name, err)
	}
	pods := slices.DeleteFunc(all.Items, func(p corev1.Pod) bool { return !ofInstance(p, i) })
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods, nil
}

// prefixColours are given to containers in the order in which they are first seen.
var prefixColours = []console.Colour{console.Cyan, console.Yellow, console.Green, console.Red}

// podPollInterval is the interval of the search for new pods, and the wait after a container has ended or a stream has
// broken.
const podPollInterval = 2 * time.Second

// drainTimeout limits the time to read the rest of the logs of a deleted instance.
const drainTimeout = 10 * time.Second

// showLogs copies what there is, or follows.
func (r *root) showLogs(ctx context.Context, c *cluster.Cluster, i *bergv1.ChallengeInstance, o logOptions) error {
	raw, err := c.Raw(corev1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	l := &logReader{root: r, cluster: c, raw: raw, options: o, colours: map[string]console.Colour{}}
	if o.follow {
		return l.follow(ctx, i)
	}
	return l.once(ctx, i)
}

// logReader copies the logs of one instance. One goroutine finds the pods, and each source has one that reads. mu guards the
// fields below it and the output, so that lines are whole; checked belongs to the goroutine that finds the pods.
type logReader struct {
	*root
	cluster *cluster.Cluster
	raw     *rest.RESTClient
	options logOptions

	mu           sync.Mutex
	prefixed     bool
	colours      map[string]console.Colour
	disconnected bool
	// checked: the container of the options exists in the instance.
	checked bool
}

// pods returns the pods whose logs are read.
func (l *logReader) pods(ctx context.Context, i *bergv1.ChallengeInstance) ([]corev1.Pod, error) {
	pods, err := instancePods(ctx, l.cluster, i)
	if err != nil {
		return nil, err
	}
	if err := l.knownContainer(i, pods); err != nil {
		return nil, err
	}
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool {
		return l.options.container != "" && p.Labels[bergv1.LabelContainer] != l.options.container
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prefixed = l.prefixed || len(pods) > 1
	for _, p := range pods {
		if name := p.Labels[bergv1.LabelContainer]; l.colours[name] == console.Plain {
			l.colours[name] = prefixColours[len(l.colours)%len(prefixColours)]
		}
	}
	return pods, nil
}

// knownContainer refuses the name of a container that an instance does not have. Later, one may have no pod for a while.
func (l *logReader) knownContainer(i *bergv1.ChallengeInstance, pods []corev1.Pod) error {
	if l.checked || l.options.container == "" || len(pods) == 0 {
		return nil
	}
	l.checked = true
	var names []string
	for _, p := range pods {
		names = append(names, p.Labels[bergv1.LabelContainer])
	}
	if slices.Contains(names, l.options.container) {
		return nil
	}
	slices.Sort(names)
	return console.Errorf(console.ExitNotFound, "instance %s has no pod with a container %s: it has %s. For the reason: kubectl berg why %s -n %s",
		i.Name, l.options.container, strings.Join(slices.Compact(names), ", "), i.Name, i.Namespace)
}

// once copies the current logs.
func (l *logReader) once(ctx context.Context, i *bergv1.ChallengeInstance) error {
	pods, err := l.pods(ctx, i)
	switch {
	case err != nil:
		return err
	case len(pods) == 0 && l.options.container != "":
		return console.Errorf(console.ExitNotFound, "instance %s has no pod with a container %s. For the reason: kubectl berg why %s -n %s", i.Name, l.options.container, i.Name, i.Namespace)
	case len(pods) == 0:
		return console.Errorf(console.ExitNotFound, "instance %s has no pods. For the reason: kubectl berg why %s -n %s", i.Name, i.Name, i.Namespace)
	}
	failed := make([]error, len(pods))
	var group sync.WaitGroup
	for n, p := range pods {
		group.Go(func() {
			s := l.source(p, true)
			failed[n] = cluster.Explain("read the log of container "+s.container, l.read(ctx, s))
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return nil //nolint:nilerr // an interruption is no error
	}
	return cmp.Or(failed...)
}

// follow copies the logs of the pods of an instance until it is deleted. Each pod has a goroutine, so
// that a silent pod does not block the others. A pod that is gone is not read again, but its stream is read to the end. The
// instance is gone if its name is, or has another UID; a failed read says nothing. Every return waits for all goroutines, which
// end with the context.
func (l *logReader) follow(ctx context.Context, i *bergv1.ChallengeInstance) error {
	ctx, stop := context.WithCancelCause(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer stop(nil)
	sources := map[types.UID]*source{}
	for first := true; ; {
		pods, err := l.pods(ctx, i)
		switch {
		case ctx.Err() != nil: // by the error of a source, or by Ctrl-C
			return l.cause(ctx)
		case err != nil && !cluster.Transient(err):
			return err
		case err != nil:
			l.setConnection(err)
		default:
			l.setConnection(nil)
			here := map[types.UID]bool{}
			for _, p := range pods {
				here[p.UID] = true
				if sources[p.UID] == nil {
					s := l.source(p, first)
					sources[p.UID] = s
					group.Go(func() {
						if err := l.followSource(ctx, s); err != nil {
							stop(err)
						}
					})
				}
			}
			for uid, s := range sources {
				if !here[uid] { // it reads the rest of its log
					close(s.gone)
					delete(sources, uid)
				}
			}
			first = false
		}
		select {
		case <-ctx.Done():
			return l.cause(ctx)
		case <-l.clock.After(podPollInterval):
		}
		if latest, err := instance(ctx, l.cluster, i.Name); console.Code(err) == console.ExitNotFound || err == nil && latest.UID != i.UID {
			return l.finish(ctx, &group, sources) // the instance is gone
		}
	}
}

// finish waits until the sources of a deleted instance have read the rest of their logs. It gives up after
// drainTimeout.
func (l *logReader) finish(ctx context.Context, group *sync.WaitGroup, sources map[types.UID]*source) error {
	for _, s := range sources {
		close(s.gone)
	}
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-l.clock.After(drainTimeout): // a node may not close the stream
	case <-ctx.Done():
		return l.cause(ctx)
	}
	return nil
}

// cause is the error that ended the logs, nil after Ctrl-C.
func (l *logReader) cause(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// setConnection reports once that the connection is lost, and that it is back.
func (l *logReader) setConnection(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lost := err != nil; lost != l.disconnected {
		l.disconnected = lost
		l.reportConnection(err)
	}
}

// source is the log of one pod with the position up to which it was read. Its goroutine alone uses it, except gone, which follow
// closes once.
type source struct {
	namespace, pod, container string
	options                   corev1.PodLogOptions
	// last is the time of the last line, same the number of lines with that time.
	last time.Time
	same int
	// gone is closed when the pod is gone.
	gone chan struct{}
}

// source returns the source of a pod. The options --tail and --since apply to the pods that exist at
// the start.
func (l *logReader) source(p corev1.Pod, first bool) *source {
	s := &source{namespace: p.Namespace, pod: p.Name, container: p.Labels[bergv1.LabelContainer], gone: make(chan struct{})}
	// With -f, the times of the lines say where to resume after a stream has broken
	s.options = corev1.PodLogOptions{
		Container: s.container, Follow: l.options.follow, Previous: l.options.previous, Timestamps: l.options.times || l.options.follow,
	}
	if first && l.options.tail >= 0 {
		s.options.TailLines = &l.options.tail
	}
	if first && l.options.since > 0 {
		seconds := int64(max(1, l.options.since.Seconds()))
		s.options.SinceSeconds = &seconds
	}
	return s
}

// resume makes the next request start where the last one has ended. If --tail or --since limited a log
// that was empty, the next request starts at the time of the first one.
func (s *source) resume(asked time.Time) {
	if s.last.IsZero() && s.options.TailLines == nil && s.options.SinceSeconds == nil && s.options.SinceTime == nil {
		return
	}
	since := s.last
	if since.IsZero() {
		since = asked
		if s.options.SinceTime != nil {
			since = s.options.SinceTime.Time
		}
	}
	s.options.TailLines, s.options.SinceSeconds, s.options.SinceTime = nil, nil, &metav1.Time{Time: since}
}

// followSource copies the log of a pod across restarts of its container and broken streams. It returns
// an error only if the user may not read the log.
func (l *logReader) followSource(ctx context.Context, s *source) error {
	for {
		began := l.cluster.Now()
		err := l.read(ctx, s)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // an interruption is no error
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			return cluster.Explain("read the log of container "+s.container, err)
		case err == nil, errors.Is(err, errBroken):
			s.resume(began)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.gone:
			return nil
		case <-l.clock.After(podPollInterval):
		}
	}
}

// maxLine is the number of bytes of a line that are written. A container may write a line without an end.
const maxLine = 64 << 10

// truncatedSuffix stands for the rest of a line that is too long.
const truncatedSuffix = " ... (the rest of the line is left out)"

// readLine returns the next line with its line feed. If a line does not fit into the buffer, it returns the beginning
// and discards the rest, so that a container cannot fill the memory.
func readLine(lines *bufio.Reader) (string, error) {
	part, err := lines.ReadSlice('\n')
	text := string(part)
	if !errors.Is(err, bufio.ErrBufferFull) {
		return text, err
	}
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = lines.ReadSlice('\n')
	}
	return strings.ToValidUTF8(text, "") + truncatedSuffix + "\n", err
}

// errBroken is the error of a stream that ended before its container.
var errBroken = errors.New("the stream broke")

// read copies the answer of one request. It returns nil at the end of the log, and errBroken if the stream ended before, with the
// position in s up to the last whole line. Other errors are of the request, and nothing was read.
func (l *logReader) read(ctx context.Context, s *source) error {
	stream, err := l.raw.Get().Namespace(s.namespace).Resource("pods").Name(s.pod).SubResource("log").
		VersionedParams(&s.options, scheme.ParameterCodec).Stream(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	lines, skip := bufio.NewReaderSize(stream, maxLine), s.same
	s.same = 0
	for {
		text, err := readLine(lines)
		// The next request returns an incomplete line of a broken stream again.
		if text != "" && (err == nil || errors.Is(err, io.EOF)) {
			if text, isNew := l.isNew(s, strings.TrimSuffix(text, "\n"), &skip); isNew {
				l.write(s.container, text)
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return nil
		default:
			return fmt.Errorf("%w: %w", errBroken, err)
		}
	}
}

// isNew reports whether a line was not written yet, and returns the text to write. The API server
// truncates sinceTime to seconds, so that lines come again. skip is the number of lines with the time of
// the last line that are still to be skipped.
func (l *logReader) isNew(s *source, text string, skip *int) (line string, isNew bool) {
	if !l.options.follow {
		return text, true
	}
	timestamp, rest, _ := strings.Cut(text, " ")
	written, err := time.Parse(time.RFC3339Nano, timestamp)
	if err != nil {
		return text, true // a message of the kubelet
	}
	switch {
	case written.Before(s.last):
		return "", false
	case written.Equal(s.last):
		s.same++
		if *skip > 0 {
			*skip--
			return "", false
		}
	default:
		s.last, s.same, *skip = written, 1, 0
	}
	if l.options.times {
		return text, true
	}
	return rest, true
}

// logLine is a line of the JSON output.
type logLine struct {
	Container string `json:"container"`
	Line      string `json:"line"`
}

// write writes one line. Players control the output of a container: a terminal must not get control characters from it.
func (l *logReader) write(container, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Format == console.JSON {
		_ = l.WriteLine(logLine{container, line})
		return
	}
	if l.OutTerminal {
		line = console.StripControl(line)
	}
	if l.prefixed && l.options.container == "" {
		line = l.Paint(l.colours[container], container+" │ ") + line
	}
	l.Printf("%s\n", line)
}
