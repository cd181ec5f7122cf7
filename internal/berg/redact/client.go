package redact

import (
	"context"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// Client returns a client whose errors do not name the flag of the object that is written: admission may repeat the
// whole object that it refuses. Warnings do not either, if the configuration of the client has Warnings. The flag is taken from
// the object before the write, since the answer is decoded into it.
func Client(c client.WithWatch) client.WithWatch { return writer{c} }

type writer struct{ client.WithWatch }

// Create implements client.Writer.
func (w writer) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	return redacted(ctx, o, func(ctx context.Context) error { return w.WithWatch.Create(ctx, o, options...) })
}

// Update implements client.Writer.
func (w writer) Update(ctx context.Context, o client.Object, options ...client.UpdateOption) error {
	return redacted(ctx, o, func(ctx context.Context) error { return w.WithWatch.Update(ctx, o, options...) })
}

// Patch implements client.Writer.
func (w writer) Patch(ctx context.Context, o client.Object, p client.Patch, options ...client.PatchOption) error {
	return redacted(ctx, o, func(ctx context.Context) error { return w.WithWatch.Patch(ctx, o, p, options...) })
}

// Delete implements client.Writer.
func (w writer) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	return redacted(ctx, o, func(ctx context.Context) error { return w.WithWatch.Delete(ctx, o, options...) })
}

type flagKey struct{}

// redacted writes an object, whose flag the answer may change.
func redacted(ctx context.Context, o client.Object, write func(context.Context) error) error {
	flag := findFlag(o)
	if flag == "" {
		return write(ctx)
	}
	return Error(write(context.WithValue(ctx, flagKey{}, flag)), flag)
}

func findFlag(o client.Object) string {
	switch o := o.(type) {
	case *bergv1.ChallengeInstance:
		return o.Spec.Flag
	case *bergv1.Challenge:
		return o.Spec.Flag
	default:
		return ""
	}
}

// Warnings hands warnings of a Client on, without the flag of the object that is written.
type Warnings struct{ Next rest.WarningHandler }

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w Warnings) HandleWarningHeaderWithContext(ctx context.Context, code int, agent, text string) {
	if flag, _ := ctx.Value(flagKey{}).(string); flag != "" {
		text = Text(text, flag)
	}
	w.Next.HandleWarningHeader(code, agent, text)
}
