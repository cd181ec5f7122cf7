package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// downTimeout bounds the whole removal.
const downTimeout = 5 * time.Minute

// down removes what the demo made, wherever it made it.
func down(ctx context.Context, show *show, opts options) error {
	target, err := locate(ctx, opts)
	if err != nil {
		return err
	}
	d := newDemo(show, opts)
	d.target = target
	if target.own {
		return d.removeCluster(ctx)
	}
	if err := d.confirm("The demo removes its samples there, and the operator if it installed it."); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{d.connect, d.removeSamples, d.removeOperator} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) removeCluster(ctx context.Context) error {
	look := []string{"go run ./test/cluster status --name " + d.target.name}
	return d.show.step(ctx, fmt.Sprintf("remove cluster %q", d.target.name), look, func(ctx context.Context) (outcome, error) {
		if err := stopOperatorProcess(ctx, d.target.name); err != nil {
			return "", err
		}
		if err := d.openly(d.target.runner(ctx, "down", "--name", d.target.name)); err != nil {
			return "", err
		}
		state, err := stateDir(d.target.name)
		if err != nil {
			return "", err
		}
		if err := os.RemoveAll(state); err != nil {
			return "", err
		}
		// The folder of all demos goes with the last of them; another one's keeps it.
		_ = os.Remove(filepath.Dir(state))
		return "", nil
	})
}

// removeSamples lets the instances end while the operator is there to do it, then removes the rest.
func (d *demo) removeSamples(ctx context.Context) error {
	return d.show.step(ctx, "remove the samples", []string{d.kubectlLine("describe ci -n " + samplesNamespace)}, func(ctx context.Context) (outcome, error) {
		instances, err := d.demoInstances(ctx)
		if err != nil {
			return "", err
		}
		if err := d.deleteInstances(ctx, instances); err != nil {
			return "", err
		}
		err = d.target.client.DeleteAllOf(ctx, &bergv1.Challenge{}, client.InNamespace(samplesNamespace), client.MatchingLabels{demoLabel: demoValue})
		if err != nil && !absent(err) {
			return "", fmt.Errorf("delete the Challenges: %w", err)
		}
		namespace := &corev1.Namespace{}
		if err := d.target.client.Get(ctx, client.ObjectKey{Name: samplesNamespace}, namespace); err != nil {
			return "", client.IgnoreNotFound(err)
		}
		if namespace.Labels[demoLabel] != demoValue {
			return outcome("namespace " + samplesNamespace + " stays: it was there before the demo"), nil
		}
		others, err := d.countOthers(ctx, client.InNamespace(samplesNamespace))
		if err != nil {
			return "", err
		}
		if others > 0 {
			return outcome(fmt.Sprintf("namespace %s stays: it holds %d objects that are not the demo's", samplesNamespace, others)), nil
		}
		return "", client.IgnoreNotFound(d.target.client.Delete(ctx, namespace))
	})
}

// removeOperator removes the operator and its CRDs if the demo installed them.
func (d *demo) removeOperator(ctx context.Context) error {
	return d.show.step(ctx, "remove the operator", nil, func(ctx context.Context) (outcome, error) {
		namespace := &corev1.Namespace{}
		if err := d.target.client.Get(ctx, client.ObjectKey{Name: operatorNamespace}, namespace); client.IgnoreNotFound(err) != nil {
			return "", err
		}
		// Without labels also when there is no such namespace.
		if namespace.Labels[demoLabel] != demoValue {
			return "it stays: the demo did not install it", nil
		}
		others, err := d.countOthers(ctx)
		if err != nil {
			return "", err
		}
		if others > 0 {
			return outcome(fmt.Sprintf("it stays, for %d Challenges and instances that are not the demo's: \"make undeploy\" removes it with them", others)), nil
		}
		return "", d.make(ctx, "undeploy", "KUBECTL="+d.target.kubectl)
	})
}

// countOthers counts the Challenges and instances that the demo did not create.
func (d *demo) countOthers(ctx context.Context, options ...client.ListOption) (int, error) {
	count := 0
	for _, list := range []client.ObjectList{&bergv1.ChallengeList{}, &bergv1.ChallengeInstanceList{}} {
		if err := d.target.client.List(ctx, list, options...); err != nil && !absent(err) {
			return 0, fmt.Errorf("look for objects that are not the demo's: %w", err)
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			if object, ok := item.(client.Object); ok && object.GetLabels()[demoLabel] != demoValue {
				count++
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	return count, nil
}

// webNamespace is that of the web instance: its owner stands in the sample.
const webNamespace = "challenge-7c0a1d52-3f0e-4b8e-9a55-0f6a2b1c9d01"

// farewell says what is left running and how to look at it.
func (d *demo) farewell() {
	if !d.opts.keep {
		return
	}
	d.show.line("")
	d.show.line("Instances web and pwn keep running. Have a look around:")
	if d.target.own {
		d.show.line("  export KUBECONFIG=%s", d.target.kubeconfig)
	}
	for _, args := range []string{"get ci -A --watch", "describe ci web -n berg", "get all -n " + webNamespace} {
		d.show.line("  %s", d.kubectlLine(args))
	}
	d.show.line("and remove everything with: %s", d.downLine())
	d.invite()
}

// downLine is the command that removes what this demo made.
func (d *demo) downLine() string {
	if d.opts.name == defaultName {
		return "make demo-down"
	}
	return "go run ./test/samples/demo down --name " + d.opts.name
}
