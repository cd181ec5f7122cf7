package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Report is what load.json holds.
type Report struct {
	Scenarios []Scenario `json:"scenarios"`
}

// Machine is where it was measured.
type Machine struct {
	Processor  string `json:"processor"`
	Processors int    `json:"processors"`
	MemoryGiB  int    `json:"memoryGiB"`
	Kernel     string `json:"kernel"`
	Go         string `json:"go"`
	Commit     string `json:"commit"`
}

// Scenario is the result of one scenario.
type Scenario struct {
	Name    string    `json:"name"`
	Title   string    `json:"title"`
	Date    time.Time `json:"date"`
	Machine Machine   `json:"machine"`
	// Load is the machine's load average at the end, over one, five and fifteen
	// minutes: it includes what else ran there.
	Load    string   `json:"load"`
	Figures []Figure `json:"figures,omitempty"`
	Turns   []Turn   `json:"turns,omitempty"`
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
	Who       string  `json:"who"`
	Instances int     `json:"instances"`
	Seconds   float64 `json:"seconds"`
	// Latency is in milliseconds, by the state that was waited for.
	Latency map[string]Quantiles `json:"latency,omitempty"`
	// Throughput is instances per second that reached Starting.
	Throughput float64 `json:"throughput,omitempty"`
	// Requests of the one whose turn it was, by verb and resource, for each
	// instance. Events, the lease and watches are among them.
	Requests map[string]float64 `json:"requestsPerInstance,omitempty"`
	// CPU is in seconds, by process.
	CPU map[string]float64 `json:"cpuSeconds,omitempty"`
	// Memory is the most that was resident, in MiB, by process.
	Memory map[string]float64 `json:"memoryMiB,omitempty"`
	// QueueDepth is the most that waited in the operator's queue of instances.
	QueueDepth int `json:"queueDepth,omitempty"`
	// Series is the latency to Starting, over the time of the turn.
	Series []Point `json:"series,omitempty"`
}

// Point is the latency of the instances that were created in a slice of time.
type Point struct {
	Second float64 `json:"second"`
	P50    float64 `json:"p50"`
	P99    float64 `json:"p99"`
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
	data, err := r.encode()
	if err != nil {
		return err
	}
	return writeFile(path, data)
}

// encode writes a line for each figure, turn and size, so that a change of one is a change of one line.
func (r Report) encode() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("{\"scenarios\": [\n")
	for i, s := range r.Scenarios {
		figures, turns, sizes := s.Figures, s.Turns, s.Growth
		s.Figures, s.Turns, s.Growth = nil, nil, nil
		head, err := json.Marshal(s)
		if err != nil {
			return nil, err
		}
		b.Write(bytes.TrimSuffix(head, []byte("}")))
		if err := errors.Join(encodeLines(&b, "figures", figures), encodeLines(&b, "turns", turns), encodeLines(&b, "growth", sizes)); err != nil {
			return nil, err
		}
		b.WriteString("}")
		if i < len(r.Scenarios)-1 {
			b.WriteString(",")
		}
		b.WriteString("\n")
	}
	b.WriteString("]}\n")
	return b.Bytes(), nil
}

func encodeLines[T any](b *bytes.Buffer, name string, items []T) error {
	if len(items) == 0 {
		return nil
	}
	fmt.Fprintf(b, ", %q: [\n", name)
	for i, item := range items {
		text, err := json.Marshal(item)
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "  %s%s\n", text, map[bool]string{true: ","}[i < len(items)-1])
	}
	b.WriteString(" ]")
	return nil
}

// published returns what pages need: figures, growth, and the curves that the plot draws. Requests, CPU and memory of
// each run stay where they were measured.
func (r Report) published() Report {
	tenth := func(v float64) float64 { return math.Round(v*10) / 10 }
	var p Report
	for _, s := range r.Scenarios {
		drawn := lastTurns(s)
		s.Turns = nil
		for _, who := range slices.Sorted(maps.Keys(drawn)) {
			t := Turn{Who: who, Instances: drawn[who].Instances, Latency: map[string]Quantiles{}}
			for _, point := range drawn[who].Series {
				t.Series = append(t.Series, Point{Second: tenth(point.Second), P50: tenth(point.P50), P99: tenth(point.P99)})
			}
			q := drawn[who].Latency["starting"]
			curve := slices.Clone(q.Curve)
			for i := range curve {
				curve[i] = tenth(curve[i])
			}
			q.Curve = curve
			t.Latency["starting"] = q
			s.Turns = append(s.Turns, t)
		}
		p.Scenarios = append(p.Scenarios, s)
	}
	return p
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
