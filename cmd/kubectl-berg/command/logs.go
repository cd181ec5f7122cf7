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
		Short: "Print what the containers of an instance wrote",
		Example: `  kubectl berg logs alice-guestbook -n berg
  kubectl berg logs alice-guestbook -c web -f
  kubectl berg logs alice-guestbook -c web --previous`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: one(r.completeInstances),
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
	f.StringVarP(&o.container, "container", "c", "", "only this container (a hostname of the Challenge); all by default")
	f.BoolVarP(&o.follow, "follow", "f", false, "go on while the instance lives, also when a container starts anew")
	f.BoolVarP(&o.previous, "previous", "p", false, "of the run before: the last words of a container that was restarted")
	f.Int64Var(&o.tail, "tail", -1, "only so many lines of each container; all by default")
	f.DurationVar(&o.since, "since", 0, "only what is newer than this, as in 10m")
	f.BoolVar(&o.times, "timestamps", false, "with the time of each line")
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

func instancePods(ctx context.Context, c *cluster.Cluster, i *bergv1.ChallengeInstance) ([]corev1.Pod, error) {
	var all corev1.PodList
	if err := c.List(ctx, &all, client.InNamespace(namespaceOf(i)), client.MatchingLabels{bergv1.LabelComponent: bergv1.ComponentPod}); err != nil {
		return nil, cluster.Explain("list the pods of "+i.Name, err)
	}
	pods := slices.DeleteFunc(all.Items, func(p corev1.Pod) bool { return !ofInstance(p, i) })
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods, nil
}

var prefixColours = []console.Colour{console.Cyan, console.Yellow, console.Green, console.Red}

// nextLook is how often is looked for further pods, and at a container that has ended or a line that
// is broken.
const nextLook = 2 * time.Second

// lastWords is how long the logs of an instance that is gone are read on, unless they end before.
const lastWords = 10 * time.Second

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

type logReader struct {
	*root
	cluster *cluster.Cluster
	raw     *rest.RESTClient
	options logOptions

	mu       sync.Mutex
	prefixed bool
	colours  map[string]console.Colour
	lost     bool
}

