package prepull

import (
	"cmp"
	"slices"
	"strings"
	"time"

	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// OwnershipLabels are the labels of every object that pulls images. They find the objects of
// instances too, as they share the caches.
var OwnershipLabels = ownership.Labels{
	Domain: bergv1.GroupVersion.Group,
	Owner:  "prepull-challenge",
	Found:  map[string]string{bergv1.LabelManagedBy: bergv1.ManagedBy, bergv1.LabelComponent: bergv1.ComponentPrepull},
}

// Target is an image that is to be on a node.
type Target struct {
	// Node is the UID of the node: a node that is set up again has no images.
	Node types.UID
	// Image is written as the Challenge has it.
	Image string
	// RuntimeClass of the pods that need it, "" for none: another container runtime may keep
	// images of its own.
	RuntimeClass string
}

// Desired is all that one Challenge needs.
type Desired struct {
	Challenge *bergv1.Challenge
	Window    window
	// Targets are sorted; empty unless the window is open.
	Targets []Target
	// Nowhere are the images that no node may run.
	Nowhere []string
	// Blocked says why nothing can be pulled for it now; "" if nothing is in the way.
	Blocked string
}

// computeDesired returns the needs of each Challenge, in the order in which they are needed.
func computeDesired(o Observed, cfg config.Berg, now time.Time) []Desired {
	out := make([]Desired, 0, len(o.Challenges))
	for _, c := range o.Challenges {
		w := Desired{Challenge: c, Window: computeWindow(c, o.wants(c), cfg.Prepull.Lead, now)}
		if w.Window.Stage == open {
			w.Targets, w.Nowhere = targets(c, o, cfg)
			w.Blocked = o.Blocked[c.UID]
		}
		out = append(out, w)
	}
	slices.SortStableFunc(out, func(a, b Desired) int {
		return cmp.Or(
			compareBool(a.Window.Until.IsZero(), b.Window.Until.IsZero()), // one without an end comes last
			a.Window.Until.Compare(b.Window.Until),
			cmp.Compare(a.Challenge.Namespace, b.Challenge.Namespace),
			cmp.Compare(a.Challenge.Name, b.Challenge.Name),
		)
	})
	return out
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

// targets returns where the images of a Challenge are to be, each pair once, and which images
// can be nowhere.
func targets(c *bergv1.Challenge, o Observed, cfg config.Berg) (all []Target, nowhere []string) {
	for _, container := range c.Spec.Containers {
		class := cmp.Or(container.RuntimeClassName, cfg.Challenge.RuntimeClassName)
		var runtime *nodev1.RuntimeClass
		if class != "" {
			if runtime = o.RuntimeClasses[class]; runtime == nil {
				nowhere = append(nowhere, container.Image+" (RuntimeClass "+class+" is missing)")
				continue
			}
		}
		p, found := newPlacement(container, runtime), false
		for _, n := range o.Nodes {
			if takes(n, p) {
				found = true
				all = append(all, Target{Node: n.UID, Image: container.Image, RuntimeClass: class})
			}
		}
		if !found {
			nowhere = append(nowhere, container.Image)
		}
	}
	slices.SortFunc(all, compareTargets)
	slices.Sort(nowhere)
	return slices.Compact(all), slices.Compact(nowhere)
}

func compareTargets(a, b Target) int {
	return cmp.Or(strings.Compare(a.Image, b.Image), strings.Compare(a.RuntimeClass, b.RuntimeClass), strings.Compare(string(a.Node), string(b.Node)))
}
