package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

const (
	samplesNamespace = "berg"
	// defaultRegistry is what the images of the repository's files begin with.
	defaultRegistry = "ghcr.io/bergctf"
	fieldOwner      = client.FieldOwner("berg-demo")
)

// loadSamples reads config/berg/samples in the order of its kustomization.
func (d *demo) loadSamples() ([]*unstructured.Unstructured, error) {
	return d.loadKustomization(filepath.Join(d.target.root, "config", "berg", "samples"))
}

// loadKustomization reads the resources of a kustomization that only lists files, marks them as the
// demo's and lets their images come from --registry.
func (d *demo) loadKustomization(folder string) ([]*unstructured.Unstructured, error) {
	text, err := os.ReadFile(filepath.Join(folder, "kustomization.yaml"))
	if err != nil {
		return nil, err
	}
	var list struct {
		Resources []string `json:"resources"`
	}
	if err := yaml.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", folder, err)
	}
	objects := make([]*unstructured.Unstructured, 0, len(list.Resources))
	for _, name := range list.Resources {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return nil, err
		}
		if d.opts.registry != "" {
			text = []byte(strings.ReplaceAll(string(text), defaultRegistry+"/", d.opts.registry+"/"))
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, object); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		labels := object.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[demoLabel] = demoValue
		object.SetLabels(labels)
		objects = append(objects, object)
	}
	return objects, nil
}

// sampleImages are the images of the Challenges among the objects, each once.
func sampleImages(objects []*unstructured.Unstructured) []string {
	var images []string
	for _, object := range objects {
		containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "containers")
		for _, container := range containers {
			fields, ok := container.(map[string]any)
			if !ok {
				continue
			}
			if image, ok := fields["image"].(string); ok && !slices.Contains(images, image) {
				images = append(images, image)
			}
		}
	}
	return images
}

// checkSamplesAreOurs refuses to replace objects of the same names that the demo did not create.
func (d *demo) checkSamplesAreOurs(ctx context.Context) error {
	if d.target.own {
		return nil
	}
	return d.show.step(ctx, "check that nothing of yours has the samples' names", nil, func(ctx context.Context) (outcome, error) {
		samples, err := d.loadSamples()
		if err != nil {
			return "", err
		}
		var foreign []string
		for _, sample := range samples {
			found := &unstructured.Unstructured{}
			found.SetGroupVersionKind(sample.GroupVersionKind())
			err := d.target.client.Get(ctx, client.ObjectKeyFromObject(sample), found)
			if absent(err) {
				continue
			}
			if err != nil {
				return "", err
			}
			if found.GetLabels()[demoLabel] != demoValue {
				foreign = append(foreign, describe(found))
			}
		}
		if len(foreign) > 0 {
			return "", fmt.Errorf("these are not the demo's: %s: rename or delete them, or use another cluster", strings.Join(foreign, ", "))
		}
		return "", nil
	})
}

// removeEarlierInstances lets an earlier demo's instances end, so that this one shows a beginning.
func (d *demo) removeEarlierInstances(ctx context.Context) error {
	instances, err := d.demoInstances(ctx)
	if err == nil && len(instances) == 0 {
		return nil
	}
	look := []string{d.kubectlLine("describe ci -n " + samplesNamespace)}
	return d.show.step(ctx, "remove the instances of an earlier demo", look, func(ctx context.Context) (outcome, error) {
		if err != nil {
			return "", err
		}
		if d.target.simulated {
			// Its operator may have ended with the machine; without one no instance ends.
			if err := d.ensureOperatorProcess(ctx); err != nil {
				return "", err
			}
		}
		return outcome(fmt.Sprint(len(instances))), d.deleteInstances(ctx, instances)
	})
}

func (d *demo) ensureOperatorProcess(ctx context.Context) error {
	running, err := operatorProcessRuns(d.target.name)
	if err != nil || running {
		return err
	}
	if err := d.make(ctx, "build"); err != nil {
		return err
	}
	state, err := stateDir(d.target.name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return err
	}
	_, err = d.launch(ctx, state, filepath.Join(state, "operator.log"))
	return err
}

func (d *demo) demoInstances(ctx context.Context) ([]bergv1.ChallengeInstance, error) {
	list := &bergv1.ChallengeInstanceList{}
	err := d.target.client.List(ctx, list, client.InNamespace(samplesNamespace), client.MatchingLabels{demoLabel: demoValue})
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the instances: %w", err)
	}
	return list.Items, nil
}

// deleteInstances deletes the instances and waits until the operator has let them go.
func (d *demo) deleteInstances(ctx context.Context, instances []bergv1.ChallengeInstance) error {
	names := make([]string, 0, len(instances))
	for _, instance := range instances {
		names = append(names, instance.Name)
		// What it was before is of no interest any more, only how it ends.
		d.seen[instance.UID] = instance.Status
		if err := client.IgnoreNotFound(d.target.client.Delete(ctx, &instance)); err != nil {
			return fmt.Errorf("delete instance %s: %w", instance.Name, err)
		}
	}
	return d.follow(ctx, endTimeout, names, func(instance *bergv1.ChallengeInstance) bool { return instance == nil })
}

// applySamples creates the samples. On the demo's own cluster it also brings what an organizer has.
func (d *demo) applySamples(ctx context.Context) error {
	return d.show.step(ctx, "apply config/berg/samples", nil, func(ctx context.Context) (outcome, error) {
		prerequisites, err := d.loadKustomization(filepath.Join(d.target.root, "config", "berg", "samples", "prerequisites"))
		if err != nil {
			return "", err
		}
		for _, object := range prerequisites {
			// In a cluster that the demo did not start it creates only the namespace, and only if it is
			// missing: a Gateway may cost a load balancer. One that was made with a Gateway has both.
			if !d.target.own && (object.GetKind() != "Namespace" || d.exists(ctx, object)) || d.target.gateway {
				continue
			}
			if err := d.apply(ctx, object); err != nil {
				return "", err
			}
		}
		samples, err := d.loadSamples()
		if err != nil {
			return "", err
		}
		for _, object := range samples {
			if err := d.apply(ctx, object); err != nil {
				return "", err
			}
			d.show.note("applied %s", describe(object))
		}
		return outcome(fmt.Sprintf("%d objects in namespace %s", len(samples), samplesNamespace)), nil
	})
}

func (d *demo) exists(ctx context.Context, object *unstructured.Unstructured) bool {
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(object.GroupVersionKind())
	return d.target.client.Get(ctx, client.ObjectKeyFromObject(object), found) == nil
}

func (d *demo) apply(ctx context.Context, object *unstructured.Unstructured) error {
	configuration := client.ApplyConfigurationFromUnstructured(object.DeepCopy())
	if err := d.target.client.Apply(ctx, configuration, fieldOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("apply %s: %w", describe(object), err)
	}
	return nil
}

// describe names an object as kubectl does.
func describe(object *unstructured.Unstructured) string {
	return strings.ToLower(object.GetKind()) + "/" + object.GetName()
}

// absent is true where the object or its whole API does not exist.
func absent(err error) bool {
	var noKind *meta.NoKindMatchError
	return apierrors.IsNotFound(err) || errors.As(err, &noKind)
}
