package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// requestTimeout bounds one look at a pod or at a service.
const requestTimeout = 30 * time.Second

// Names of config/berg/samples that the demo knows.
const (
	webInstance  = "web"
	pwnInstance  = "pwn"
	shopInstance = "shop"
	flagFile     = "/flag.txt"
	flagProgram  = "/usr/bin/get_flag"
)

// checkFlags gets the flag of each instance the way its container would, and compares it with spec.flag.
func (d *demo) checkFlags(ctx context.Context) error {
	if d.target.simulated {
		return d.checkFlagObjects(ctx)
	}
	for _, check := range []struct {
		title, instance string
		read            func(context.Context, *bergv1.ChallengeInstance) (string, error)
	}{
		{"web: read " + flagFile + " inside the pod", webInstance, d.readFlagFile},
		{"pwn: run " + flagProgram + " inside the pod", pwnInstance, d.runFlagProgram},
		{"shop: read the bot's environment inside the pod", shopInstance, d.readFlagVariable},
	} {
		look := []string{d.kubectlLine("get pods -A -l app.kubernetes.io/managed-by=berg")}
		if err := d.checkFlag(ctx, check.title, look, check.instance, check.read); err != nil {
			return err
		}
	}
	return nil
}

// checkFlagObjects is checkFlags where no program runs: it looks at what the pods would have got.
func (d *demo) checkFlagObjects(ctx context.Context) error {
	for _, check := range []struct {
		title, instance string
		read            func(context.Context, *bergv1.ChallengeInstance) (string, error)
	}{
		{"web: read the ConfigMap flag-content", webInstance, d.readFlagContent},
		{"pwn: run the program of the ConfigMap flag-executable", pwnInstance, d.runFlagExecutable},
		{"shop: read the environment of Deployment bot", shopInstance, d.readDeploymentVariable},
	} {
		if err := d.checkFlag(ctx, check.title, nil, check.instance, check.read); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) checkFlag(ctx context.Context, title string, look []string, name string, read func(context.Context, *bergv1.ChallengeInstance) (string, error)) error {
	return d.show.step(ctx, title, look, func(ctx context.Context) (outcome, error) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		instance, err := d.instance(ctx, name)
		if err != nil {
			return "", err
		}
		flag, err := read(ctx, instance)
		if err != nil {
			return "", err
		}
		return outcome(flag), isFlagOf(instance, flag)
	})
}

func isFlagOf(instance *bergv1.ChallengeInstance, flag string) error {
	if flag != instance.Spec.Flag {
		return fmt.Errorf("got %q, but spec.flag is %q", flag, instance.Spec.Flag)
	}
	return nil
}

func (d *demo) instance(ctx context.Context, name string) (*bergv1.ChallengeInstance, error) {
	instance := &bergv1.ChallengeInstance{}
	if err := d.target.client.Get(ctx, client.ObjectKey{Namespace: samplesNamespace, Name: name}, instance); err != nil {
		return nil, fmt.Errorf("get instance %s: %w", name, err)
	}
	return instance, nil
}

func (d *demo) readFlagFile(ctx context.Context, instance *bergv1.ChallengeInstance) (string, error) {
	content, err := d.execute(ctx, instance, "web", "cat", flagFile)
	if err != nil {
		return "", err
	}
	listing, err := d.execute(ctx, instance, "web", "ls", flagFile)
	if err != nil {
		return "", err
	}
	if !strings.HasPrefix(listing, "- 0444 ") {
		return "", fmt.Errorf("%s is not a file of mode 0444: %s", flagFile, listing)
	}
	flag, ended := strings.CutSuffix(content, "\n")
	if !ended {
		return "", fmt.Errorf("%s does not end with a line feed", flagFile)
	}
	return flag, nil
}

// runFlagProgram also verifies that running it is the only way: no user in the container may read it.
func (d *demo) runFlagProgram(ctx context.Context, instance *bergv1.ChallengeInstance) (string, error) {
	flag, err := d.execute(ctx, instance, "kiosk", flagProgram)
	if err != nil {
		return "", err
	}
	switch _, err := d.execute(ctx, instance, "kiosk", "cat", flagProgram); {
	case err == nil:
		return "", fmt.Errorf("%s can be read as well", flagProgram)
	case !strings.Contains(err.Error(), "permission denied"):
		return "", fmt.Errorf("read %s: want a denied permission, got: %w", flagProgram, err)
	}
	return flag, nil
}

// readFlagVariable also makes sure that the other containers do not have it.
func (d *demo) readFlagVariable(ctx context.Context, instance *bergv1.ChallengeInstance) (string, error) {
	flag, err := d.execute(ctx, instance, "bot", "printenv", "FLAG")
	if err != nil {
		return "", err
	}
	for _, container := range []string{"web", "database"} {
		environment, err := d.execute(ctx, instance, container, "printenv")
		if err != nil {
			return "", err
		}
		if strings.Contains(environment, instance.Spec.Flag) {
			return "", fmt.Errorf("container %s has the flag too", container)
		}
	}
	return strings.TrimSuffix(flag, "\n"), nil
}

