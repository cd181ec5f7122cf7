package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/launch"
)

const (
	// Names that config/default gives to what it installs.
	operatorNamespace  = "berg-operator-system"
	operatorDeployment = "berg-operator-controller-manager"
	// demoLabel marks what the demo made, so that "down" finds it and nothing else.
	demoLabel = "app.kubernetes.io/part-of"
	demoValue = "berg-demo"
	// processMark in the environment of the operator's process proves that it is the demo's.
	processMark = "BERG_DEMO_OPERATOR"
	// operatorStart bounds how long the operator's process may take to become ready.
	operatorStart = time.Minute
	// pollInterval is the time between two looks at something that cannot be watched.
	pollInterval = 100 * time.Millisecond
)

// buildImages builds the operator and the samples: images for real pods, a program for simulated ones.
func (d *demo) buildImages(ctx context.Context) error {
	if !d.target.own {
		return d.nameImages(ctx)
	}
	if d.target.simulated {
		return d.show.step(ctx, "build the operator", nil, func(ctx context.Context) (outcome, error) {
			return "", d.make(ctx, "build")
		})
	}
	return d.show.step(ctx, "build the images of operator and samples", nil, func(ctx context.Context) (outcome, error) {
		if err := d.make(ctx, "image", "images"); err != nil {
			return "", err
		}
		files, err := d.imageFiles()
		return outcome(fmt.Sprintf("%d images in dist/images", len(files))), err
	})
}

// nameImages says what the cluster must be able to pull: the demo has no right to push anywhere.
func (d *demo) nameImages(ctx context.Context) error {
	return d.show.step(ctx, "name the images that the cluster must be able to pull", nil, func(context.Context) (outcome, error) {
		samples, err := d.loadSamples()
		if err != nil {
			return "", err
		}
		operator, err := d.operatorImage()
		if err != nil {
			return "", err
		}
		images := append([]string{operator}, sampleImages(samples)...)
		for _, image := range images {
			d.show.note("%s", image)
		}
		d.show.note("\"make image images\" builds them into dist/images; push them yourself, and say --registry if they are elsewhere")
		return outcome(fmt.Sprintf("%d images", len(images))), nil
	})
}

// operatorImage is the image that the Makefile would deploy, from --registry if that is given.
func (d *demo) operatorImage() (string, error) {
	text, err := os.ReadFile(filepath.Join(d.target.root, "hack/versions.mk"))
	if err != nil {
		return "", err
	}
	registry := defaultRegistry
	if d.opts.registry != "" {
		registry = d.opts.registry
	}
	for line := range strings.Lines(string(text)) {
		if name, value, found := strings.Cut(line, "?="); found && strings.TrimSpace(name) == "VERSION" {
			return registry + "/berg-operator:v" + strings.TrimSpace(value), nil
		}
	}
	return "", errors.New("hack/versions.mk names no VERSION")
}

