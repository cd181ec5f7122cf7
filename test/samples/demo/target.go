package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// stopTimeout is how long a program may take to tidy up after an interruption.
const stopTimeout = 30 * time.Second

// target is the cluster that the demo uses.
type target struct {
	root       string // folder of the repository
	own        bool   // made by the demo, not the one of KUBECONFIG
	simulated  bool   // no real pods: nothing can be executed or connected to
	gateway    bool   // routes lead somewhere: to the Gateway that the cluster was made with
	name       string
	kubeconfig string
	kubectl    string
	config     *rest.Config
	client     client.WithWatch
}

// chooseTarget decides which cluster it will be, and says what that means.
func (d *demo) chooseTarget(ctx context.Context) error {
	return d.show.step(ctx, "choose a cluster", nil, func(ctx context.Context) (outcome, error) {
		t, err := locate(ctx, d.opts)
		if err != nil {
			return "", err
		}
		d.target = t
		if !t.own {
			if d.opts.profile != profileAuto {
				return "", errors.New("KUBECONFIG is set, so that cluster is used: unset it, or leave --profile out")
			}
			if err := d.confirm("The demo installs the operator and the samples there, unless they are there already."); err != nil {
				return "", err
			}
			return outcome("that of KUBECONFIG, " + t.kubeconfig), nil
		}
		if d.opts.registry != "" {
			return "", errors.New("--registry is for a cluster of yours: the demo's own cluster has a registry")
		}
		root := os.Geteuid() == 0
		switch d.opts.profile {
		case profileSimulated:
			d.target.simulated = true
		case profileNode, profileNetwork:
			if !root {
				return "", fmt.Errorf("profile %s needs root: run it with sudo, or use --profile simulated", d.opts.profile)
			}
			d.target.gateway = d.opts.profile == profileNetwork
		default:
			d.target.simulated = !root
		}
		if d.target.gateway {
			return outcome(fmt.Sprintf("%q with a real node, real pods and a Gateway", t.name)), nil
		}
		if !d.target.simulated {
			return outcome(fmt.Sprintf("%q with a real node and real pods", t.name)), nil
		}
		d.show.note("Pods are only played here, so no program runs in them: flags are read from the")
		d.show.note("ConfigMaps and Deployments that would bring them into the pods, and no port answers.")
		d.show.note("The operator runs as a process of this machine. As root the demo uses real pods.")
		return outcome(fmt.Sprintf("%q with simulated nodes", t.name)), nil
	})
}

// locate finds the repository and says whose cluster it is.
func locate(ctx context.Context, opts options) (target, error) {
	module, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return target{}, fmt.Errorf("ask go for the module: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(module)))
	if _, err := os.Stat(filepath.Join(root, "config", "berg", "samples", "kustomization.yaml")); err != nil {
		return target{}, errors.New("run it in the repository of the operator")
	}
	t := target{root: root, name: opts.name, kubeconfig: opts.kubeconfig}
	if opts.kubeconfig == "" {
		t.own = true
		return t, nil
	}
	// The exported kubeconfig may be the demo's own: then the cluster is, too.
	if path, err := t.runner(ctx, "kubeconfig", "--name", t.name).Output(); err == nil {
		t.own = strings.TrimSpace(string(path)) == opts.kubeconfig
	}
	return t, nil
}

// confirm asks before a cluster that the demo did not make is changed.
func (d *demo) confirm(what string) error {
	if d.opts.yes {
		return nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", d.target.kubeconfig)
	if err != nil {
		return fmt.Errorf("KUBECONFIG %s: %w", d.target.kubeconfig, err)
	}
	if !isTerminal(os.Stdin) {
		return fmt.Errorf("KUBECONFIG points to %s: say --yes if that cluster may be changed, or unset KUBECONFIG", config.Host)
	}
	d.show.note("%s", what)
	d.show.note("Change the cluster at %s? [y/N]", config.Host)
	answer, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil || !strings.EqualFold(strings.TrimSpace(answer), "y") {
		return errors.New("not confirmed, nothing was changed")
	}
	return nil
}

// runner is a call of the cluster runner.
func (t target) runner(ctx context.Context, args ...string) *exec.Cmd {
	return t.command(ctx, "go", append([]string{"run", "./test/cluster"}, args...)...)
}

// command is a program that runs in the repository and against the target.
func (t target) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, program, args...)
	command.Dir = t.root
	command.Env = os.Environ()
	if t.kubeconfig != "" {
		command.Env = append(command.Env, "KUBECONFIG="+t.kubeconfig)
	}
	// Asked to stop, make and the cluster runner tidy up after themselves. "go run" does not pass a
	// signal on to the program it runs: the whole group gets it.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGINT) }
	command.WaitDelay = stopTimeout
	return command
}

