package proxyroom

import (
	"context"
	"fmt"
	"time"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/tunnel/work"
)

// Images finds the image of both proxies, and builds it if need be.
type Images interface {
	// Ensure returns the image that is made from a base, with its digest. A RetriableError
	// may pass.
	Ensure(ctx context.Context, base string) (image string, err error)
}

// RetriableError is an error that may pass by itself, as a registry that does not answer.
type RetriableError struct{ Err error }

func (e *RetriableError) Error() string { return e.Err.Error() }

// Unwrap returns what it was.
func (e *RetriableError) Unwrap() error { return e.Err }

// built is what came of a build.
type built struct {
	image string
	err   error
}

const (
	workImage = "image"
	// imagePause and longestImagePause are between attempts.
	imagePause, longestImagePause = 2 * time.Second, time.Minute
)

// ensureImage returns the image of a pair, or what keeps it. fatal says why there will never be one.
func (r *Reconciler) ensureImage(p *tunnelv1.ContainerNetworkTunnelProxy, now time.Time) (image string, problem *outcome.Problem, fatal string) {
	if image := p.Status.ClientProxyContainerImage; image != "" {
		return image, nil, ""
	}
	if r.Config.Image != "" {
		return r.Config.Image, nil, ""
	}
	stopped := func(class outcome.Class, reason, message string) (string, *outcome.Problem, string) {
		return "", &outcome.Problem{Condition: tunnelv1.ConditionImageReady, Reason: reason, Class: class, Message: message}, ""
	}
	if r.Config.Registry == "" || r.Images == nil {
		return stopped(outcome.Foreign, tunnelv1.ReasonImageNotConfigured,
			"The operator has no image of the proxies and no registry to build one for: an administrator must set TUNNEL_IMAGE or TUNNEL_REGISTRY")
	}
	base := p.Spec.BaseImage
	if base == "" {
		base = r.Config.BaseImage
	}
	var attempt int
	var next time.Time
	r.memory.with(p.UID, func(m *remembered) { attempt, next = m.imageAttempt, m.imageNext })
	if now.Before(next) {
		last, _ := work.Last[built](r.work, p.UID, workImage)
		if last.err != nil {
			return stopped(outcome.UnderWay, tunnelv1.ReasonImageRetried, fmt.Sprintf("The image cannot be made for now, which is tried again: %s", last.err))
		}
	}
	result, done := work.Do(r.work, p.UID, p.Name, workImage, fmt.Sprint(attempt), func(ctx context.Context) built {
		image, err := r.Images.Ensure(ctx, base)
		return built{image, err}
	})
	if !done {
		return stopped(outcome.UnderWay, tunnelv1.ReasonImageBuilding, "The image of the proxies is looked for, and built from "+base+" if need be")
	}
	if result.err == nil && result.image != "" {
		return result.image, nil, ""
	}
	if retry := (*RetriableError)(nil); result.err == nil || asRetriable(result.err, &retry) {
		r.memory.with(p.UID, func(m *remembered) {
			m.imageAttempt++
			m.imageNext = now.Add(min(imagePause<<min(m.imageAttempt, 10), longestImagePause))
		})
		return stopped(outcome.UnderWay, tunnelv1.ReasonImageRetried, fmt.Sprintf("The image cannot be made for now, which is tried again: %v", result.err))
	}
	return "", nil, fmt.Sprintf("the image could not be made from %s: %s", base, result.err)
}