func (d *demo) imageFiles() ([]string, error) {
	names := []string{"berg-operator", "web", "pwn", "shop-web", "shop-database", "shop-bot"}
	files := make([]string, len(names))
	for i, name := range names {
		files[i] = filepath.Join(d.target.root, "dist", "images", name+".tar")
		if _, err := os.Stat(files[i]); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// loadImages brings the images into the registry of the demo's own cluster.
func (d *demo) loadImages(ctx context.Context) error {
	if !d.target.own || d.target.simulated {
		return nil
	}
	return d.show.step(ctx, "load the images into the cluster's registry", nil, func(ctx context.Context) (outcome, error) {
		files, err := d.imageFiles()
		if err != nil {
			return "", err
		}
		return "", quietly(d.target.runner(ctx, append([]string{"load", "--name", d.target.name}, files...)...))
	})
}

// gatewayPorts are the operator's settings that agree with the Gateway of the samples.
var gatewayPorts = []string{"CHALLENGE_HTTP_PORT=443", "CHALLENGE_TLS_PORT=8443"}

// deployOperator installs CRDs and operator and waits until it works.
func (d *demo) deployOperator(ctx context.Context) error {
	if d.target.simulated {
		return d.startOperatorProcess(ctx)
	}
	look := []string{
		d.kubectlLine("get pods -n " + operatorNamespace),
		d.kubectlLine("describe pods -n " + operatorNamespace),
		d.kubectlLine("logs -n " + operatorNamespace + " deployment/" + operatorDeployment),
	}
	return d.show.step(ctx, "deploy the operator with config/default", look, func(ctx context.Context) (outcome, error) {
		if !d.target.own {
			found, err := d.findOperator(ctx)
			if err != nil {
				return "", err
			}
			if found != "" {
				return outcome("it is there already, " + found), nil
			}
			if err := d.markOperatorNamespace(ctx); err != nil {
				return "", err
			}
		}
		image, err := d.operatorImage()
		if err != nil {
			return "", err
		}
		arguments := []string{"deploy", "IMG=" + image, "KUBECTL=" + d.target.kubectl}
		if d.target.own {
			arguments = append(arguments, "SETTINGS="+strings.Join(gatewayPorts, " "))
		}
		if err := d.make(ctx, arguments...); err != nil {
			return "", errors.Join(append([]error{err}, d.podReasons(context.WithoutCancel(ctx), operatorNamespace)...)...)
		}
		pods := &corev1.PodList{}
		if err := d.target.client.List(ctx, pods, client.InNamespace(operatorNamespace)); err != nil {
			return "", err
		}
		for _, pod := range pods.Items {
			if pod.DeletionTimestamp.IsZero() && pod.Status.Phase == corev1.PodRunning {
				return outcome(fmt.Sprintf("pod %s runs on node %s", pod.Name, pod.Spec.NodeName)), nil
			}
		}
		return "", errors.New("the Deployment is available but no pod of it runs")
	})
}

// findOperator looks for an operator that the demo did not install.
func (d *demo) findOperator(ctx context.Context) (string, error) {
	deployments := &appsv1.DeploymentList{}
	if err := d.target.client.List(ctx, deployments, client.MatchingLabels{"app.kubernetes.io/name": "berg-operator"}); err != nil {
		return "", fmt.Errorf("look for an operator: %w", err)
	}
	for _, deployment := range deployments.Items {
		namespace := &corev1.Namespace{}
		if err := d.target.client.Get(ctx, client.ObjectKey{Name: deployment.Namespace}, namespace); err != nil {
			return "", err
		}
		if namespace.Labels[demoLabel] != demoValue {
			return deployment.Namespace + "/" + deployment.Name, nil
		}
	}
	return "", nil
}

// markOperatorNamespace creates the namespace with the mark before anything is in it: a demo that is
// interrupted half-way must still find what it made.
func (d *demo) markOperatorNamespace(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: operatorNamespace, Labels: map[string]string{demoLabel: demoValue},
	}}
	if err := d.target.client.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace %s: %w", operatorNamespace, err)
	}
	return nil
}

// startOperatorProcess runs the operator on this machine: a simulated pod executes nothing.
func (d *demo) startOperatorProcess(ctx context.Context) error {
	state, err := stateDir(d.target.name)
	if err != nil {
		return err
	}
	logFile := filepath.Join(state, "operator.log")
	return d.show.step(ctx, "install the CRDs and start the operator as a process", []string{logFile}, func(ctx context.Context) (outcome, error) {
		if err := d.make(ctx, "install", "KUBECTL="+d.target.kubectl); err != nil {
			return "", err
		}
		if err := stopOperatorProcess(ctx, d.target.name); err != nil {
			return "", err
		}
		if err := os.MkdirAll(state, 0o700); err != nil {
			return "", err
		}
		pid, err := d.launch(ctx, state, logFile)
		return outcome(fmt.Sprintf("process %d, log in %s", pid, logFile)), err
	})
}

