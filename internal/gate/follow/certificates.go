package follow

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
)

// Certificates watches the Secrets that Gateways name, each by its name, so that the right to read these is enough. RBAC can name
// single Secrets. A watch of all Secrets of a namespace would need the right to read them all.
type Certificates struct {
	client kubernetes.Interface
	state  *State

	mu      sync.Mutex
	wanted  map[types.NamespacedName]context.CancelFunc
	changes chan []types.NamespacedName
}

// NewCertificates returns Certificates that tell a State. Run starts them.
func NewCertificates(client kubernetes.Interface, state *State) *Certificates {
	c := &Certificates{client: client, state: state, wanted: map[types.NamespacedName]context.CancelFunc{}, changes: make(chan []types.NamespacedName, 1)}
	state.Certificates = c.want
	return c
}

// want replaces the names. It does not wait for the watches: State calls it with its lock held.
func (c *Certificates) want(names []types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.changes:
	default:
	}
	c.changes <- names
}

// Run watches until ctx is done.
func (c *Certificates) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case names := <-c.changes:
			c.follow(ctx, names)
		}
	}
}

// follow begins the watches of new names, and ends those of names that no Gateway has any more. One goroutine calls it.
func (c *Certificates) follow(ctx context.Context, names []types.NamespacedName) {
	current := map[types.NamespacedName]bool{}
	for _, name := range names {
		current[name] = true
		if c.wanted[name] == nil {
			watched, stop := context.WithCancel(ctx) //nolint:gosec // follow calls it when no Gateway names the Secret
			c.wanted[name] = stop
			go c.watch(watched, name)
		}
	}
	for name, stop := range c.wanted {
		if !current[name] {
			stop()
			delete(c.wanted, name)
		}
	}
}

// watch follows one Secret by its name, until ctx ends. A Secret that cannot be parsed has
// an error in place of its last certificate.
func (c *Certificates) watch(ctx context.Context, name types.NamespacedName) {
	source := toolscache.NewListWatchFromClient(c.client.CoreV1().RESTClient(), "secrets", name.Namespace, fields.OneTermEqualSelector("metadata.name", name.Name))
	changed := func(object any) {
		if secret, ok := object.(*corev1.Secret); ok {
			value, err := parse(secret)
			c.state.SetCertificate(name, value, err)
		}
	}
	_, informer := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: source, ObjectType: &corev1.Secret{},
		Handler: toolscache.ResourceEventHandlerFuncs{
			AddFunc: changed, UpdateFunc: func(_, object any) { changed(object) },
			DeleteFunc: func(any) { c.state.SetCertificate(name, nil, errNoCertificate) },
		},
		Transform: func(object any) (any, error) {
			if secret, ok := object.(*corev1.Secret); ok {
				secret.ManagedFields, secret.Annotations = nil, nil
			}
			return object, nil
		},
	})
	informer.RunWithContext(ctx)
}

// parse reads the certificate of a Secret. Errors have nothing of its content.
func parse(secret *corev1.Secret) (*tls.Certificate, error) {
	if len(secret.Data[corev1.TLSCertKey]) == 0 || len(secret.Data[corev1.TLSPrivateKeyKey]) == 0 {
		return nil, fmt.Errorf("%s and %s must be set", corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
	certificate, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, errors.New("tls.crt and tls.key are not a certificate in PEM with its key")
	}
	return &certificate, nil
}
