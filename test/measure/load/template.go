package main

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/uuid"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// template is what the operator wrote for one instance, to be written again for
// others.
type template struct {
	// owner, uid, id and name are those of that instance.
	owner, uid, id, name string
	objects              []templateObject
	status               string
}

type templateObject struct {
	kind client.Object
	text string
}

// kinds of what the operator writes, in its order.
func kinds() []client.ObjectList {
	return []client.ObjectList{
		&ciliumv2.CiliumNetworkPolicyList{}, &corev1.ServiceList{}, &gatewayv1.HTTPRouteList{}, &gatewayv1.TLSRouteList{},
		&corev1.ConfigMapList{}, &policyv1.PodDisruptionBudgetList{}, &appsv1.DeploymentList{},
	}
}

// learnTemplate reads what the operator wrote for an instance that runs.
func learnTemplate(ctx context.Context, c client.Client, key types.NamespacedName) (*template, error) {
	instance := &bergv1.ChallengeInstance{}
	if err := c.Get(ctx, key, instance); err != nil {
		return nil, err
	}
	t := &template{owner: instance.Spec.OwnerID, uid: string(instance.UID), id: instance.Status.InstanceID, name: instance.Name}
	status, err := json.Marshal(instance.Status)
	if err != nil {
		return nil, err
	}
	t.status = string(status)

	namespace := &corev1.Namespace{}
	if err := c.Get(ctx, client.ObjectKey{Name: instance.Status.Namespace}, namespace); err != nil {
		return nil, err
	}
	if err := t.add(namespace); err != nil {
		return nil, err
	}
	for _, list := range kinds() {
		err := c.List(ctx, list, client.InNamespace(instance.Status.Namespace), client.MatchingLabels{bergv1.LabelManagedBy: bergv1.ManagedBy})
		if err != nil {
			return nil, err
		}
		err = meta.EachListItem(list, func(o runtime.Object) error { return t.add(o.(client.Object)) })
		if err != nil {
			return nil, err
		}
	}
	return t, nil
}

// add keeps an object without what the API server has added to it. Containers have no startup probe: what Running costs
// because it waits for connections belongs to the operator's time.
func (t *template) add(o client.Object) error {
	o.SetUID("")
	o.SetResourceVersion("")
	o.SetGeneration(0)
	o.SetManagedFields(nil)
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return err
	}
	delete(fields, "status")
	metadata := fields["metadata"].(map[string]any)
	delete(metadata, "creationTimestamp")
	switch o.(type) {
	case *corev1.Namespace:
		delete(fields, "spec")
		delete(metadata["labels"].(map[string]any), corev1.LabelMetadataName)
	case *corev1.Service:
		spec := fields["spec"].(map[string]any)
		for _, allotted := range []string{"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"} {
			delete(spec, allotted)
		}
		for _, port := range listOf(spec, "ports") {
			delete(port.(map[string]any), "nodePort")
		}
	case *appsv1.Deployment:
		delete(metadata["annotations"].(map[string]any), "deployment.kubernetes.io/revision")
		pod := fields["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
		for _, c := range listOf(pod, "containers") {
			delete(c.(map[string]any), "startupProbe")
		}
	}
	data, err = json.Marshal(fields)
	if err != nil {
		return err
	}
	t.objects = append(t.objects, templateObject{kind: o, text: string(data)})
	return nil
}

// listOf returns a list in an object, none if it is absent.
func listOf(object map[string]any, name string) []any {
	list, _ := object[name].([]any)
	return list
}

// written is what the bare client writes for one instance.
type written struct {
	objects                    []client.Object
	creating, starting         []byte // merge patches of the status
	running, terminating, over []byte
}

// steps are the objects in the operator's order: the namespace, what it writes concurrently, and
// the Deployments.
func (w *written) steps() [][]client.Object {
	deployments := slices.IndexFunc(w.objects, func(o client.Object) bool {
		_, is := o.(*appsv1.Deployment)
		return is
	})
	return [][]client.Object{w.objects[:1], w.objects[1:deployments], w.objects[deployments:]}
}

// fill makes what is to be written for an instance.
func (t *template) fill(instance *bergv1.ChallengeInstance) (*written, error) {
	replace := strings.NewReplacer(
		t.owner, instance.Spec.OwnerID, t.uid, string(instance.UID), t.id, uuid.NewString(),
		`"`+t.name+`"`, `"`+instance.Name+`"`, arena+"/"+t.name, arena+"/"+instance.Name)
	w := &written{}
	for _, o := range t.objects {
		object := reflect.New(reflect.TypeOf(o.kind).Elem()).Interface().(client.Object)
		if err := json.Unmarshal([]byte(replace.Replace(o.text)), object); err != nil {
			return nil, fmt.Errorf("fill %T: %w", object, err)
		}
		w.objects = append(w.objects, object)
	}
	whole := replace.Replace(t.status)
	conditions := func(phase bergv1.Phase) []byte {
		return fmt.Appendf(nil, `{"status":{"phase":%q,"conditions":%s}}`, phase, conditionsOf(whole))
	}
	w.creating = []byte(`{"status":` + strings.Replace(whole, `"phase":"Running"`, `"phase":"Creating"`, 1) + `}`)
	w.starting, w.running = conditions(bergv1.PhaseStarting), conditions(bergv1.PhaseRunning)
	w.terminating, w.over = conditions(bergv1.PhaseTerminating), conditions(bergv1.PhaseTerminated)
	return w, nil
}