// startCluster starts the demo's own cluster; a cluster that is up already is only checked.
func (d *demo) startCluster(ctx context.Context) error {
	if !d.target.own {
		return nil
	}
	profile := profileNode
	switch {
	case d.target.simulated:
		profile = profileSimulated
	case d.target.gateway:
		profile = profileNetwork
	}
	look := []string{
		"go run ./test/cluster status --name " + d.target.name,
		"go run ./test/cluster logs --name " + d.target.name,
	}
	return d.show.step(ctx, "start the cluster", look,
		func(ctx context.Context) (outcome, error) {
			return "", d.openly(d.target.runner(ctx, "up", "--name", d.target.name, "--profile", profile))
		})
}

// connect makes the clients and says what answers.
func (d *demo) connect(ctx context.Context) error {
	t := &d.target
	return d.show.step(ctx, "connect", nil, func(ctx context.Context) (outcome, error) {
		if t.own {
			path, err := t.runner(ctx, "kubeconfig", "--name", t.name).Output()
			if err != nil {
				return "", fmt.Errorf("ask for the kubeconfig: %w", err)
			}
			t.kubeconfig = strings.TrimSpace(string(path))
		}
		if err := t.connect(ctx); err != nil {
			return "", err
		}
		version, err := discovery.NewDiscoveryClientForConfigOrDie(t.config).ServerVersion()
		if err != nil {
			return "", err
		}
		nodes := &corev1.NodeList{}
		if err := t.client.List(ctx, nodes); err != nil {
			return "", err
		}
		return outcome(fmt.Sprintf("Kubernetes %s at %s, nodes: %d", version.GitVersion, t.config.Host, len(nodes.Items))), nil
	})
}

func (t *target) connect(ctx context.Context) error {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{Precedence: filepath.SplitList(t.kubeconfig)}, nil).ClientConfig()
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", t.kubeconfig, err)
	}
	// The demo polls and watches by itself; a client-side limit would only blur the times it shows.
	config.QPS = -1
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, bergv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	connected, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	t.config, t.client = config, connected
	t.kubectl, err = t.findKubectl(ctx)
	return err
}

// findKubectl prefers the one that is installed, except for the demo's own cluster, whose version it
// has to match.
func (t *target) findKubectl(ctx context.Context) (string, error) {
	if !t.own {
		if path, err := exec.LookPath("kubectl"); err == nil {
			return path, nil
		}
	}
	bin, err := t.runner(ctx, "bin").Output()
	if err != nil {
		return "", fmt.Errorf("ask for the cluster's programs: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(bin)), "kubectl"), nil
}

// nodeAddresses are those under which a NodePort may answer, best first.
func (t *target) nodeAddresses(ctx context.Context) ([]string, error) {
	nodes := &corev1.NodeList{}
	if err := t.client.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("list the nodes: %w", err)
	}
	var addresses []string
	for _, kind := range []corev1.NodeAddressType{corev1.NodeExternalIP, corev1.NodeInternalIP} {
		for _, node := range nodes.Items {
			for _, address := range node.Status.Addresses {
				if address.Type == kind {
					addresses = append(addresses, address.Address)
				}
			}
		}
	}
	if len(addresses) == 0 {
		return nil, errors.New("no node has an address")
	}
	return addresses, nil
}

// reach returns nil if something accepts connections at the address.
func reach(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return connection.Close()
}
