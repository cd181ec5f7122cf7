package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/internal/operator"
	"github.com/bergctf/berg-operator/test/lib/gatewaytest"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/launch"
)

const (
	// arena is the namespace of everything that is created here.
	arena         = "load"
	challengeName = "load"
	// poll is the time between two looks at something that cannot be watched.
	poll = 20 * time.Millisecond
	// maxWait is how long anything may take before a run is given up.
	maxWait = 90 * time.Minute
)

// bench is the cluster with everything that measures.
type bench struct {
	options
	show    *progress
	client  client.Client
	tracker *tracker
	audit   auditLog
	ours    processes
	bare    *bareClient
	// account is how the operator and the bare client reach the API server: with
	// the same rights, and so in the same queue of its priority and fairness.
	account  *rest.Config
	operator *operatorProcess
	// settings are those of its next start.
	settings []string
	// numbered counts the batches, so that no two instances have one name.
	numbered int
	// grown are the instances that a scenario left for the next.
	grown *batch
	stop  context.CancelFunc
}

// prepare installs the definitions and rights of the operator, and learns from one
// instance what it writes.
func prepare(ctx context.Context, o options, show *progress) (*bench, error) {
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard)))
	kubeconfig := os.Getenv("KUBECONFIG")
	state := filepath.Dir(filepath.Dir(kubeconfig))
	b := &bench{options: o, show: show, audit: auditLog{filepath.Join(state, "logs", "audit.log")}}
	if _, err := os.Stat(b.audit.path); err != nil {
		return nil, fmt.Errorf("KUBECONFIG must be that of a cluster of test/cluster that was made with --audit: %w", err)
	}
	restConfig, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	restConfig.QPS = -1
	scheme, err := operator.NewScheme(families.All()...)
	if err != nil {
		return nil, err
	}
	if b.client, err = client.New(restConfig, client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	if b.ours, err = findProcesses(state); err != nil {
		return nil, err
	}
	show.now("installing the definitions and rights of the operator")
	if err := b.install(ctx); err != nil {
		return nil, err
	}
	if b.account, err = launch.Account(ctx, restConfig, installed.Namespace, installed.Account); err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = stop
	if err := gatewaytest.Serve(running, restConfig); err != nil {
		return nil, errors.Join(err, b.close())
	}
	if b.tracker, err = track(running, restConfig, scheme); err != nil {
		return nil, errors.Join(err, b.close())
	}
	if b.bare, err = newBareClient(running, b.account, scheme, b.tracker, b.workers); err != nil {
		return nil, errors.Join(err, b.close())
	}
	if err := b.learn(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("learn what the operator writes: %w", err), b.close())
	}
	return b, nil
}

func (b *bench) close() error {
	defer b.stop()
	return b.stopOperator()
}

// install creates the definitions and rights of the operator, and a Challenge.
func (b *bench) install(ctx context.Context) error {
	for _, folder := range []string{"config/default", "config/berg/warm"} {
		if err := installed.Folder(ctx, b.client, folder, "load"); err != nil {
			return err
		}
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: arena}}
	if err := b.client.Create(ctx, namespace); client.IgnoreAlreadyExists(err) != nil {
		return err
	}
	var instances bergv1.ChallengeInstanceList
	err := eventually(ctx, func(ctx context.Context) error { return b.client.List(ctx, &instances, client.InNamespace(arena)) })
	if err != nil {
		return err
	}
	if len(instances.Items) > 0 {
		return fmt.Errorf("there are %d instances in namespace %s already: use a new cluster", len(instances.Items), arena)
	}
	challenge := &bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: arena, Name: challengeName}}
	containers := []bergv1.Container{{
		Hostname:    "web",
		Image:       b.image,
		Ports:       []bergv1.Port{{Name: "web", Port: 8080, Type: bergv1.PortType(b.port)}},
		DynamicFlag: &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: "FLAG"}},
	}}
	_, err = controllerutil.CreateOrUpdate(ctx, b.client, challenge, func() error {
		challenge.Spec.Containers = containers
		return nil
	})
	return err
}

// learn lets the operator build one instance, and keeps what it wrote as a template
// for the bare client.
func (b *bench) learn(ctx context.Context) error {
	b.show.now("learning from one instance what the operator writes")
	if err := b.startOperator(ctx); err != nil {
		return err
	}
	return b.one(ctx, func(l *life) error { return b.bare.learn(ctx, b.client, l.key) })
}

// warmUp lets an operator that was just started do once what it does only once.
func (b *bench) warmUp(ctx context.Context) error {
	return b.one(ctx, func(*life) error { return nil })
}

// one runs a single instance, from its beginning to its end.
func (b *bench) one(ctx context.Context, running func(*life) error) error {
	r := b.newBatch(theOperator)
	if err := r.start(ctx, 1); err != nil {
		return err
	}
	if err := running(r.lives[0]); err != nil {
		return err
	}
	return r.clear(ctx)
}

// eventually tries until there is no error.
func eventually(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var last error
	err := wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		last = try(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return nil
}
