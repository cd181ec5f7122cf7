// Package family says what a family of APIs is: the one value that it adds to the operator.
// The process around it (manager, election, fencing, events, metrics) belongs to all and
// knows none of them.
package family

import (
	"context"
	"io"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/cache"
	"github.com/bergctf/berg-operator/internal/kit/optional"
	"github.com/bergctf/berg-operator/internal/kit/precedence"
	"github.com/bergctf/berg-operator/internal/kit/settings"
)

// Family is a family of APIs. One that is not enabled costs nothing: no watch, no cache, no
// controller.
type Family struct {
	// API is the group of its custom resources, as in ENABLED_APIS.
	API string
	// Settings are read before any function of the family is called, also of one that is not
	// enabled: errors are told at once.
	Settings settings.Section
	// AddToScheme registers every kind that the family reads or writes.
	AddToScheme runtime.SchemeBuilder
	// Cache bounds what is kept in memory for the family, and for nobody else.
	Cache func() cache.Options
	// Setup adds the controllers of the family, and its webhooks, to the manager of its site.
	Setup func(context.Context, Dependencies) error
	// Webhooks are what the API server asks before it stores an object of the family. Those of
	// a family that is not enabled let everything pass.
	Webhooks []Webhook
	// Busy is what an upgrade of the operator should wait for. The zero value: nothing.
	Busy Busy
	// Commands are programs that the operator's image runs in place of the operator when the
	// first argument names one: each gets the other arguments and returns its exit code.
	Commands map[string]func(args []string, errs io.Writer) int
}

// Webhook is one that the API server asks. Every replica answers, also while another one leads.
type Webhook struct {
	// Path under which the configuration in the cluster names it.
	Path string
	// Handler answers. It is made after Setup, and may read from the cache of the site.
	Handler func(Dependencies) http.Handler
}

// Busy is work that a restart of the operator would delay.
type Busy struct {
	// Kind is that of the objects whose changes begin and end work.
	Kind client.Object
	// Since lists when each piece of work that is under way began.
	Since func(context.Context, client.Reader) ([]time.Time, error)
}

// Dependencies is what a family is given to work with.
type Dependencies struct {
	// Manager is that of the process, but its cache, clients, indexes and scheme are those of
	// the family.
	Manager ctrl.Manager
	// Writer writes objects. It knows of missing kinds as the Manager's client does, and all
	// families hold back together when somebody undoes their writes.
	Writer apply.Writer
	// Presence is what the client, the reader and the Writer know missing kinds by. Direct
	// reads from the API server past it, to find out whether a kind is there by now.
	Presence *optional.Presence
	Direct   client.Reader
	// Clock is the time of day.
	Clock clock.PassiveClock
	// Urgent is what comes before events, and before other work for which nobody
	// waits.
	Urgent *precedence.Precedence
	// Workers is how many resources of a kind are worked on at the same time.
	Workers int
	// Namespace is that of the operator.
	Namespace string
	// Probes and Metrics are the addresses that the process serves them at; Metrics is "0"
	// where it does not.
	Probes, Metrics string
}
