// Package memory_test bounds what the caches of every API group keep of objects that others can make.
package memory_test

import (
	"fmt"
	"reflect"
	goruntime "runtime"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/cilium/cilium/pkg/policy/api"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/internal/gate/follow"
	"github.com/bergctf/berg-operator/internal/kit/cache"
	"github.com/bergctf/berg-operator/internal/operator"
	"github.com/bergctf/berg-operator/internal/platform/instances"
)

// tekton returns an object of a kind of Tekton with content.
func tekton(kind, content string) client.Object {
	u := &unstructured.Unstructured{Object: map[string]any{
		"spec":   map[string]any{"params": []any{map[string]any{"name": "a", "value": content}}},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Succeeded", "message": content}}, "podName": content},
	}}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "tekton.dev", Version: "v1", Kind: kind})
	return u
}

// large are objects, by kind, with content in every part that a tenant may fill.
var large = map[string]func(content string) client.Object{
	"ConfigMap": func(content string) client.Object { return &corev1.ConfigMap{Data: map[string]string{"a": content}} },
	"Service": func(content string) client.Object {
		return &corev1.Service{Spec: corev1.ServiceSpec{ExternalName: content}}
	},
	"Pod": func(content string) client.Object {
		return &corev1.Pod{
			Spec:   corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Ports: []corev1.ContainerPort{{Name: content}}}}},
			Status: corev1.PodStatus{Phase: corev1.PodFailed, Message: content, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Message: content}}},
		}
	},
	"Deployment": func(content string) client.Object {
		return &appsv1.Deployment{
			Spec:   appsv1.DeploymentSpec{Replicas: ptr.To[int32](1), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Hostname: content}}},
			Status: appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: "True", Message: content}}},
		}
	},
	"Job": func(content string) client.Object {
		return &batchv1.Job{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Hostname: content}}}}
	},
	"NetworkPolicy": func(content string) client.Object {
		return &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{
			{From: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: content}}}},
		}}}
	},
	"CiliumNetworkPolicy": func(content string) client.Object {
		return &ciliumv2.CiliumNetworkPolicy{Spec: &api.Rule{Description: content}}
	},
	"PodDisruptionBudget": func(string) client.Object { return &policyv1.PodDisruptionBudget{} },
	"HTTPRoute": func(content string) client.Object {
		return &gatewayv1.HTTPRoute{Spec: gatewayv1.HTTPRouteSpec{Hostnames: []gatewayv1.Hostname{gatewayv1.Hostname(content)}}}
	},
	"TLSRoute": func(content string) client.Object {
		return &gatewayv1.TLSRoute{Spec: gatewayv1.TLSRouteSpec{Hostnames: []gatewayv1.Hostname{gatewayv1.Hostname(content)}}}
	},
	"Namespace": func(content string) client.Object {
		return &corev1.Namespace{Status: corev1.NamespaceStatus{Conditions: []corev1.NamespaceCondition{{Type: "a", Message: content}}}}
	},
	"ServiceAccount": func(content string) client.Object {
		return &corev1.ServiceAccount{Secrets: []corev1.ObjectReference{{Name: content}}}
	},
	"Role": func(content string) client.Object {
		return &rbacv1.Role{Rules: []rbacv1.PolicyRule{{Verbs: []string{content}}}}
	},
	"RoleBinding": func(content string) client.Object {
		return &rbacv1.RoleBinding{Subjects: []rbacv1.Subject{{Name: content}}}
	},
	"ResourceQuota": func(content string) client.Object {
		return &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScope(content)}}}
	},
	"LimitRange": func(content string) client.Object {
		return &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitType(content)}}}}
	},
	"Pipeline":    func(content string) client.Object { return tekton("Pipeline", content) },
	"PipelineRun": func(content string) client.Object { return tekton("PipelineRun", content) },
	"TaskRun":     func(content string) client.Object { return tekton("TaskRun", content) },
}

