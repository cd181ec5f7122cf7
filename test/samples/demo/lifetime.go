package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

const (
	// extended is the new timeout of the web instance, whose sample says 2h.
	extended = "3h"
	// untilExpiry is how long the shop still has when its life is shortened: time enough to see it.
	untilExpiry = 10 * time.Second
	// statusTimeout is how long the operator may take to answer a change of spec in the status.
	statusTimeout = 30 * time.Second
)

// extendInstance gives the web instance another hour.
func (d *demo) extendInstance(ctx context.Context) error {
	return d.show.step(ctx, "extend instance web: spec.timeout to "+extended, nil, func(ctx context.Context) (outcome, error) {
		before, err := d.instance(ctx, webInstance)
		if err != nil {
			return "", err
		}
		after, err := d.setTimeout(ctx, webInstance, extended)
		if err != nil {
			return "", err
		}
		return outcome(fmt.Sprintf("expiresAt was %s and is %s", clock(before), clock(after))), nil
	})
}

// letInstanceExpire shortens the life of the shop and looks on until nothing of it is left.
func (d *demo) letInstanceExpire(ctx context.Context) error {
	look := []string{
		d.kubectlLine("describe ci " + shopInstance + " -n " + samplesNamespace),
		d.kubectlLine("get namespaces -l app.kubernetes.io/managed-by=berg"),
	}
	return d.show.step(ctx, fmt.Sprintf("let instance shop expire in %s", untilExpiry), look, func(ctx context.Context) (outcome, error) {
		instance, err := d.instance(ctx, shopInstance)
		if err != nil {
			return "", err
		}
		lived := time.Since(instance.Status.StartedAt.Time).Truncate(time.Second)
		instance, err = d.setTimeout(ctx, shopInstance, (lived + untilExpiry).String())
		if err != nil {
			return "", err
		}
		expires, namespace := instance.Status.ExpiresAt.Time, instance.Status.Namespace
		d.show.note("expiresAt is now %s, its namespace %s", clock(instance), namespace)

		var began time.Time
		err = d.follow(ctx, untilExpiry+endTimeout, []string{shopInstance}, func(instance *bergv1.ChallengeInstance) bool {
			if began.IsZero() && (instance == nil || !instance.DeletionTimestamp.IsZero()) {
				began = time.Now()
			}
			return instance == nil
		})
		if err != nil {
			return "", err
		}
		switch err := d.target.client.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{}); {
		case err == nil:
			return "", fmt.Errorf("the instance is gone, but namespace %s is not", namespace)
		case !apierrors.IsNotFound(err):
			return "", fmt.Errorf("look for namespace %s: %w", namespace, err)
		}
		return outcome(fmt.Sprintf("it began to end %.1fs after expiresAt; instance and namespace are gone", began.Sub(expires).Seconds())), nil
	})
}

// setTimeout changes spec.timeout and waits until the operator has answered with expiresAt.
func (d *demo) setTimeout(ctx context.Context, name, timeout string) (*bergv1.ChallengeInstance, error) {
	lifetime, err := time.ParseDuration(timeout)
	if err != nil {
		return nil, err
	}
	instance, err := d.instance(ctx, name)
	if err != nil {
		return nil, err
	}
	unchanged := client.MergeFrom(instance.DeepCopy())
	instance.Spec.Timeout = timeout
	if err := d.target.client.Patch(ctx, instance, unchanged, fieldOwner); err != nil {
		return nil, fmt.Errorf("change spec.timeout of %s: %w", name, err)
	}
	var answered *bergv1.ChallengeInstance
	err = d.follow(ctx, statusTimeout, []string{name}, func(instance *bergv1.ChallengeInstance) bool {
		if instance == nil || instance.Status.StartedAt == nil || instance.Status.ExpiresAt == nil {
			return false
		}
		answered = instance
		return instance.Status.ExpiresAt.Time.Equal(instance.Status.StartedAt.Add(lifetime))
	})
	return answered, err
}

func clock(instance *bergv1.ChallengeInstance) string {
	if instance.Status.ExpiresAt == nil {
		return "not set"
	}
	return instance.Status.ExpiresAt.Local().Format(time.TimeOnly)
}
