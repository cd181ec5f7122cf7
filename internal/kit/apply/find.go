package apply

import (
	"context"
	"reflect"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Find reads into obj, whose name and namespace are set, and reports whether it exists. The cache
// may not yet show another process's write, or may omit an object that has lost a label, so absence
// is confirmed by the API server. Its caller reports a deletion as complete, or frees a name, so a false absence would do harm
// and a read of the API server is cheap.
func Find(ctx context.Context, w Writer, obj client.Object) (bool, error) {
	key := client.ObjectKeyFromObject(obj)
	err := read(ctx, w.Client, key, obj)
	if Absent(err) {
		err = read(ctx, w.Live, key, obj)
	}
	return err == nil, IgnoreAbsent(err)
}

// Read reads the object that has obj's name into obj.
func Read(ctx context.Context, reader client.Reader, obj client.Object) error {
	return read(ctx, reader, client.ObjectKeyFromObject(obj), obj)
}

// read empties obj before: the decoder would keep labels, annotations and owners that the object does not have.
func read(ctx context.Context, reader client.Reader, key client.ObjectKey, obj client.Object) error {
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(blank(obj)).Elem())
	return reader.Get(ctx, key, obj)
}