// Everyone who may write in one namespace can label as many and as large objects there as they like, also with the
// annotations by which objects of a family prove their owner. None of them may fill the memory of the operator.
func TestLabelledObjectsTakeLittleMemory(t *testing.T) {
	const objects = 40
	perFamily := map[string]struct {
		kinds      []string
		namespaces []string
		own        map[string]string // labels, and annotations
	}{
		bergv1.GroupVersion.Group: {
			kinds: []string{"Namespace", "ConfigMap", "Service", "Pod", "Deployment", "Job", "NetworkPolicy", "CiliumNetworkPolicy", "PodDisruptionBudget", "HTTPRoute", "TLSRoute"},
			// Everyone who may create namespaces can create one with the name of an instance's.
			namespaces: []string{"tenant", "challenge-tenant"},
			own:        map[string]string{bergv1.LabelManagedBy: bergv1.ManagedBy, bergv1.LabelComponent: bergv1.ComponentPod},
		},
		quixv1.GroupVersion.Group: {
			kinds:      []string{"Namespace", "RoleBinding"},
			namespaces: []string{"tenant", "a-env"},
			own:        map[string]string{quixv1.LabelManagedBy: quixv1.ManagedBy, quixv1.AnnotationUID: "u"},
		},
		hexactfv1.GroupVersion.Group: {
			kinds:      []string{"Pod", "Service", "Deployment", "NetworkPolicy"},
			namespaces: []string{"tenant"},
			own:        map[string]string{hexactfv1.LabelManagedBy: hexactfv1.ManagedBy, hexactfv1.LabelPartOf: "a", hexactfv1.AnnotationUID: "u"},
		},
		tunnelv1.GroupVersion.Group: {
			kinds:      []string{"Namespace", "Pod", "Service", "NetworkPolicy", "RoleBinding"},
			namespaces: []string{"tenant"},
			own:        map[string]string{tunnelv1.LabelManagedBy: tunnelv1.ManagedBy, tunnelv1.LabelRole: tunnelv1.RoleClient, "usvc-dev.developer.microsoft.com/container-network-uid": "u"},
		},
		kibashipv1.GroupVersion.Group: {
			kinds: []string{
				"Namespace", "ServiceAccount", "Role", "RoleBinding", "ResourceQuota", "LimitRange", "NetworkPolicy",
				"Pipeline", "PipelineRun", "TaskRun",
			},
			// A tenant works in the namespace of its Project.
			namespaces: []string{"tenant", "project-a-ns-kibaship-com", "tekton-pipelines"},
			own:        map[string]string{kibashipv1.LabelManagedBy: kibashipv1.ManagedBy, kibashipv1.LabelUUID: "u", kibashipv1.AnnotationProjectUID: "u"},
		},
	}
	for _, f := range families.All() {
		table, ok := perFamily[f.API]
		if !ok {
			t.Errorf("%s: no kinds are listed here", f.API)
			continue
		}
		for _, kind := range table.kinds {
			for _, namespace := range table.namespaces {
				for part, parts := range map[string]func(n int) (content, annotation string){
					"content":     func(n int) (string, string) { return text(n), "" },
					"annotations": func(n int) (string, string) { return "a", text(n) },
				} {
					options := cache.New("berg-operator").Options(f.Cache())
					informer := options.NewInformer(&toolscache.ListWatch{}, &corev1.Pod{}, 0, toolscache.Indexers{})
					store := informer.GetIndexer()
					most := 8 << 10
					if _, loose := large[kind]("").(*unstructured.Unstructured); loose {
						most = 16 << 10 // a map for each object within takes half a kilobyte
					}
					before := heapInUse()
					for n := range objects {
						content, annotation := parts(n)
						o := large[kind](content)
						o.SetName(fmt.Sprint("o", n))
						if kind != "Namespace" {
							o.SetNamespace(namespace)
						} else {
							o.SetName(fmt.Sprint(namespace, n))
						}
						o.SetLabels(table.own)
						annotations := map[string]string{"large": annotation, f.API + "/large": annotation}
						for key, value := range table.own {
							annotations[key] = value
						}
						o.SetAnnotations(annotations)
						kept, err := options.DefaultTransform(o)
						if err != nil {
							t.Fatal(err)
						}
						if err := store.Add(kept); err != nil {
							t.Fatal(err)
						}
					}
					each := (heapInUse() - before) / objects
					goruntime.KeepAlive(store)
					if each > most {
						t.Errorf("%s: a %s in namespace %s with large %s takes %d bytes, more than %d", f.API, kind, namespace, part, each, most)
					}
				}
			}
		}
	}
}

