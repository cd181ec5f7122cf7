package tunnelproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/backoff"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/tunnel/jobs"
)

// Images finds the image of both proxies, and builds it if necessary.
type Images interface {
	// Ping returns an error if the registry does not answer.
	Ping(ctx context.Context) error
	// Ensure returns the image that is made from a base, with its digest. It may be retried after a RetriableError.
	Ensure(ctx context.Context, base string) (image string, err error)
}

// RetriableError is an error that may not occur again, such as that a registry does not answer.
type RetriableError struct{ Err error }

func (e *RetriableError) Error() string { return e.Err.Error() }

// Unwrap returns the error itself.
func (e *RetriableError) Unwrap() error { return e.Err }

// The kinds of jobs.
const (
	jobImage = "image"
	jobPing  = "registry"
)

var registryBackoff = backoff.Exponential{First: 2 * time.Second, Max: time.Minute}

// attempt is the result of a call to a registry.
type attempt struct {
	image string
	err   error
}

func imageProblem(class outcome.Class, reason, message string) *outcome.Problem {
	return &outcome.Problem{Condition: tunnelv1.ConditionImageReady, Reason: reason, Class: class, Message: message}
}

// awaitRegistry returns a problem until the registry has answered. A registry that stops answering later is retried by
// the build.
func (r *Reconciler) awaitRegistry(p *tunnelv1.ContainerNetworkTunnelProxy, now time.Time) *outcome.Problem {
	if p.Status.ClientProxyContainerImage != "" || p.Status.State == tunnelv1.StateBuildingImage || r.Config.Image != "" || r.Config.Registry == "" || r.Images == nil {
		return nil
	}
	ping := jobs.Do(r.jobs, jobs.Job[error]{
		UID: p.UID, Name: p.Name, Kind: jobPing,
		Run: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, r.Config.CallTimeout)
			defer cancel()
			return r.Images.Ping(ctx)
		},
		Retry: func(err error, attempt int) time.Duration {
			if err == nil {
				return 0
			}
			return registryBackoff.After(attempt)
		},
	}, now)
	switch {
	case ping.Value != nil: // also while it is asked again
		return imageProblem(outcome.Retry, tunnelv1.ReasonRegistryNotReady, "The registry (TUNNEL_REGISTRY) does not answer; retrying: "+ping.Value.Error())
	case !ping.Done:
		return imageProblem(outcome.InProgress, tunnelv1.ReasonImageBuilding, "Checking whether the registry answers")
	}
	return nil
}

// ensureImage returns the image of a pair, or the problem that keeps the pair from it. fatal says why it can
// never be made. The image of the status comes first: both proxies of a pair have the same image, also if the setting was changed
// between their starts.
func (r *Reconciler) ensureImage(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, now time.Time) (image string, problem *outcome.Problem, fatal string) {
	if image := cmp.Or(p.Status.ClientProxyContainerImage, r.Config.Image); image != "" {
		return image, nil, ""
	}
	if r.Config.Registry == "" || r.Images == nil {
		if own := r.Own.Image(ctx); own != "" {
			return own, nil, ""
		}
		problem := imageProblem(outcome.External, tunnelv1.ReasonImageNotConfigured,
			"The operator has no image of the proxies: it runs in no pod whose image it can read. An administrator must apply config/tunnel/host, or set TUNNEL_IMAGE or TUNNEL_REGISTRY")
		problem.Err = errors.New(problem.Message) // rights are not watched
		return "", problem, ""
	}
	base := cmp.Or(p.Spec.BaseImage, r.Config.BaseImage)
	build := jobs.Do(r.jobs, jobs.Job[attempt]{
		UID: p.UID, Name: p.Name, Kind: jobImage,
		Run: func(ctx context.Context) attempt {
			image, err := r.Images.Ensure(ctx, base)
			return attempt{image, err}
		},
		Retry: func(got attempt, attempt int) time.Duration {
			if retriable := (*RetriableError)(nil); errors.As(got.err, &retriable) {
				return registryBackoff.After(attempt)
			}
			return 0
		},
	}, now)
	switch {
	case !build.Done:
		return "", imageProblem(outcome.InProgress, tunnelv1.ReasonImageBuilding, "Finding the image of the proxies, or building it from "+base), ""
	case build.Value.err == nil:
		return build.Value.image, nil, ""
	case build.Retrying:
		return "", imageProblem(outcome.Retry, tunnelv1.ReasonImageRetried, fmt.Sprintf("Building the image failed; retrying: %s", build.Value.err)), ""
	}
	return "", nil, fmt.Sprintf("the image could not be made from %s: %s", base, build.Value.err)
}
