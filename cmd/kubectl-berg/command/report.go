package command

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/doctor"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/overview"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/report"
	"github.com/bergctf/berg-operator/internal/berg/plan"
)

type reportOptions struct {
	doctor.Options
	file  string
	since time.Duration
}

func (r *root) report() *cobra.Command {
	var o reportOptions
	var everywhere bool
	c := &cobra.Command{
		Use:   "report",
		Short: "Write a support bundle: versions, settings, states, events and the operator's logs, without flags and secrets",
		Long: `Write a support bundle for another person who helps: one archive with the operator's version, settings,
state and latest logs, what doctor and status show, and the states of pods, Challenges, checks and
instances, with events.

It contains no flag, no Secret, no variable or command of a Challenge, no output of a container of an
instance, and no address. It removes flags and secrets that other programs have quoted, and flags also
where they are escaped, or encoded in base64 or hexadecimal digits. Read it before you send it. It changes
nothing, and is at most 17 MiB before it is compressed.`,
		Example: `  kubectl berg report
  kubectl berg report --since 12h --file - > report.tar.gz`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return r.writeReport(cmd.Context(), o, cmd.Flags().Changed("namespace"))
		},
	}
	f := c.Flags()
	f.BoolVarP(&everywhere, "all-namespaces", "A", false, "include all namespaces that you may read, as without -n")
	f.StringVarP(&o.file, "file", "f", "", "file to write, which must not exist; - for standard output (default: berg-report-TIME.tar.gz)")
	f.DurationVar(&o.since, "since", 2*time.Hour, "age up to which logs and events are included")
	f.StringVar(&o.OperatorNamespace, "operator-namespace", "", "namespace of the operator (default: search all)")
	f.StringVar(&o.Records, "records", "", "namespace of the records (default: the operator's RECORD_NAMESPACE)")
	_ = c.RegisterFlagCompletionFunc("operator-namespace", r.completeNamespaces)
	_ = c.RegisterFlagCompletionFunc("records", r.completeNamespaces)
	return c
}

// writeReport reads, redacts and then writes: nothing is written before all texts are clean, and nothing if it was interrupted.
func (r *root) writeReport(ctx context.Context, o reportOptions, oneNamespace bool) error {
	if o.since < time.Second {
		return console.Errorf(console.ExitUsage, "--since %s: must be 1s or more", o.since)
	}
	to, err := r.open()
	if err != nil {
		return err
	}
	o.Namespace, o.Plugin, o.Offline, o.NoSecrets, o.Whole, o.OneNamespace = to.Namespace, r.version, true, true, true, oneNamespace
	survey, err := doctor.Inspect(ctx, to, o.Options)
	if err != nil {
		return err
	}
	var settings *plan.Settings
	if found, _, err := planSettings(survey, nil); err == nil {
		settings = &found
	}
	records, _ := survey.Setting("RECORD_NAMESPACE")
	g := gatherer{Cluster: to, survey: survey, since: o.since}
	events := g.events(ctx)
	bundle := report.New(survey, overview.New(survey, settings, cmp.Or(o.Records, records)), events)
	bundle.Logs = g.logs(ctx)
	bundle.Missing = append(bundle.Missing, g.missing...)
	if err := ctx.Err(); err != nil {
		return cluster.Explain("read the cluster", err)
	}
	files, err := bundle.Files(report.NewRedactor(survey.Challenges, survey.Instances))
	if err != nil {
		return err
	}
	return r.saveReport(o.file, bundle, files)
}

// saveReport writes the archive, and lists its content.
func (r *root) saveReport(file string, bundle report.Bundle, files []report.File) error {
	folder := "berg-report-" + bundle.At.Format("20060102-150405")
	var archive bytes.Buffer
	if err := report.Write(&archive, folder, bundle.At, files); err != nil {
		return err
	}
	if file == "-" {
		_, err := r.Out.Write(archive.Bytes())
		return err
	}
	file = cmp.Or(file, folder+".tar.gz")
	size := archive.Len()
	if err := create(file, &archive); err != nil {
		return err
	}
	switch r.Format {
	case console.JSON:
		return r.WriteJSON(map[string]any{"file": file, "bytes": size, "files": files, "missing": append([]string{}, bundle.Missing...)})
	case console.Name:
		r.Printf("%s\n", file)
		return nil
	case console.Text, console.Wide, console.SARIF:
	}
	for _, m := range bundle.Missing {
		r.Notef("%s %s", r.PaintErr(console.Yellow, "not included:"), console.OneLine(m))
	}
	r.Printf("%s (%d kB, %d files)\nIt has no flag and no Secret. Read it before you send it: tar -xzf %s\n", file, (size+999)/1000, len(files), filepath.Base(file))
	return nil
}