// Tenants and platforms write custom resources, with as large metadata as they like. The kinds come from the schemes of the programs,
// so a new one is held to the limit without a line here.
func TestCustomResourcesTakeLittleMemory(t *testing.T) {
	kinds := 0
	for _, f := range families.All() {
		scheme, err := operator.NewScheme(f)
		if err != nil {
			t.Fatal(err)
		}
		for gvk, kind := range scheme.AllKnownTypes() {
			if o, ok := reflect.New(kind).Interface().(client.Object); !ok || gvk.Group != f.API || o == nil {
				continue // a list, or options of requests
			}
			kinds++
			options := cache.New("berg-operator").Options(f.Cache())
			checkMetadata(t, "berg-operator", gvk, kind, options.DefaultTransform)
		}
	}
	for gvk, kind := range instances.Scheme().AllKnownTypes() {
		if _, ok := reflect.New(kind).Interface().(client.Object); ok && (gvk.Group == bergv1.GroupVersion.Group || kind == reflect.TypeFor[corev1.ConfigMap]()) {
			checkMetadata(t, "berg-api", gvk, kind, instances.Trim)
		}
	}
	for gvk, kind := range follow.Scheme().AllKnownTypes() {
		if _, ok := reflect.New(kind).Interface().(client.Object); ok && gvk.Group == gatewayv1.GroupName {
			checkMetadata(t, "berg-gate", gvk, kind, follow.CacheOptions().DefaultTransform)
		}
	}
	for object, options := range follow.CacheOptions().ByObject {
		gvk, err := apiutil.GVKForObject(object, follow.Scheme())
		if err != nil {
			t.Fatal(err)
		}
		checkMetadata(t, "berg-gate", gvk, reflect.TypeOf(object).Elem(), options.Transform)
	}
	namespace := corev1.SchemeGroupVersion.WithKind("Namespace")
	checkMetadata(t, "berg-gate", namespace, reflect.TypeFor[metav1.PartialObjectMetadata](), follow.CacheOptions().DefaultTransform)
	if kinds < 12 {
		t.Errorf("only %d kinds were found", kinds)
	}
}

// checkMetadata fills the metadata of an object of a kind, and measures how much is kept.
func checkMetadata(t *testing.T, program string, gvk schema.GroupVersionKind, kind reflect.Type, transform toolscache.TransformFunc) {
	t.Helper()
	const objects, entries, most = 20, 200, 16 << 10
	var store []any
	before := heapInUse()
	for n := range objects {
		o := reflect.New(kind).Interface().(client.Object)
		o.SetName(fmt.Sprint("o", n))
		o.SetNamespace("tenant")
		labels, annotations := map[string]string{}, map[string]string{"large": text(n), gvk.Group + "/large": text(n), corev1.LastAppliedConfigAnnotation: text(n), bergv1.AnnotationCause: text(n)}
		var owners []metav1.OwnerReference
		var managed []metav1.ManagedFieldsEntry
		var finalizers []string
		for e := range entries {
			key, value := fmt.Sprintf("%d-%d-%s", n, e, strings.Repeat("k", 40)), strings.Repeat("v", 50)+fmt.Sprint(n, "-", e)
			labels[key], labels[gvk.Group+"/"+key] = value, value
			annotations[key], annotations[gvk.Group+"/"+key] = strings.Repeat(value, 20), strings.Repeat(value, 20)
			finalizers = append(finalizers, key+"/"+strings.Repeat("f", 60), gvk.Group+"/"+key)
			owners = append(owners, metav1.OwnerReference{APIVersion: "v1", Kind: key, Name: value, UID: types.UID(key)})
			managed = append(managed, metav1.ManagedFieldsEntry{Manager: key, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:` + value + `":{}}`)})
		}
		o.SetLabels(labels)
		o.SetAnnotations(annotations)
		o.SetOwnerReferences(owners)
		o.SetManagedFields(managed)
		o.SetFinalizers(finalizers)
		kept, err := transform(o)
		if err != nil {
			t.Fatal(err)
		}
		store = append(store, kept)
	}
	each := (heapInUse() - before) / objects
	goruntime.KeepAlive(store)
	if each > most {
		t.Errorf("%s: a %s with large metadata takes %d bytes, more than %d", program, gvk.Kind, each, most)
	}
}

func text(n int) string { return fmt.Sprint(n) + strings.Repeat("x", 100<<10) }

// heapInUse collects more than once: the buffers in a sync.Pool outlive one collection.
func heapInUse() int {
	for range 3 {
		goruntime.GC()
	}
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
