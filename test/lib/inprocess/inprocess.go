// Package inprocess runs the operator in the process of the tests: one that all specs of a
// suite share, and in its place, for a spec, others with other settings, at another time, or
// over a connection that does not do what it should.
//
// It acts as the account of config/default, with its rights and no other: the API server
// finds out what is missing.
package inprocess

import (
	"context"
	"maps"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/family"
	"github.com/bergctf/berg-operator/internal/operator"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/installed"
)

// Wrap puts something between an operator and the API server.
type Wrap = func(http.RoundTripper) http.RoundTripper

// unless are the variables that every operator has, unless its spec says otherwise: with
// webhooks it would need the port, and rights in the namespace that the spec has it run in.
var unless = map[string]string{"WEBHOOK_BIND_ADDRESS": "0"}

// settings are the variables of the operator that all specs share.
var settings = map[string]string{"PULL_SECRET_NAME": "registry", "POD_NAMESPACE": installed.Namespace, "CHALLENGE_START_DEADLINE": "1h"}

// current is the operator that Begin or Instead started last; nil if none runs.
var current *process

// process is an operator that runs in this process.
type process struct {
	cancel  context.CancelFunc
	ended   chan error
	stopped bool
}

func (p *process) stop() {
	if p.stopped {
		return
	}
	p.stopped = true
	if current == p {
		current = nil
	}
	p.cancel()
	Eventually(p.ended).Should(Receive(BeNil()))
}

// With returns the variables of the operator that all specs share, with changes.
func With(changes map[string]string) map[string]string {
	all := maps.Clone(settings)
	maps.Copy(all, changes)
	return all
}

// Load parses variables as the operator does, for families of APIs with places of their own
// for their settings. It elects no leader and serves nothing.
func Load(env map[string]string, all ...family.Family) (process config.Process, enabled []family.Family) {
	GinkgoHelper()
	process, enabled, _, err := operator.Load(all, []string{"--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=127.0.0.1:0"},
		func(name string) string { return env[name] }, nil, nil)
	Expect(err).NotTo(HaveOccurred())
	return process, enabled
}

// Begin starts the operator that all specs share: at the beginning of a suite, which may
// change variables of it.
func Begin(changes ...map[string]string) {
	GinkgoHelper()
	for _, c := range changes {
		maps.Copy(settings, c)
	}
	current = begin(clock.RealClock{}, nil, nil)
}

// End stops whichever operator runs: at the end of a suite.
func End() {
	GinkgoHelper()
	if current != nil {
		current.stop()
	}
}

// Pause stops the operator until resume starts the one that all specs share: at the latest
// when the spec ends.
func Pause() (resume func()) {
	GinkgoHelper()
	End()
	resume = func() {
		if current == nil {
			Begin()
		}
	}
	DeferCleanup(resume)
	return resume
}

// Instead runs another operator in place of the one that runs until stop is called: at the
// latest until the spec ends. Without variables it has those of the shared one.
func Instead(now clock.PassiveClock, env map[string]string, wrap Wrap) (stop func()) {
	GinkgoHelper()
	Pause()
	current = begin(now, env, wrap)
	stop = current.stop
	DeferCleanup(stop)
	return stop
}

// Restart runs an operator with changed settings in place of the one that runs, until the
// spec ends.
func Restart(changes map[string]string, wrap Wrap) {
	GinkgoHelper()
	Instead(clock.RealClock{}, With(changes), wrap)
}

// Run runs an operator in addition to any other until stop is called. Without variables it has those
// of the shared one; wrap may be nil.
func Run(env map[string]string, wrap Wrap) (stop func()) {
	GinkgoHelper()
	return RunAt(clock.RealClock{}, env, wrap)
}

// RunAt is Run at another time.
func RunAt(now clock.PassiveClock, env map[string]string, wrap Wrap) (stop func()) {
	GinkgoHelper()
	return begin(now, env, wrap).stop
}

func begin(now clock.PassiveClock, env map[string]string, wrap Wrap) *process {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{cancel: cancel, ended: make(chan error, 1)}
	mgr := Manager(ctx, now, env, wrap)
	go func() { p.ended <- mgr.Start(ctx) }()
	Eventually(mgr.Elected()).Should(BeClosed()) // its caches are filled before
	return p
}

// Manager makes an operator that does not run yet.
func Manager(ctx context.Context, now clock.PassiveClock, env map[string]string, wrap Wrap) manager.Manager {
	GinkgoHelper()
	if env == nil {
		env = settings
	}
	env, given := maps.Clone(unless), env
	maps.Copy(env, given)
	rc := rest.CopyConfig(apiserver.Config)
	rc.Impersonate = rest.ImpersonationConfig{UserName: apiserver.OperatorUser}
	if wrap != nil {
		rc.Wrap(wrap)
	}
	process, enabled := Load(env, families.All()...)
	mgr, err := operator.New(ctx, rc, process, enabled, operator.Options{SkipNameValidation: true, Clock: now})
	Expect(err).NotTo(HaveOccurred())
	return mgr
}

// Metric sums up a counter, a gauge or the observations of a histogram of the operators in
// this process, over the series that have a label: its name and its value.
func Metric(name string, label ...string) float64 {
	GinkgoHelper()
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	var sum float64
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			has := len(label) == 0
			for _, l := range m.GetLabel() {
				has = has || l.GetName() == label[0] && l.GetValue() == label[1]
			}
			if has {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}