// launch starts the operator, which outlives the demo, and waits until it says that it is ready.
func (d *demo) launch(ctx context.Context, state, logFile string) (int, error) {
	if err := os.RemoveAll(logFile); err != nil {
		return 0, err
	}
	// The copy stays what it is while the repository is built again.
	binary := filepath.Join(state, "manager")
	if err := copyProgram(filepath.Join(d.target.root, "bin", "manager"), binary); err != nil {
		return 0, err
	}
	env := []string{processMark + "=" + d.target.name, "LEADER_ELECT=false", "METRICS_BIND_ADDRESS=0"}
	if d.target.own {
		env = append(env, gatewayPorts...)
	}
	operator, err := launch.New(launch.Settings{
		Program: binary, Kubeconfig: d.target.kubeconfig, Namespace: "default", Inherit: true, Env: env, Dir: state, Log: logFile, Outlive: true,
	})
	if err != nil {
		return 0, err
	}
	process, err := operator.Start()
	if err != nil {
		return 0, err
	}
	pid := process.PID()
	if err := os.WriteFile(filepath.Join(state, "operator.pid"), []byte(strconv.Itoa(pid)), 0o600); err != nil {
		return pid, err
	}
	ready, cancel := context.WithTimeout(ctx, operatorStart)
	defer cancel()
	return pid, process.Ready(ready)
}

// stopOperatorProcess ends the operator of an earlier demo, if it still runs. The process number may
// belong to another program by now: only the variable in its environment proves it.
func stopOperatorProcess(ctx context.Context, name string) error {
	state, err := stateDir(name)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(state, "operator.pid"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(state, "operator.pid"), err)
	}
	if isOurs(pid, name) {
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("end the operator's process %d: %w", pid, err)
		}
		if err := waitUntilEnded(ctx, pid, name); err != nil {
			return err
		}
	}
	return os.Remove(filepath.Join(state, "operator.pid"))
}

func waitUntilEnded(ctx context.Context, pid int, name string) error {
	const grace = 10 * time.Second
	kill := time.After(grace)
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for isOurs(pid, name) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the operator's process %d: %w", pid, ctx.Err())
		case <-kill:
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("end the operator's process %d: %w", pid, err)
			}
		case <-ticker.C:
		}
	}
	return nil
}

// isOurs is false for a process that has ended: its environment is empty then.
func isOurs(pid int, name string) bool {
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	for variable := range bytes.SplitSeq(environment, []byte{0}) {
		if string(variable) == processMark+"="+name {
			return true
		}
	}
	return false
}

// stateDir is where the demo keeps what belongs to its own cluster but is not the runner's.
func stateDir(name string) (string, error) {
	cache := os.Getenv("BERG_CLUSTER_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find the cache folder: %w", err)
		}
		cache = filepath.Join(user, "berg-operator")
	}
	return filepath.Join(cache, "demo", name), nil
}

func copyProgram(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	// Removed first: a program that still runs cannot be written to.
	if err := os.Remove(to); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(to, content, 0o700)
}

// make runs targets of the Makefile. Their output is only shown when they fail.
func (d *demo) make(ctx context.Context, targets ...string) error {
	return quietly(d.target.command(ctx, "make", append([]string{"--no-print-directory"}, targets...)...))
}

// openly runs a program whose output is worth reading while it works.
func (d *demo) openly(command *exec.Cmd) error {
	progress := d.show.notes()
	command.Stdout, command.Stderr = progress, progress
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w, as the lines above tell", strings.Join(command.Args, " "), err)
	}
	return nil
}

// quietly runs a program and returns the end of its output with its error.
func quietly(command *exec.Cmd) error {
	output, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(command.Args, " "), err, lastLines(string(output)))
	}
	return nil
}

func lastLines(text string) string {
	const most = 15
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

// kubectlLine is a command that the user can copy.
func (d *demo) kubectlLine(args string) string {
	if d.target.own {
		return "go run ./test/cluster kubectl --name " + d.target.name + " " + args
	}
	return "kubectl " + args
}

// operatorProcessRuns says whether the operator of an earlier demo is still at work.
func operatorProcessRuns(name string) (bool, error) {
	state, err := stateDir(name)
	if err != nil {
		return false, err
	}
	text, err := os.ReadFile(filepath.Join(state, "operator.pid"))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	pid, err := strconv.Atoi(string(text))
	return err == nil && isOurs(pid, name), nil
}