// create writes a file that only its user can read, and never replaces one.
func create(file string, content io.Reader) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return console.Errorf(console.ExitUsage, "--file %s: the file exists: choose another name", file)
	}
	if err != nil {
		return console.Errorf(console.ExitFailed, "--file %s: %w", file, err)
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}

// gatherer reads the parts of a report that a survey does not have.
type gatherer struct {
	*cluster.Cluster
	survey  doctor.Survey
	since   time.Duration
	missing []string
}

// lacks records a part that could not be read. A report without it is still a report.
func (g *gatherer) lacks(kind string, err error) {
	if apierrors.IsForbidden(err) {
		g.missing = append(g.missing, "you may not read "+kind)
		return
	}
	g.missing = append(g.missing, fmt.Sprintf("%s: %s", kind, console.OneLine(err.Error())))
}

// maxEventsRead limits how many events are read.
const maxEventsRead = 20000

// events reads the events of all namespaces, or of the namespaces that the user may read.
func (g *gatherer) events(ctx context.Context) []corev1.Event {
	all, err := g.eventsIn(ctx)
	if !apierrors.IsForbidden(err) {
		if err != nil {
			g.lacks("events", err)
		}
		return all
	}
	g.lacks("events of all namespaces", err)
	namespaces := []string{g.Namespace}
	if d := g.survey.Deployment; d != nil && d.Namespace != g.Namespace {
		namespaces = append(namespaces, d.Namespace)
	}
	for _, namespace := range namespaces {
		found, err := g.eventsIn(ctx, client.InNamespace(namespace))
		if err != nil {
			g.lacks("events in namespace "+namespace, err)
		}
		all = append(all, found...)
	}
	return all
}

// eventsIn reads recent events page by page, up to maxEventsRead. An event may have only some of its times, so each of
// them may make it recent.
func (g *gatherer) eventsIn(ctx context.Context, opts ...client.ListOption) (all []corev1.Event, err error) {
	oldest := g.Now().Add(-g.since)
	read := 0
	for page := (corev1.EventList{}); ; {
		limited := append([]client.ListOption{client.Limit(500), client.Continue(page.Continue)}, opts...)
		page = corev1.EventList{}
		if err := g.List(ctx, &page, limited...); err != nil {
			return all, err
		}
		read += len(page.Items)
		for _, e := range page.Items {
			if slices.ContainsFunc([]time.Time{e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time}, oldest.Before) || e.Series != nil && e.Series.LastObservedTime.After(oldest) {
				all = append(all, e)
			}
		}
		if page.Continue == "" {
			return all, nil
		}
		if read >= maxEventsRead {
			g.missing = append(g.missing, fmt.Sprintf("events after the first %d", read))
			return all, nil
		}
	}
}

// logs reads the ends of the logs of the operator, and of the runs before a restart.
func (g *gatherer) logs(ctx context.Context) (all []report.Log) {
	raw, err := g.Raw(corev1.SchemeGroupVersion)
	if err != nil {
		g.lacks("logs", err)
		return nil
	}
	seconds := int64(g.since / time.Second)
	for _, p := range g.survey.Pods {
		for _, c := range p.Status.ContainerStatuses {
			for _, previous := range []bool{false, true} {
				if previous && c.RestartCount == 0 {
					continue
				}
				options := corev1.PodLogOptions{Container: c.Name, Previous: previous, SinceSeconds: &seconds, Timestamps: true}
				if previous {
					options.SinceSeconds = nil
				}
				stream, err := raw.Get().Namespace(p.Namespace).Resource("pods").Name(p.Name).SubResource("log").VersionedParams(&options, scheme.ParameterCodec).Stream(ctx)
				if err != nil {
					g.lacks(fmt.Sprintf("the log of %s/%s", p.Name, c.Name), err)
					continue
				}
				text, err := lastBytes(stream, report.MaxLogBytes)
				if err != nil {
					g.lacks(fmt.Sprintf("the rest of the log of %s/%s", p.Name, c.Name), err)
				}
				all = append(all, report.Log{Pod: p.Name, Container: c.Name, Previous: previous, Text: strings.ToValidUTF8(text, "")})
			}
		}
	}
	return all
}

// lastBytes reads a stream to its end, and returns its last whole lines. It keeps at most about twice so many bytes.
func lastBytes(stream io.ReadCloser, limit int) (string, error) {
	defer func() { _ = stream.Close() }()
	var kept []byte
	buffer := make([]byte, 32<<10)
	for {
		n, err := stream.Read(buffer)
		kept = append(kept, buffer[:n]...)
		if len(kept) > 2*limit {
			kept = append(kept[:0], report.Tail(string(kept), limit)...)
		}
		switch {
		case errors.Is(err, io.EOF):
			return report.Tail(string(kept), limit), nil
		case err != nil:
			return report.Tail(string(kept), limit), err
		}
	}
}
