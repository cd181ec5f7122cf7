package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/internal/operator"
	"github.com/bergctf/berg-operator/test/lib/gatewaytest"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/launch"
)

const (
	pullSecret = "registry"
	// arena is the namespace of Challenges and instances.
	arena = "chaos"
	// maxCalm is how long anything may take once all is calm: the longest pause of
	// the operator between two attempts is a minute.
	maxCalm = 5 * time.Minute
	poll    = 100 * time.Millisecond
)

// world is the cluster with all that lives in it.
type world struct {
	options
	out      io.Writer
	client   client.WithWatch // no proxy is on its way
	replicas []*replica
	lives    []*life
	observer *observer
	foreign  []client.Object
	api      sync.Mutex // held while the API server restarts
	stop     context.CancelFunc
	ended    sync.WaitGroup

	mu      sync.Mutex
	counts  map[string]int
	notes   []string
	keeping error // why a replica could not be kept running
}

func prepare(ctx context.Context, o options, out io.Writer) (*world, error) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard()) // what fails here is meant to
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	scheme, err := operator.NewScheme(families.All()...)
	if err != nil {
		return nil, err
	}
	w := &world{options: o, out: out, lives: livesOf(o), counts: map[string]int{}}
	if w.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	if err := installed.Definitions(ctx, w.client, "chaos"); err != nil {
		return nil, err
	}
	if err := gatewaytest.Serve(ctx, config); err != nil {
		return nil, err
	}
	if err := w.setUp(ctx); err != nil {
		return nil, err
	}
	account, err := launch.Account(ctx, config, installed.Namespace, installed.Account)
	if err != nil {
		return nil, err
	}
	if w.logs, err = filepath.Abs(o.logs); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(w.logs, 0o750); err != nil {
		return nil, err
	}
	for _, name := range []string{"operator-1", "operator-2"} {
		r, err := newReplica(name, account, w.options, optional(w.lives))
		if err != nil {
			return nil, err
		}
		w.replicas = append(w.replicas, r)
	}
	return w, nil
}

// setUp creates Challenges, and what others have in the cluster.
func (w *world) setUp(ctx context.Context) error {
	err := w.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: arena}})
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("there is a namespace %s already: use a new cluster", arena)
	}
	if err != nil {
		return err
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: installed.Namespace, Name: pullSecret}, StringData: map[string]string{".dockerconfigjson": "{}"}}
	secret.Type = corev1.SecretTypeDockerConfigJson
	if err := w.client.Create(ctx, secret); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(blueprints)) {
		if blueprints[name].spec == "" {
			continue
		}
		challenge, err := w.challengeOf(name)
		if err != nil {
			return err
		}
		if err := w.retry(ctx, func(ctx context.Context) error { return w.client.Create(ctx, challenge) }); err != nil {
			return fmt.Errorf("create Challenge %s: %w", name, err)
		}
	}
	if err := w.setUpOptional(ctx); err != nil {
		return err
	}
	return w.setUpForeign(ctx)
}

func (w *world) challengeOf(name string) (*bergv1.Challenge, error) {
	c := &bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: arena, Name: name}}
	if name == few {
		c.Spec.MaxInstances = int32(roomForFew(w.lives))
	}
	return c, yaml.UnmarshalStrict([]byte(blueprints[name].spec), &c.Spec)
}

// edit changes what a Challenge runs, but no name that must not change in a life.
func (w *world) edit(ctx context.Context, name string) error {
	return w.retry(ctx, func(ctx context.Context) error {
		c := &bergv1.Challenge{}
		if err := w.client.Get(ctx, client.ObjectKey{Namespace: arena, Name: name}, c); err != nil {
			return client.IgnoreNotFound(err) // it is being created again
		}
		c.Spec.Description = time.Now().String()
		c.Spec.Containers[0].Image = fmt.Sprintf("example.com/%s:%d", name, c.Generation+1)
		return w.client.Update(ctx, c)
	})
}

// recreate deletes a Challenge, and creates it again after a while.
func (w *world) recreate(ctx context.Context, name string, after time.Duration) error {
	c, err := w.challengeOf(name)
	if err != nil {
		return err
	}
	if err := w.retry(ctx, func(ctx context.Context) error { return client.IgnoreNotFound(w.client.Delete(ctx, c)) }); err != nil {
		return err
	}
	if err := pause(ctx, after); err != nil {
		return err
	}
	return w.retry(ctx, func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(w.client.Create(ctx, c.DeepCopy()))
	})
}

// retry tries until the API server, which may be away, has answered.
func (w *world) retry(ctx context.Context, try func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, poll, maxCalm, true, func(ctx context.Context) (bool, error) {
		attempt, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		last = try(attempt)
		switch {
		case last == nil:
			return true, nil
		case apierrors.IsInvalid(last), apierrors.IsBadRequest(last), apierrors.IsAlreadyExists(last):
			return false, last
		}
		return false, nil
	})
	if err != nil && last != nil {
		return last
	}
	return err
}

// eventually waits until check finds nothing wrong, or there is no use to wait any
// longer.
func (w *world) eventually(ctx context.Context, check func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, maxCalm, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if err == nil || ctx.Err() == nil || last == nil { // that time is over does not say what was missing
			last = err
		}
		return err == nil, w.observer.violations()
	})
	if wait.Interrupted(err) && last != nil {
		return fmt.Errorf("after %s of calm: %w", maxCalm, last)
	}
	return err
}

func (w *world) count(what string) {
	w.mu.Lock()
	w.counts[what]++
	w.mu.Unlock()
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	w.notes = append(w.notes, fmt.Sprintf(format, args...))
	w.mu.Unlock()
}
