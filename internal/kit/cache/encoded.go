package cache

import (
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// encoded is an object as it is kept: encoded. Of a Pod or a Deployment nearly all fields
// are empty, and take more than a kilobyte; every map of labels takes a third of one.
// It is made again for everybody who reads it.
type encoded struct {
	metav1.Object // nil: of what is kept, an informer asks for no more than the following

	namespace, name, version string
	kind                     reflect.Type
	data                     []byte
}

// encodable are the kinds of Kubernetes itself, and no custom resource.
type encodable interface {
	client.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// encode returns what is kept of an object: the object itself where it cannot be encoded.
func encode(object client.Object) (client.Object, error) {
	o, ok := object.(encodable)
	if !ok {
		return object, nil
	}
	data, err := o.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", o, err)
	}
	// One text, and not those that were decoded: they would keep their surroundings.
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

// decode returns an object as it is read.
func decode(kept any) any {
	p, ok := kept.(*encoded)
	if !ok {
		return kept
	}
	object := reflect.New(p.kind).Interface().(encodable)
	if err := object.Unmarshal(p.data); err != nil {
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
