package command

import (
	"bufio"
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

// nextLook is how often a container that has ended is looked at, for the next one.
const nextLook = 2 * time.Second

func (r *root) showLogs(ctx context.Context, c *cluster.Cluster, i *bergv1.ChallengeInstance, o logOptions) error {
	raw, err := c.Raw(corev1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	l := &logReader{root: r, raw: raw, options: o, seen: map[string]bool{}, colours: map[string]console.Colour{}}
	for {
		pods, err := instancePods(ctx, c, i)
		if err != nil && (!o.follow || !cluster.Transient(errors.Unwrap(err)) || ctx.Err() != nil) {
			return err
		}
		pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool {
			return o.container != "" && p.Labels[bergv1.LabelContainer] != o.container
		})
		l.prefixed = l.prefixed || len(pods) > 1
		switch {
		case len(pods) == 0 && !o.follow && o.container != "":
			return console.Fail(console.ExitNotFound, "instance %s has no pod of a container %s: kubectl berg why %s -n %s", i.Name, o.container, i.Name, i.Namespace)
		case len(pods) == 0 && !o.follow:
			return console.Fail(console.ExitNotFound, "instance %s has no pods: kubectl berg why %s -n %s", i.Name, i.Name, i.Namespace)
		}
		var group sync.WaitGroup
		for _, p := range pods {
			group.Go(func() { l.pod(ctx, p) })
		}
		group.Wait()
		if !o.follow || ctx.Err() != nil {
			return l.err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.clock.After(nextLook):
		}
		if latest, err := instance(ctx, c, i.Name); console.Code(err) == console.ExitNotFound || err == nil && latest.UID != i.UID {
			return nil // the end of the instance is the end of its logs
		}
	}
}

type logReader struct {
	*root
	raw      *rest.RESTClient
	options  logOptions
	prefixed bool

	mu      sync.Mutex
	seen    map[string]bool
	colours map[string]console.Colour
	err     error
}

// pod copies what one pod writes.
func (l *logReader) pod(ctx context.Context, p corev1.Pod) {
	container := p.Labels[bergv1.LabelContainer]
	run := p.Name
	for _, s := range p.Status.ContainerStatuses {
		if s.Name == container {
			run = fmt.Sprintf("%s/%d", p.Name, s.RestartCount)
		}
	}
	l.mu.Lock()
	known := l.seen[run]
	l.seen[run] = true
	if l.colours[container] == console.Plain {
		l.colours[container] = prefixColours[len(l.colours)%len(prefixColours)]
	}
	l.mu.Unlock()
	if known {
		return
	}
	options := &corev1.PodLogOptions{Container: container, Follow: l.options.follow, Previous: l.options.previous, Timestamps: l.options.times}
	if l.options.tail >= 0 {
		options.TailLines = &l.options.tail
	}
	if l.options.since > 0 {
		seconds := int64(max(1, l.options.since.Seconds()))
		options.SinceSeconds = &seconds
	}
	stream, err := l.raw.Get().Namespace(p.Namespace).Resource("pods").Name(p.Name).SubResource("log").
		VersionedParams(options, scheme.ParameterCodec).Stream(ctx)
	if err != nil {
		l.failed(ctx, container, run, err)
		return
	}
	defer func() { _ = stream.Close() }()
	lines := bufio.NewReaderSize(stream, 64<<10)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			l.write(container, strings.TrimSuffix(line, "\n"))
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && ctx.Err() == nil && !l.options.follow {
				l.failed(ctx, container, run, err)
			}
			return
		}
	}
}

func (l *logReader) failed(ctx context.Context, container, run string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.options.follow && !apierrors.IsForbidden(err) {
		delete(l.seen, run) // it does not run yet
		return
	}
	if ctx.Err() == nil && l.err == nil {
		l.err = cluster.Explain("read the log of container "+container, err)
	}
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
		line = console.Harmless(line)
	}
	if l.prefixed && l.options.container == "" {
		line = l.Paint(l.colours[container], container+" │ ") + line
	}
	l.Printf("%s\n", line)
}
