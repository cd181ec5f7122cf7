// Package wall is a live page over instances of a real API server, for a browser to look at. berg-api runs as a process
// of its own. There is no operator: what instances are like is written by who uses the package.
package wall

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/platform/instances"
	"github.com/bergctf/berg-operator/test/lib/installed"
)

const (
	// token opens the page.
	token = "a-token-for-the-wall"
	// startTime is how long berg-api may take until it serves.
	startTime = 2 * time.Minute
)

// Wall is a page and the namespace that it shows.
type Wall struct {
	Client    client.Client
	Namespace string
	// Address is that of the page, as http://127.0.0.1:1/live/.
	Address string
	// Process of berg-api.
	Process *os.Process
	// Memory that each container requests; "": the default.
	Memory bergv1.Amount

	command *exec.Cmd
	folder  string
}

// Authorization is the header with which a browser opens the page.
func (*Wall) Authorization() string { return "Bearer " + token }

// Open installs the definitions on the cluster of KUBECONFIG, makes a namespace with records of its own, and starts berg-api for
// it. A name that ends with a dash is the beginning of that of the namespace. Close ends it.
func Open(ctx context.Context, name string) (w *Wall, err error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	ctrl.SetLogger(logr.Discard())
	w = &Wall{}
	if w.Client, err = client.New(config, client.Options{Scheme: instances.Scheme()}); err != nil {
		return nil, err
	}
	if err := installed.Definitions(ctx, w.Client, "live-page"); err != nil {
		return nil, err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if strings.HasSuffix(name, "-") {
		namespace.ObjectMeta = metav1.ObjectMeta{GenerateName: name}
	}
	if err := w.Client.Create(ctx, namespace); err != nil {
		return nil, err
	}
	w.Namespace = namespace.Name
	if err := w.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "berg-api-tokens"},
		StringData: map[string]string{"wall": "endpoint: live\ntoken: " + token + "\n"},
	}); err != nil {
		return nil, err
	}
	if w.folder, err = os.MkdirTemp("", "live-page-"); err != nil {
		return nil, err
	}
	if err := w.start(ctx); err != nil {
		return nil, errors.Join(err, w.Close(ctx))
	}
	return w, nil
}

// start builds and starts berg-api, and waits until it serves.
func (w *Wall) start(ctx context.Context) error {
	root, err := Root()
	if err != nil {
		return err
	}
	program := filepath.Join(w.folder, "berg-api")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/berg-api")
	build.Dir = root
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build berg-api: %w: %s", err, text)
	}
	w.command = exec.Command(program)
	w.command.Env = append(os.Environ(),
		"PLATFORM_API=true", "BIND_ADDRESS=127.0.0.1:0", "METRICS_BIND_ADDRESS=127.0.0.1:0", "POD_NAMESPACE="+w.Namespace, "PLATFORM_NAMESPACE="+w.Namespace,
		"RECORD_NAMESPACE="+w.Namespace, "RATE=10000")
	log, err := w.command.StderrPipe()
	if err != nil {
		return err
	}
	if err := w.command.Start(); err != nil {
		return err
	}
	w.Process = w.command.Process
	address := make(chan string, 1)
	go read(log, address)
	select {
	case at, ok := <-address:
		if !ok {
			return errors.New("berg-api ended before it served: its log is above")
		}
		w.Address = "http://" + at + "/live/"
	case <-time.After(startTime):
		return errors.New("berg-api does not serve")
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// read finds the address in the log, and shows what else is wrong.
func read(log io.Reader, address chan<- string) {
	defer close(address)
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct{ Msg, Level, Address string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "the API is served" {
			address <- line.Address
			continue
		}
		if line.Level != "INFO" {
			fmt.Fprintf(os.Stderr, "berg-api: %s\n", lines.Text())
		}
	}
}

// Root is the folder of the product, above the present one.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "PROJECT")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("the present folder is not in the repository")
		}
	}
}

