// Package settingsmap reads settings from the ConfigMap of an installation, for the operator, the platform API and the gate, and starts
// a program again when the ConfigMap changes.
package settingsmap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/bergctf/berg-operator/internal/kit/connection"
	"github.com/bergctf/berg-operator/internal/kit/settings"
)

const (
	// connectTimeout is how long Read tries to reach the API server.
	connectTimeout = 30 * time.Second
	// Spread is the time in which replicas start again after a change, each at a random time, so that rarely two do together.
	Spread = 10 * time.Second
	// repeat is how often invalid content is reported. Events live for an hour.
	repeat = 30 * time.Minute
	// maxNote is how much of an error fits into an event.
	maxNote = 1000
)

// ConfigMap is the ConfigMap, as one process reads it.
type ConfigMap struct {
	program  string
	log      logr.Logger
	maps     corev1client.ConfigMapInterface
	events   eventsclient.EventInterface
	readable bool
	content  map[string]string
}

// New returns a ConfigMap that was not read yet. An event reports content that the program refuses.
func New(program string, log logr.Logger) *ConfigMap { return &ConfigMap{program: program, log: log} }

// Read returns the content of the ConfigMap in a namespace: nil if it does not exist, or if the program may not read it. It waits
// for an API server that does not answer for half a minute, since programs and API server of a small cluster start together. Then
// the program ends with an error, and Kubernetes starts it again.
func (c *ConfigMap) Read(ctx context.Context, namespace string) (map[string]string, error) {
	restConfig, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	restConfig = connection.Configure(restConfig)
	client, err := corev1client.NewForConfig(restConfig)
	if err != nil {
		return nil, err
	}
	events, err := eventsclient.NewForConfig(restConfig)
	if err != nil {
		return nil, err
	}
	c.maps, c.events = client.ConfigMaps(namespace), events.Events(namespace)
	var object *corev1.ConfigMap
	failure := wait.PollUntilContextTimeout(ctx, time.Second, connectTimeout, true, func(ctx context.Context) (bool, error) {
		object, err = c.maps.Get(ctx, settings.ConfigMap, metav1.GetOptions{})
		// An API server that starts refuses requests, too.
		return err == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err), nil
	})
	switch {
	case failure != nil:
		return nil, fmt.Errorf("read the ConfigMap %s: %w", settings.ConfigMap, errors.Join(failure, err))
	case apierrors.IsForbidden(err):
		c.log.Info("settings of a ConfigMap are not read: this account may not", "configMap", settings.ConfigMap, "namespace", namespace)
		return nil, nil
	case err != nil && !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read the ConfigMap %s: %w", settings.ConfigMap, err)
	}
	c.readable = true
	if err == nil {
		c.content = settings.JoinContent(object.Data, object.BinaryData)
	}
	return c.content, nil
}

// ErrChanged is the cause with which Follow ends a program: it is canceled to start again.
var ErrChanged = fmt.Errorf("the settings have changed: %w", context.Canceled)

// Follow ends a program with ErrChanged some time after the content has changed. Content for which validate returns an error is logged,
// and changes nothing.
func (c *ConfigMap) Follow(ctx context.Context, end context.CancelCauseFunc, validate func(content map[string]string) error) {
	if !c.readable {
		return
	}
	go func() {
		if c.awaitChange(ctx, validate) == nil {
			end(ErrChanged)
		}
	}()
}

// awaitChange returns nil when the program has to start again, or the error of ctx.
func (c *ConfigMap) awaitChange(ctx context.Context, validate func(map[string]string) error) error {
	seen := make(chan *corev1.ConfigMap, 1)
	see := func(object *corev1.ConfigMap) {
		select { // a later one replaces it
		case <-seen:
		default:
		}
		seen <- object
	}
	options := func(o metav1.ListOptions) metav1.ListOptions {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, settings.ConfigMap).String()
		return o
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				list, err := c.maps.List(ctx, options(o))
				if err == nil && len(list.Items) == 0 {
					see(&corev1.ConfigMap{}) // deleted before the watch began
				}
				return list, err
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return c.maps.Watch(ctx, options(o))
			},
		},
		ObjectType:   &corev1.ConfigMap{},
		ResyncPeriod: repeat,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { see(object.(*corev1.ConfigMap)) },
			UpdateFunc: func(_, object any) { see(object.(*corev1.ConfigMap)) },
			DeleteFunc: func(any) { see(&corev1.ConfigMap{}) },
		},
	})
	go informer.RunWithContext(ctx)
	var valid <-chan time.Time // nil: the content is the one that runs, or is invalid
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-valid:
			c.log.Info("the settings have changed: the program starts again", "configMap", settings.ConfigMap)
			return nil
		case object := <-seen:
			valid = nil
			content := settings.JoinContent(object.Data, object.BinaryData)
			// A change that is taken back within Spread restarts nothing.
			if maps.Equal(content, c.content) {
				continue
			}
			if err := validate(content); err != nil {
				c.log.Error(err, "the new settings are invalid, and the program continues with the former ones", "configMap", settings.ConfigMap)
				c.report(ctx, object, err)
				continue
			}
			// A later change starts the time again, so a series of edits leads to one restart.
			valid = time.After(rand.N(Spread)) //nolint:gosec // no secret
		}
	}
}

// report writes the event about invalid content. Its name has the program and the version of the ConfigMap, so that replicas write one.
func (c *ConfigMap) report(ctx context.Context, object *corev1.ConfigMap, invalid error) {
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: object.Namespace, Name: settings.ConfigMap + "." + c.program + "." + object.ResourceVersion},
		EventTime:  metav1.NowMicro(), ReportingController: c.program, ReportingInstance: cmp.Or(os.Getenv("HOSTNAME"), c.program),
		Action: "ReadSettings", Reason: settings.ReasonInvalid, Type: corev1.EventTypeWarning, Note: strings.ToValidUTF8(invalid.Error()[:min(len(invalid.Error()), maxNote)], ""),
		Regarding: corev1.ObjectReference{
			APIVersion: "v1", Kind: "ConfigMap", Namespace: object.Namespace, Name: object.Name, UID: object.UID, ResourceVersion: object.ResourceVersion,
		},
	}
	if _, err := c.events.Create(ctx, event, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		c.log.Info("no event reports the invalid settings", "configMap", settings.ConfigMap, "error", err.Error())
	}
}

// Run runs a program until stopped ends, or Follow ends it: then it replaces the process by a new one of the same program. The container
// does not end, so that Kubernetes counts no restart and waits for no backoff. It returns the error of the program. The new
// process reads everything again, as after a restart of the pod. The operator has released its lease before, so another replica
// may lead from then on.
func Run(stopped context.Context, program func(ctx context.Context, end context.CancelCauseFunc) error) error {
	ctx, end := context.WithCancelCause(stopped)
	defer end(nil)
	if err := program(ctx, end); err != nil || stopped.Err() != nil || !errors.Is(context.Cause(ctx), ErrChanged) {
		return err
	}
	return syscall.Exec("/proc/self/exe", os.Args, os.Environ()) //nolint:gosec // the program itself
}
