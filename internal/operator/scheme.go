package operator

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/bergctf/berg-operator/internal/kit/family"
)

// NewScheme returns a scheme with every kind that some families read or write.
func NewScheme(families ...family.Family) (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, f := range families {
		if err := f.AddToScheme.AddToScheme(scheme); err != nil {
			return nil, fmt.Errorf("build the scheme of %s: %w", f.API, err)
		}
	}
	return scheme, nil
}
