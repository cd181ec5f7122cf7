package apply

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Find reads into obj, whose name and namespace are set, and reports whether it exists. The cache
// may not yet show another process's write, or may omit an object that has lost a label, so absence
// is confirmed by the API server.
func Find(ctx context.Context, w Writer, obj client.Object) (bool, error) {
	key := client.ObjectKeyFromObject(obj)
	err := w.Client.Get(ctx, key, obj)
	if Absent(err) {
		err = w.Live.Get(ctx, key, obj)
	}
	return err == nil, IgnoreAbsent(err)
}
