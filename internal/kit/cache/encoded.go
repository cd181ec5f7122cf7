package cache

import (
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// encoded is an object in the cache. Nearly all fields of a Pod or a Deployment are empty and
// take more than a kilobyte; every map of labels takes a third of one. The object is decoded
// for each reader. An informer compares versions and forms keys, so these three texts are not in the encoded form alone.
type encoded struct {
	metav1.Object // nil: an informer asks a cached object for nothing but the following

	namespace, name, version string
	kind                     reflect.Type
	data                     []byte
}

// encodable are the built-in kinds of Kubernetes, and no custom resources.
type encodable interface {
	client.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// encode returns the cached form of an object: the object itself if it cannot be encoded.
func encode(object client.Object) (client.Object, error) {
	o, ok := object.(encodable)
	if !ok {
		return object, nil
	}
	data, err := o.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", o, err)
	}
	// One copy of the strings: the decoded ones would keep the memory around them alive.
	text := o.GetNamespace() + o.GetName() + o.GetResourceVersion()
	name := len(o.GetNamespace())
	version := name + len(o.GetName())
	return &encoded{
		namespace: text[:name], name: text[name:version], version: text[version:],
		kind: reflect.TypeOf(o).Elem(), data: data,
	}, nil
}

func (p *encoded) GetNamespace() string       { return p.namespace }
func (p *encoded) GetName() string            { return p.name }
func (p *encoded) GetResourceVersion() string { return p.version }

func (p *encoded) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }
func (p *encoded) DeepCopyObject() runtime.Object   { return p }

// decode returns an object for a reader.
func decode(kept any) any {
	p, ok := kept.(*encoded)
	if !ok {
		return kept
	}
	object := reflect.New(p.kind).Interface().(encodable)
	if err := object.Unmarshal(p.data); err != nil {
		// This process has encoded the bytes itself, so they are a mistake of the code or of the memory. No reader could continue
		// without the object.
		panic(fmt.Sprintf("what was encoded cannot be decoded: %T %s/%s: %v", object, p.namespace, p.name, err))
	}
	return object
}

func decodeAll(kept []any) []any {
	for i := range kept {
		kept[i] = decode(kept[i])
	}
	return kept
}
