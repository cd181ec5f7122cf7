package hook

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Keys is how the operator gets the key of all secrets. It is read once in the life of the process. Another key needs a new
// process, while the receiver reads its file for each request.
type Keys struct {
	Live      client.Reader
	Client    client.Writer
	Namespace string

	mu  sync.Mutex
	key []byte
}

// keyInterval is how long after an error the key is asked for again.
const keyInterval = 5 * time.Second

// Start implements manager.Runnable. It creates the key before an Application needs it, because the pods of the receiver start only with it.
func (k *Keys) Start(ctx context.Context) error {
	_ = wait.PollUntilContextCancel(ctx, keyInterval, true, func(ctx context.Context) (bool, error) {
		_, err := k.Get(ctx)
		if err != nil {
			log.FromContext(ctx).Error(err, "the receiver of webhooks waits, will be tried again")
		}
		return err == nil, nil
	}) // it fails only at the end of ctx
	return nil
}

// Get returns the key, which it creates if there is none. If another process creates the Secret first, the error of the creation
// is returned, and the next call reads that one.
func (k *Keys) Get(ctx context.Context) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.key != nil {
		return k.key, nil
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: KeySecret}}
	err := k.Live.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	if apierrors.IsNotFound(err) {
		key := make([]byte, sha256.Size)
		_, _ = rand.Read(key) // it never fails
		secret.Data = map[string][]byte{KeyName: key}
		// No cache has Secrets.
		err = k.Client.Create(ctx, secret, client.DisableReadYourWritesConsistency)
	}
	if err != nil {
		return nil, fmt.Errorf("the key of webhooks: %w", err)
	}
	if len(secret.Data[KeyName]) < sha256.Size {
		return nil, fmt.Errorf("Secret %s: the key %s has less than %d bytes: delete the Secret, and start the operator again",
			client.ObjectKeyFromObject(secret), KeyName, sha256.Size)
	}
	k.key = secret.Data[KeyName]
	return k.key, nil
}
