package tunnelproxy

import (
	"context"
	"fmt"
	"time"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/tunnel/jobs"
)

// Images finds the image of both proxies, and builds it if need be.
type Images interface {
	// Ping returns an error if the registry does not answer.
	Ping(ctx context.Context) error
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
	workImage, workPing = "image", "registry"
	// imagePause and longestImagePause are between attempts.
	imagePause, maxImagePause = 2 * time.Second, time.Minute
)

// awaitRegistry returns what keeps an image from being looked for: a registry that has not
// answered yet. One that breaks off later is tried again by the build.
func (r *Reconciler) awaitRegistry(p *tunnelv1.ContainerNetworkTunnelProxy, now time.Time) (problem *outcome.Problem, again time.Time) {
	if p.Status.ClientProxyContainerImage != "" || p.Status.State == tunnelv1.StateBuildingImage || r.Config.Image != "" || r.Config.Registry == "" || r.Images == nil {
		return nil, again
	}
	silent := func(why string, next time.Time) (*outcome.Problem, time.Time) {
		return &outcome.Problem{
			Condition: tunnelv1.ConditionImageReady, Reason: tunnelv1.ReasonRegistryNotReady, Class: outcome.InProgress,
			Message: "The registry (TUNNEL_REGISTRY) must answer first, and is asked again: " + why,
		}, next
	}
	var attempt int
	var next time.Time
	var why string
	r.memory.with(p.UID, func(m *remembered) { attempt, next, why = m.pingAttempt, m.pingNext, m.pingFailed })
	if now.Before(next) {
		return silent(why, next)
	}
	answer, done := jobs.Do(r.work, p.UID, p.Name, workPing, fmt.Sprint(attempt), func(ctx context.Context) pong {
		ctx, cancel := context.WithTimeout(ctx, r.Config.CallTimeout)
		defer cancel()
		return pong{r.Images.Ping(ctx), true}
	})
	switch {
	case !done && why != "":
		return silent(why, time.Time{}) // until more is known
	case !done:
		return &outcome.Problem{
			Condition: tunnelv1.ConditionImageReady, Reason: tunnelv1.ReasonImageBuilding, Class: outcome.InProgress, Message: "The registry is asked whether it answers",
		}, again
	case answer.answered && answer.err == nil:
		return nil, again
	case answer.err == nil:
		answer.err = context.Canceled // it was not even asked: the operator was about to end
	}
	r.memory.with(p.UID, func(m *remembered) {
		m.pingAttempt++
		m.pingNext = now.Add(min(imagePause<<min(m.pingAttempt, 10), maxImagePause))
		m.pingFailed = answer.err.Error()
		next, why = m.pingNext, m.pingFailed
	})
	return silent(why, next)
}

// pong is what came of asking a registry whether it is there.
type pong struct {
	err      error
	answered bool
}

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
		return stopped(outcome.External, tunnelv1.ReasonImageNotConfigured,
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
		last, _ := jobs.Last[built](r.work, p.UID, workImage)
		if last.err != nil {
			return stopped(outcome.InProgress, tunnelv1.ReasonImageRetried, fmt.Sprintf("The image cannot be made for now, which is tried again: %s", last.err))
		}
	}
	result, done := jobs.Do(r.work, p.UID, p.Name, workImage, fmt.Sprint(attempt), func(ctx context.Context) built {
		image, err := r.Images.Ensure(ctx, base)
		return built{image, err}
	})
	if !done {
		return stopped(outcome.InProgress, tunnelv1.ReasonImageBuilding, "The image of the proxies is looked for, and built from "+base+" if need be")
	}
	if result.err == nil && result.image != "" {
		return result.image, nil, ""
	}
	if retry := (*RetriableError)(nil); result.err == nil || asRetriable(result.err, &retry) {
		r.memory.with(p.UID, func(m *remembered) {
			m.imageAttempt++
			m.imageNext = now.Add(min(imagePause<<min(m.imageAttempt, 10), maxImagePause))
		})
		return stopped(outcome.InProgress, tunnelv1.ReasonImageRetried, fmt.Sprintf("The image cannot be made for now, which is tried again: %v", result.err))
	}
	return "", nil, fmt.Sprintf("the image could not be made from %s: %s", base, result.err)
}
