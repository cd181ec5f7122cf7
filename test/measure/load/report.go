package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/bergctf/berg-operator/test/measure/machine"
)

// Report is what load.json holds.
type Report struct {
	Scenarios []Scenario `json:"scenarios"`
}

// Scenario is the result of one scenario.
type Scenario struct {
	Name    string              `json:"name"`
	Title   string              `json:"title"`
	Date    time.Time           `json:"date"`
	Machine machine.Description `json:"machine"`
	// Load is the machine's load average at the end, over one, five and fifteen
	// minutes: it includes what else ran there.
	Load string `json:"load"`
	// Columns name the two that are compared, where they are not the operator and the bare client.
	Columns []string `json:"columns,omitempty"`
	Figures []Figure `json:"figures"`
	Growth  []Size   `json:"growth,omitempty"`
}

// Figure is one value of the operator, with that of the bare client if there
// is one.
type Figure struct {
	Name     string   `json:"name"`
	Unit     string   `json:"unit"`
	Operator float64  `json:"operator"`
	Bare     *float64 `json:"bare,omitempty"`
	// Ratio is operator to bare.
	Ratio *float64 `json:"ratio,omitempty"`
	// Target bounds the ratio, or the value where there is no ratio.
	Target *Target `json:"target,omitempty"`
	// Count says that the value is a number of requests, which does not depend on
	// how fast the machine is.
	Count bool `json:"count,omitempty"`
	// HigherIsBetter tells how to read a change.
	HigherIsBetter bool `json:"higherIsBetter,omitempty"`
}

// Target is a bound, either the least or the most.
type Target struct {
	AtLeast *float64 `json:"atLeast,omitempty"`
	AtMost  *float64 `json:"atMost,omitempty"`
}

func atMost(v float64) *Target  { return &Target{AtMost: &v} }
func atLeast(v float64) *Target { return &Target{AtLeast: &v} }

func (t Target) String() string {
	if t.AtLeast != nil {
		return fmt.Sprintf("≥ %g", *t.AtLeast)
	}
	return fmt.Sprintf("≤ %g", *t.AtMost)
}

// met reports whether a figure is within its target. Without one it is.
func (f Figure) met() bool {
	if f.Target == nil {
		return true
	}
	v := f.Operator
	if f.Ratio != nil {
		v = *f.Ratio
	}
	return (f.Target.AtLeast == nil || v >= *f.Target.AtLeast) && (f.Target.AtMost == nil || v <= *f.Target.AtMost)
}

// compare returns a figure of two values.
func compare(name, unit string, operator, bare float64, target *Target) Figure {
	f := Figure{Name: name, Unit: unit, Operator: operator, Bare: &bare, Target: target}
	if bare > 0 {
		ratio := operator / bare
		f.Ratio = &ratio
	}
	return f
}

// Turn is what one of the two did in one go.
type Turn struct {
	Instances int
	Seconds   float64
	// Latency is in milliseconds, by the state that was waited for.
	Latency map[string]Quantiles
	// Throughput is instances per second that reached Starting.
	Throughput float64
	// Requests of the measured client, by verb and resource, for each instance. Events, the lease and watches
	// are among them.
	Requests map[string]float64
	// CPU is in seconds, by process.
	CPU map[string]float64
	// Memory is the maximum that the operator had resident, in MiB.
	Memory float64
}

// Size is how things stood at a number of live instances.
type Size struct {
	Instances      int     `json:"instances"`
	Minutes        float64 `json:"minutes"`
	StartingP50    float64 `json:"startingP50"`
	StartingP99    float64 `json:"startingP99"`
	OperatorMiB    float64 `json:"operatorMiB"`
	APIServerMiB   float64 `json:"apiServerMiB"`
	EtcdMiB        float64 `json:"etcdMiB"`
	EtcdDatabaseMB float64 `json:"etcdDatabaseMB"`
}

func readReport(path string) (Report, error) {
	var r Report
	data, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

func (r Report) write(path string) error {
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return writeFile(path, append(data, '\n'))
}

// put replaces the result of a scenario, and keeps all in the order of scenarios.
func (r *Report) put(s Scenario) {
	r.Scenarios = slices.DeleteFunc(r.Scenarios, func(old Scenario) bool { return old.Name == s.Name })
	r.Scenarios = append(r.Scenarios, s)
	order := scenarioNames()
	slices.SortStableFunc(r.Scenarios, func(a, b Scenario) int {
		return slices.Index(order, a.Name) - slices.Index(order, b.Name)
	})
}

func (r Report) find(name string) (Scenario, bool) {
	at := slices.IndexFunc(r.Scenarios, func(s Scenario) bool { return s.Name == name })
	if at < 0 {
		return Scenario{}, false
	}
	return r.Scenarios[at], true
}

// missedCounts names the counts that miss their target.
func (r Report) missedCounts(chosen []scenario) []string {
	var missed []string
	for _, c := range chosen {
		s, _ := r.find(c.name)
		for _, f := range s.Figures {
			if f.Count && !f.met() {
				missed = append(missed, fmt.Sprintf("%s: %s is %g, not %s", s.Name, f.Name, f.Operator, f.Target))
			}
		}
	}
	return missed
}

// writeFile replaces a file in one step.
func writeFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".load-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = firstOf(err, f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