// pods are those whose logs are wanted.
func (l *logReader) pods(ctx context.Context, i *bergv1.ChallengeInstance) ([]corev1.Pod, error) {
	pods, err := instancePods(ctx, l.cluster, i)
	if err != nil {
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

// once copies what is there.
func (l *logReader) once(ctx context.Context, i *bergv1.ChallengeInstance) error {
	pods, err := l.pods(ctx, i)
	switch {
	case err != nil:
		return err
	case len(pods) == 0 && l.options.container != "":
		return console.Errorf(console.ExitNotFound, "instance %s has no pod of a container %s: kubectl berg why %s -n %s", i.Name, l.options.container, i.Name, i.Namespace)
	case len(pods) == 0:
		return console.Errorf(console.ExitNotFound, "instance %s has no pods: kubectl berg why %s -n %s", i.Name, i.Name, i.Namespace)
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
		return nil //nolint:nilerr // whoever interrupts it has read enough
	}
	return cmp.Or(failed...)
}

// follow copies what the pods of an instance write until it is gone: each pod on its own, so that
// one that is silent, or ends, keeps no other waiting.
func (l *logReader) follow(ctx context.Context, i *bergv1.ChallengeInstance) error {
	ctx, stop := context.WithCancelCause(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer stop(nil)
	sources := map[types.UID]*source{}
	for first := true; ; {
		pods, err := l.pods(ctx, i)
		switch {
		case ctx.Err() != nil: // by a source, or by the user, of whom nothing is to be said
			return l.cause(ctx)
		case err != nil && !cluster.Transient(err):
			return err
		case err != nil:
			l.line(err)
		default:
			l.line(nil)
			here := map[types.UID]bool{}
			for _, p := range pods {
				here[p.UID] = true
				if sources[p.UID] == nil {
					s := l.source(p, first)
					sources[p.UID] = s
					group.Go(func() {
						if err := l.keepUp(ctx, s); err != nil {
							stop(err)
						}
					})
				}
			}
			for uid, s := range sources {
				if !here[uid] { // it reads to the end what was written
					close(s.gone)
					delete(sources, uid)
				}
			}
			first = false
		}
		select {
		case <-ctx.Done():
			return l.cause(ctx)
		case <-l.clock.After(nextLook):
		}
		if latest, err := instance(ctx, l.cluster, i.Name); console.Code(err) == console.ExitNotFound || err == nil && latest.UID != i.UID {
			return l.finish(ctx, &group, sources) // the end of the instance is the end of its logs
		}
	}
}

// finish lets the sources of an instance that is gone read to the end what was written.
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
	case <-l.clock.After(lastWords): // of a node that does not close the line
	case <-ctx.Done():
		return l.cause(ctx)
	}
	return nil
}

// cause is why the logs ended: nothing where the user has ended them.
func (l *logReader) cause(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// line tells once that the connection is lost, and that it is there again.
func (l *logReader) line(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lost := err != nil; lost != l.lost {
		l.lost = lost
		l.tellLost(err)
	}
}

// source is the log of one pod, and how far it has been read.
type source struct {
	namespace, pod, container string
	options                   corev1.PodLogOptions
	// last is the time of the last line, and same how many lines have that time.
	last time.Time
	same int
	// gone is closed when the pod is not there any more.
	gone chan struct{}
}

// source makes that of a pod. Of one that was there at the beginning not all may be wanted.
func (l *logReader) source(p corev1.Pod, fromTheBeginning bool) *source {
	s := &source{namespace: p.Namespace, pod: p.Name, container: p.Labels[bergv1.LabelContainer], gone: make(chan struct{})}
	// While it follows, the times tell where to go on after a line that broke.
	s.options = corev1.PodLogOptions{
		Container: s.container, Follow: l.options.follow, Previous: l.options.previous, Timestamps: l.options.times || l.options.follow,
	}
	if fromTheBeginning && l.options.tail >= 0 {
		s.options.TailLines = &l.options.tail
	}
	if fromTheBeginning && l.options.since > 0 {
		seconds := int64(max(1, l.options.since.Seconds()))
		s.options.SinceSeconds = &seconds
	}
	return s
}

// resume makes the next request go on where the last one has ended. Of a log of which not all is
// wanted, and which was empty, everything is new from the first request on.
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

// keepUp copies what a pod writes, through restarts of its container and lines that break. The
// error is that of who may not read it.
func (l *logReader) keepUp(ctx context.Context, s *source) error {
	for {
		began := l.cluster.Now()
		err := l.read(ctx, s)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // that is how it ends
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
		case <-l.clock.After(nextLook):
		}
	}
}

// errBroken is that of a stream that ended before its container.
var errBroken = errors.New("the stream broke")

// read copies what one request returns.
func (l *logReader) read(ctx context.Context, s *source) error {
	stream, err := l.raw.Get().Namespace(s.namespace).Resource("pods").Name(s.pod).SubResource("log").
		VersionedParams(&s.options, scheme.ParameterCodec).Stream(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	lines, skip := bufio.NewReaderSize(stream, 64<<10), s.same
	s.same = 0
	for {
		text, err := lines.ReadString('\n')
		// Half a line of a stream that breaks comes again, whole.
		if text != "" && (err == nil || errors.Is(err, io.EOF)) {
			if text, fresh := l.fresh(s, strings.TrimSuffix(text, "\n"), &skip); fresh {
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

// fresh reports whether a line was not written yet, and returns it as it is to be written. since of
// a request is cut to the second, and so lines come again; skip is how many there are left of those
// with the time of the last one.
func (l *logReader) fresh(s *source, text string, skip *int) (line string, fresh bool) {
	if !l.options.follow {
		return text, true
	}
	stamp, rest, _ := strings.Cut(text, " ")
	at, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		return text, true // the kubelet's own words
	}
	switch {
	case at.Before(s.last):
		return "", false
	case at.Equal(s.last):
		s.same++
		if *skip > 0 {
			*skip--
			return "", false
		}
	default:
		s.last, s.same, *skip = at, 1, 0
	}
	if l.options.times {
		return text, true
	}
	return rest, true
}

// logLine is a line as JSON has it.
type logLine struct {
	Container string `json:"container"`
	Line      string `json:"line"`
}

// write writes a line whole. A terminal gets no commands from it: what a container writes is a
// player's, too.
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