// Close ends berg-api, and deletes the namespace, also after the end of ctx.
func (w *Wall) Close(ctx context.Context) error {
	var err error
	if w.command != nil && w.command.Process != nil {
		err = w.command.Process.Signal(syscall.SIGTERM)
		if ended := w.command.Wait(); err == nil {
			err = ended
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTime)
	defer cancel()
	gone := w.Client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}})
	return errors.Join(err, client.IgnoreNotFound(gone), os.RemoveAll(w.folder))
}

// Challenge creates a Challenge with one container. conditions are those of its status.
func (w *Wall) Challenge(ctx context.Context, name string, port bergv1.PortType, conditions ...metav1.Condition) error {
	c := &bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}}
	c.Spec.Flag = Flag
	c.Spec.Containers = []bergv1.Container{{Hostname: "web", Image: "example.org/" + name + ":1", Ports: []bergv1.Port{{Name: "web", Port: 8080, Type: port}}}}
	if w.Memory != "" {
		same := &bergv1.Resources{Memory: &w.Memory}
		c.Spec.Containers[0].ResourceRequests, c.Spec.Containers[0].ResourceLimits = same, same
	}
	if err := w.Client.Create(ctx, c); err != nil {
		return err
	}
	for n := range conditions {
		conditions[n].LastTransitionTime = metav1.Now()
	}
	c.Status.Conditions = conditions
	return w.Client.Status().Update(ctx, c)
}

// Check writes a ChallengeCheck of a Challenge, with its last result.
func (w *Wall) Check(ctx context.Context, challenge string, result bergv1.CheckResultType) error {
	c := &bergv1.ChallengeCheck{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: challenge}}
	err := w.Client.Get(ctx, client.ObjectKeyFromObject(c), c)
	if apierrors.IsNotFound(err) {
		c.Spec.ChallengeRef.Name, c.Spec.Solver.Image = challenge, "example.org/solver:1"
		err = w.Client.Create(ctx, c)
	}
	if err != nil {
		return err
	}
	now := metav1.Now()
	c.Status.LastResult = &bergv1.CheckResult{CheckRun: bergv1.CheckRun{StartedAt: now, FinishedAt: &now}, Result: result}
	return w.Client.Status().Update(ctx, c)
}

// Nodes gives each node of the cluster a size.
func (w *Wall) Nodes(ctx context.Context, size corev1.ResourceList) error {
	var nodes corev1.NodeList
	if err := w.Client.List(ctx, &nodes); err != nil {
		return err
	}
	for n := range nodes.Items {
		node := &nodes.Items[n]
		from := client.MergeFrom(node.DeepCopy())
		for what, amount := range size {
			node.Status.Capacity[what], node.Status.Allocatable[what] = amount, amount
		}
		if err := w.Client.Status().Patch(ctx, node, from); err != nil {
			return err
		}
	}
	return nil
}

// Flag is that of every Challenge: no page may show it.
const Flag = "flag{not-for-the-wall}"

// Write creates an instance, or changes it, and gives it a status.
func (w *Wall) Write(ctx context.Context, name, challenge, owner string, status bergv1.ChallengeInstanceStatus) (*bergv1.ChallengeInstance, error) {
	i := &bergv1.ChallengeInstance{}
	key := client.ObjectKey{Namespace: w.Namespace, Name: name}
	err := w.Client.Get(ctx, key, i)
	if apierrors.IsNotFound(err) {
		i = &bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name, Labels: map[string]string{bergv1.LabelSource: owner}}}
		i.Spec.ChallengeRef.Name, i.Spec.OwnerID = challenge, ownerID(name)
		err = w.Client.Create(ctx, i)
	}
	if err != nil {
		return nil, err
	}
	i.Status = status
	return i, w.Client.Status().Update(ctx, i)
}

// Delete deletes an instance.
func (w *Wall) Delete(ctx context.Context, name string) error {
	return w.Client.Delete(ctx, &bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}})
}