// execute runs a command in the instance's container of that host name and returns what it prints.
func (d *demo) execute(ctx context.Context, instance *bergv1.ChallengeInstance, hostname string, command ...string) (string, error) {
	pod, err := d.runningPod(ctx, instance, hostname)
	if err != nil {
		return "", err
	}
	clientset, err := kubernetes.NewForConfig(d.target.config)
	if err != nil {
		return "", err
	}
	request := clientset.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).
		SubResource("exec").VersionedParams(&corev1.PodExecOptions{
		Container: hostname, Command: command, Stdout: true, Stderr: true,
	}, scheme.ParameterCodec)
	executor, err := newExecutor(d.target.config, request.URL())
	if err != nil {
		return "", err
	}
	var stdout, stderr bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr}); err != nil {
		return "", fmt.Errorf("%s in pod %s/%s: %w: %s", strings.Join(command, " "), pod.Namespace, pod.Name, err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// newExecutor speaks WebSocket, and SPDY where the cluster or a proxy before it is too old for that.
func newExecutor(config *rest.Config, address *url.URL) (remotecommand.Executor, error) {
	websocket, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, address.String())
	if err != nil {
		return nil, err
	}
	spdy, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, address)
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(websocket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}

func (d *demo) runningPod(ctx context.Context, instance *bergv1.ChallengeInstance, hostname string) (*corev1.Pod, error) {
	pods := &corev1.PodList{}
	err := d.target.client.List(ctx, pods, client.InNamespace(instance.Status.Namespace), client.MatchingLabels{bergv1.LabelContainer: hostname})
	if err != nil {
		return nil, fmt.Errorf("list the pods of container %s: %w", hostname, err)
	}
	i := slices.IndexFunc(pods.Items, func(pod corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp.IsZero()
	})
	if i < 0 {
		return nil, fmt.Errorf("no pod of container %s runs in namespace %s", hostname, instance.Status.Namespace)
	}
	return &pods.Items[i], nil
}

func (d *demo) readFlagContent(ctx context.Context, instance *bergv1.ChallengeInstance) (string, error) {
	content, err := d.flagObject(ctx, instance, "flag-content", "content")
	if err != nil {
		return "", err
	}
	flag, ended := strings.CutSuffix(string(content), "\n")
	if !ended {
		return "", errors.New("the content does not end with a line feed")
	}
	return flag, nil
}

// runFlagExecutable runs the program on this machine: it is static and needs nothing around it.
func (d *demo) runFlagExecutable(ctx context.Context, instance *bergv1.ChallengeInstance) (string, error) {
	content, err := d.flagObject(ctx, instance, "flag-executable", "executable")
	if err != nil {
		return "", err
	}
	if bytes.Contains(content, []byte(instance.Spec.Flag)) {
		return "", errors.New("the program shows the flag to everyone who reads it")
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		d.show.note("not run, since this machine is no linux/amd64: the program is there, %d bytes", len(content))
		return instance.Spec.Flag, nil
	}
	dir, err := os.MkdirTemp("", "berg-demo-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "get_flag")
	if err := os.WriteFile(program, content, 0o700); err != nil {
		return "", err
	}
	output, err := exec.CommandContext(ctx, program).Output()
	if err != nil {
		return "", fmt.Errorf("run the program: %w", err)
	}
	return string(output), nil
}

func (d *demo) flagObject(ctx context.Context, instance *bergv1.ChallengeInstance, name, key string) ([]byte, error) {
	object := &corev1.ConfigMap{}
	if err := d.target.client.Get(ctx, client.ObjectKey{Namespace: instance.Status.Namespace, Name: name}, object); err != nil {
		return nil, fmt.Errorf("get ConfigMap %s: %w", name, err)
	}
	content, found := object.BinaryData[key]
	if !found {
		return nil, fmt.Errorf("ConfigMap %s has no binary key %s", name, key)
	}
	return content, nil
}

func (d *demo) readDeploymentVariable(ctx context.Context, instance *bergv1.ChallengeInstance) (string, error) {
	deployment := &appsv1.Deployment{}
	if err := d.target.client.Get(ctx, client.ObjectKey{Namespace: instance.Status.Namespace, Name: "bot"}, deployment); err != nil {
		return "", fmt.Errorf("get Deployment bot: %w", err)
	}
	for _, variable := range deployment.Spec.Template.Spec.Containers[0].Env {
		if variable.Name == "FLAG" {
			return variable.Value, nil
		}
	}
	return "", errors.New("the Deployment of the bot has no variable FLAG")
}

// listInstances prints what kubectl says.
func (d *demo) listInstances(ctx context.Context) error {
	return d.show.step(ctx, "kubectl get ci -A", nil, func(ctx context.Context) (outcome, error) {
		command := d.target.command(ctx, d.target.kubectl, "get", "ci", "-A")
		var stderr bytes.Buffer
		command.Stderr = &stderr
		output, err := command.Output()
		if err != nil {
			return "", fmt.Errorf("%w: %s", err, stderr.String())
		}
		_, err = io.Copy(d.show.notes(), bytes.NewReader(output))
		return "", err
	})
}
