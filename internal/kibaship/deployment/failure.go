package deployment

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/registry"
	"github.com/bergctf/berg-operator/internal/kit/apply"
)

// explain completes the message of a run whose step reported nothing: with the last lines of its log, or the end of its pod. A message
// that is complete stays, as log and pod are deleted later. A log is read once for each failed run: the next reconciliation finds
// the complete message in the history.
func (r *Reconciler) explain(ctx context.Context, d *kibashipv1.Deployment, run *Run) error {
	failed := run.Failed
	if failed == nil {
		return nil
	}
	if known := knownRun(&d.Status, run.Name); known.Phase == kibashipv1.DeploymentFailed && strings.HasPrefix(known.Message, run.Message) {
		run.Message = known.Message
		return nil
	}
	pod, err := r.findPod(ctx, d.Namespace, failed.Pod)
	switch {
	case err != nil:
		return err
	case pod == nil:
		run.Message += fmt.Sprintf(": pod %s was deleted, and its log with it. Ask for another run", failed.Pod)
		return nil
	case pod.DeletionTimestamp != nil:
		run.Message += fmt.Sprintf(": pod %s was deleted while it ran. Ask for another run", failed.Pod)
		return nil
	}
	// Every step has a log to show, also one without commands of the author: on a full disk it cannot report its failure.
	run.Message += failed.describe(d.Namespace, r.lastWords(ctx, d.Namespace, *failed, run.PullSecret))
	return nil
}

// describe returns what is known of a step that reported nothing: the last lines of its log, "" for none, and where the log is.
func (f failedStep) describe(namespace, lines string) string {
	writer := ""
	switch {
	case lines == "":
		return ": " + f.logs(namespace)
	case f.Step == stepClone || f.Step == stepBuild:
		writer = ", which the author of the repository may have written"
	}
	return fmt.Sprintf(". The last lines%s: %q%s. %s", writer, lines, adviseSpace(lines), f.logs(namespace))
}

// findPod returns the pod of a run, nil if there is none. A pod that the operator may not read counts as one that runs. It asks
// the API server, as pods are in no cache.
func (r *Reconciler) findPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	err := r.Writer.Live.Get(ctx, client.ObjectKeyFromObject(pod), pod)
	switch {
	case apply.Absent(err):
		return nil, nil
	case apierrors.IsForbidden(err):
		return pod, nil
	default:
		return pod, err
	}
}

// Limits of what is read of a log, and of what a status shows.
const (
	logTimeout  = 5 * time.Second
	logLines    = 40
	logBytes    = 64 << 10
	shownLines  = 5
	maxLogShown = 500
)

// lastWords returns the last lines of the log of a build, "" if there are none that may be shown. The commands of a Dockerfile can
// read the login of the pull Secret: it is taken out, and without it nothing is shown. An error shows nothing: the message then
// names the command that reads the log.
func (r *Reconciler) lastWords(ctx context.Context, namespace string, failed failedStep, pullSecret string) string {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	var logins registry.Logins
	if pullSecret != "" {
		secret := &corev1.Secret{}
		if err := r.Writer.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: pullSecret}, secret); err != nil {
			return ""
		}
		var err error
		if logins, err = registry.ParseLogins(secret.Data[registry.ConfigKey]); err != nil {
			return ""
		}
	}
	stream, err := r.Logs.Pods(namespace).GetLogs(failed.Pod, &corev1.PodLogOptions{
		Container: failed.Container, TailLines: ptr.To[int64](logLines), LimitBytes: ptr.To[int64](logBytes),
	}).Stream(ctx)
	if err != nil {
		return ""
	}
	defer func() { _ = stream.Close() }()
	text, err := io.ReadAll(io.LimitReader(stream, logBytes))
	if err != nil {
		return ""
	}
	return summarize(logins.Remove(string(text)))
}

var (
	// controls matches the sequences by which a program colours its text: https://ecma-international.org/publications-and-standards/standards/ecma-48/
	controls = regexp.MustCompile(`\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)`)
	// builderLine matches what the builder says about its work, and how it repeats the exit code of a command.
	builderLine = regexp.MustCompile(`^((TRAC|DEBU|INFO|WARN)\[\d+\]|time="[^"]*" level=(trace|debug|info|warn)|error building image: .*waiting for process to exit: exit status \d+)`)
	// builderError matches the begin of the builder's errors.
	builderError = regexp.MustCompile(`^(ERRO|FATA)\[\d+\] *`)
	// credentials matches what a program prints of a login: of a URL, of a header, and the tokens of well-known services.
	credentials = regexp.MustCompile(`(?i)(\w+://)[^\s/@]+(@)|((?:authorization|x-[a-z-]*token):\s*(?:\w+\s+)?|bearer\s+)\S+|\b(?:gh[pousr]|github_pat|glpat|npm|xox[abp])[_-][A-Za-z0-9_-]{10,}`)
)

// summarize returns the last lines that a build printed, without control characters, credentials, and what the builder says about
// its work. What it returns goes into a status, which more people may read than the log. It has at most shownLines lines and
// maxLogShown characters.
func summarize(log string) string {
	var lines []string
	for line := range strings.Lines(strings.ToValidUTF8(log, "�")) {
		line = controls.ReplaceAllString(strings.TrimRight(line, "\r\n"), "")
		if index := strings.LastIndexByte(line, '\r'); index >= 0 {
			line = line[index+1:] // a bar of progress
		}
		line = strings.TrimSpace(strings.Map(printable, line))
		if line == "" || builderLine.MatchString(line) {
			continue
		}
		lines = append(lines, credentials.ReplaceAllString(builderError.ReplaceAllString(line, ""), "${1}${3}…${2}"))
	}
	lines = lines[max(len(lines)-shownLines, 0):]
	text := []rune(strings.Join(lines, " | "))
	if len(text) > maxLogShown {
		return "…" + string(text[len(text)-maxLogShown:])
	}
	return string(text)
}

// printable replaces white space by a space, and drops what is not seen or changes the order of other characters.
func printable(r rune) rune {
	switch {
	case unicode.IsSpace(r):
		return ' '
	case unicode.IsControl(r), unicode.Is(unicode.Cf, r):
		return -1
	default:
		return r
	}
}
