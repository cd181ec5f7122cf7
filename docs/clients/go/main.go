// Command go starts an instance of a challenge for a player with the typed client of api/client, prints where to connect
// as soon as it runs, and ends it:
//
//	go run ./docs/clients/go NAMESPACE PLAYER CHALLENGE
//
// It uses the kubeconfig of KUBECONFIG, or the account of its pod.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	applyv1 "github.com/bergctf/berg-operator/api/client/applyconfiguration/berg/v1"
	"github.com/bergctf/berg-operator/api/client/clientset/versioned"
	"github.com/bergctf/berg-operator/api/client/informers/externalversions"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: go run ./docs/clients/go NAMESPACE PLAYER CHALLENGE")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	if err := play(ctx, os.Args[1], os.Args[2], os.Args[3], os.Stdout); err != nil {
		log.Print(err)
		cancel()
		os.Exit(1)
	}
}

func play(ctx context.Context, namespace, player, challenge string, out io.Writer) error {
	rc, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	clients, err := versioned.NewForConfig(rc)
	if err != nil {
		return err
	}

	// One watch of all instances; the lister answers from memory.
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default: // one notice is enough
		}
	}
	factory := externalversions.NewSharedInformerFactoryWithOptions(clients, 0, externalversions.WithNamespace(namespace))
	instances := factory.Berg().V1().ChallengeInstances()
	if _, err := instances.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { notify() }, UpdateFunc: func(any, any) { notify() }, DeleteFunc: func(any) { notify() },
	}); err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	if err := factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		return err
	}
	// until waits for a change after which done, of the instance or nil, is true.
	until := func(name string, done func(*bergv1.ChallengeInstance) bool) error {
		for {
			instance, err := instances.Lister().ChallengeInstances(namespace).Get(name)
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			if done(instance) {
				return nil
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return fmt.Errorf("%s: %w", name, context.Cause(ctx))
			}
		}
	}

	// Applied a second time, the same changes nothing.
	wanted := applyv1.ChallengeInstance(player+"-"+challenge, namespace).
		WithLabels(map[string]string{"player": player}).
		WithSpec(applyv1.ChallengeInstanceSpec().
			WithChallengeRef(applyv1.ChallengeReference().WithName(challenge).WithNamespace(namespace)).
			WithOwnerID(uuid.NewSHA1(uuid.NameSpaceURL, []byte("https://ctf.example.com/players/"+player)).String()).
			WithTimeout("1h"))
	applied, err := clients.BergV1().ChallengeInstances(namespace).Apply(ctx, wanted, metav1.ApplyOptions{FieldManager: "platform"})
	if err != nil {
		return err
	}

	var failed error
	err = until(applied.Name, func(instance *bergv1.ChallengeInstance) bool {
		switch {
		case instance == nil || instance.UID != applied.UID: // the watch is behind
			return false
		case instance.Status.Phase == bergv1.PhaseFailed:
			failed = errors.New(string(instance.Status.Cause))
			return true
		case instance.Status.Phase != bergv1.PhaseRunning:
			return false
		}
		for _, service := range instance.Status.Services {
			_, _ = fmt.Fprintln(out, service.Name, service.URL)
		}
		return true
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}

	if err := clients.BergV1().ChallengeInstances(namespace).Delete(ctx, applied.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := until(applied.Name, func(instance *bergv1.ChallengeInstance) bool { return instance == nil }); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, "gone")
	return err
}