// Event writes an event of an instance.
func (w *Wall) Event(ctx context.Context, i *bergv1.ChallengeInstance, kind, reason, message string) error {
	return w.Client.Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: w.Namespace, GenerateName: i.Name + "."},
		InvolvedObject: corev1.ObjectReference{APIVersion: bergv1.GroupVersion.String(), Kind: "ChallengeInstance", Namespace: i.Namespace, Name: i.Name, UID: i.UID},
		Type:           kind, Reason: reason, Message: message, FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Count: 1,
	})
}

// Record writes the record of an instance, as the operator does at its end.
func (w *Wall) Record(ctx context.Context, i *bergv1.ChallengeInstance, log string) error {
	return w.Client.Create(ctx, &bergv1.ChallengeInstanceRecord{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.Namespace, Name: string(i.UID), Labels: map[string]string{bergv1.LabelSource: i.Labels[bergv1.LabelSource]},
			Annotations: map[string]string{bergv1.AnnotationInstance: i.Namespace + "/" + i.Name, bergv1.AnnotationChallenge: i.Spec.ChallengeRef.Name},
		},
		Spec: bergv1.ChallengeInstanceRecordSpec{
			Instance:     bergv1.RecordedInstance{Namespace: i.Namespace, Name: i.Name, UID: string(i.UID)},
			ChallengeRef: i.Spec.ChallengeRef, OwnerID: i.Spec.OwnerID, Reason: "Timeout", Phase: bergv1.PhaseRunning, EndedAt: metav1.Now(),
			Timeline:   []bergv1.RecordedMoment{{Moment: "Created", At: i.CreationTimestamp}, {Moment: "Expired", At: metav1.Now()}},
			Containers: []bergv1.RecordedContainer{{Name: "web", Pod: "web-1", Image: "example.org/web:1", Node: "node-1", State: "Running", Log: log}},
		},
	})
}

// ownerID is a UUID that follows from a name.
func ownerID(name string) string {
	const digits = "0123456789abcdef"
	var b strings.Builder
	sum := uint64(14695981039346656037)
	for n := range 32 {
		sum = (sum ^ uint64(name[n%len(name)])) * 1099511628211
		b.WriteByte(digits[(sum>>33)%16])
	}
	d := b.String()
	return d[:8] + "-" + d[8:12] + "-4" + d[13:16] + "-8" + d[17:20] + "-" + d[20:]
}

// Running is the status of an instance that runs, at the address of its name.
func Running(name string, took time.Duration) bergv1.ChallengeInstanceStatus {
	now := time.Now()
	at := func(share float64) *metav1.MicroTime {
		return &metav1.MicroTime{Time: now.Add(time.Duration(share * float64(took)))}
	}
	started, ready, expires := metav1.NewTime(now), metav1.NewTime(now.Add(took)), metav1.NewTime(now.Add(2*time.Hour))
	return bergv1.ChallengeInstanceStatus{
		Phase: bergv1.PhaseRunning, InstanceID: "01890000-0000-7000-8000-000000000000", StartedAt: &started, ReadyAt: &ready, ExpiresAt: &expires,
		Start: &bergv1.StartTimes{
			NamespaceCreatedAt: at(.1), ObjectsWrittenAt: at(.2), ScheduledAt: at(.25), SandboxesCreatedAt: at(.4), ImagesPulledAt: at(.8),
			ContainersStartedAt: at(.9), PodsReadyAt: at(1),
		},
		Services:   []bergv1.ServiceEndpoint{{Name: "web", Hostname: name + ".ctf.example.org", Port: 443, Protocol: "TCP", TLS: true, URL: "https://" + name + ".ctf.example.org"}},
		Conditions: []metav1.Condition{condition(bergv1.ConditionPodsReady, metav1.ConditionTrue, "Ready", "all pods are ready")},
	}
}

// Waiting is the status of an instance that does not run for a cause.
func Waiting(phase bergv1.Phase, cause bergv1.Cause, kind, message string) bergv1.ChallengeInstanceStatus {
	s := bergv1.ChallengeInstanceStatus{Phase: phase, Cause: cause}
	if kind != "" {
		s.Conditions = []metav1.Condition{condition(kind, metav1.ConditionFalse, string(cause), message)}
	}
	return s
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.Now()}
}
