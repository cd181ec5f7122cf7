// Command gate measures berg-gate side by side with Traefik, and with a client that needs neither: one that watches the API server, or that
// connects to the pod itself. It runs both as processes, on the cluster of KUBECONFIG, which must be one that test/cluster made, and plays
// the pods. "make load-gate" and "make attack-gate" do all of that. docs/performance.md says what is measured, and shows the results.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bergctf/berg-operator/test/measure/machine"
)

// options are what the command line can say.
type options struct {
	scenarios string
	gate      string // its program
	traefik   string // its program; "" for none
	operator  string // its program, for starts
	image     string // of the instances in starts
	out       string // folder of gate.json
	routes    string // numbers of routes that exist when a new one is written
	attempts  int    // new routes at each of these numbers
	rush      int    // routes written together
	traffic   time.Duration
	rounds    int
	requests  int // in churn
	names     int // server names of a scan
	attacks   string
	together  int // starts of instances
	check     bool
}

// figure is one line of the result.
type figure struct {
	What    string  `json:"what"`
	Unit    string  `json:"unit"`
	Gate    float64 `json:"gate"`
	Traefik float64 `json:"traefik,omitempty"`
	// Bare is what a client without a Gateway gets.
	Bare float64 `json:"bare,omitempty"`
	// Limit is compared with Value, which names what it is: the gate's figure, or its ratio to another one.
	Limit  float64 `json:"limit,omitempty"`
	Value  float64 `json:"value,omitempty"`
	Of     string  `json:"of,omitempty"`
	AtMost bool    `json:"atMost,omitempty"`
}

func (f figure) missed() bool {
	return f.Of != "" && (f.AtMost && f.Value > f.Limit || !f.AtMost && f.Value < f.Limit)
}

// atMost sets the limit of the gate's own figure.
func (f figure) atMost(limit float64) figure {
	f.Limit, f.Value, f.Of, f.AtMost = limit, f.Gate, "gate", true
	return f
}

// ratio sets the limit of the gate's figure in relation to another one.
func (f figure) ratio(of string, other, limit float64, atMost bool) figure {
	if other == 0 {
		return f
	}
	f.Limit, f.Value, f.Of, f.AtMost = limit, f.Gate/other, "ratio to "+of, atMost
	return f
}

type scenario struct {
	name string
	run  func(context.Context, *bench) ([]figure, error)
}

// scenarios in their order. starts needs a cluster with real nodes, and the last two are those of make attack-gate: they run only when they
// are asked for.
var scenarios = []scenario{
	{"traffic", traffic}, {"churn", churn}, {"routes", routes}, {"memory", memory}, {"starts", starts}, {"confusion", confusion}, {"hostile", hostile},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "gate: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	if len(args) > 0 && args[0] == "serve" {
		return serve(ctx, args[1])
	}
	if len(args) > 0 && args[0] == "attack" {
		return attack(ctx, args[1], args[2], args[3], args[4])
	}
	var o options
	var names []string
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	flags := flag.NewFlagSet("gate", flag.ContinueOnError)
	flags.StringVar(&o.scenarios, "scenarios", "traffic,churn,routes,memory", "which of "+strings.Join(names, ", "))
	flags.StringVar(&o.gate, "gate", "bin/berg-gate", "the gate's program")
	flags.StringVar(&o.traefik, "traefik", "", "Traefik's program; without it, only the gate is measured")
	flags.StringVar(&o.operator, "operator", "bin/manager", "the operator's program, for starts")
	flags.StringVar(&o.image, "image", "", "image of the instances of starts, which serves HTTP at port 8080")
	flags.StringVar(&o.out, "out", "dist/gate", "folder of gate.json and gate.md")
	flags.StringVar(&o.routes, "routes", "0,1000,10000", "how many routes exist when a new one is written")
	flags.IntVar(&o.attempts, "attempts", 100, "new routes at each of these numbers")
	flags.IntVar(&o.rush, "rush", 500, "routes that are written together")
	flags.DurationVar(&o.traffic, "traffic", 3*time.Second, "how long each figure of traffic is measured")
	flags.IntVar(&o.rounds, "rounds", 5, "rounds of traffic and of each attack; the median counts")
	flags.IntVar(&o.requests, "requests", 10_000, "requests while instances come and go")
	flags.IntVar(&o.names, "names", 100_000, "server names of a scan")
	flags.StringVar(&o.attacks, "attacks", "", "which attacks of hostile; all without a name")
	flags.IntVar(&o.together, "together", 100, "instances that are started together")
	flags.BoolVar(&o.check, "check", false, "fail if a limit is missed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen := strings.Split(o.scenarios, ",")
	for _, name := range chosen {
		if !slices.Contains(names, name) {
			return fmt.Errorf("there is no scenario %q: choose of %s", name, strings.Join(names, ", "))
		}
	}
	b, err := prepare(ctx, o)
	if err != nil {
		return err
	}
	defer b.close()
	var all []figure
	for _, s := range scenarios {
		if !slices.Contains(chosen, s.name) {
			continue
		}
		fmt.Fprintln(os.Stderr, s.name, "…")
		figures, err := s.run(ctx, b)
		fmt.Fprint(os.Stderr, table(figures)) // an interruption costs no result
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		all = append(all, figures...)
	}
	return report(o, all)
}

// report writes the results, and fails if a limit was missed and that matters.
func report(o options, all []figure) error {
	here := machine.Describe()
	text := fmt.Sprintf("%s, on %d CPUs (%s), Linux %s, %s, commit %s; load average %s.\n\n%s", time.Now().UTC().Format(time.DateOnly),
		here.Processors, here.Processor, here.Kernel, here.Go, here.Commit, machine.LoadAverage(), table(all))
	fmt.Print(text)
	data, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(o.out, 0o750), os.WriteFile(filepath.Join(o.out, "gate.json"), append(data, '\n'), 0o600),
		os.WriteFile(filepath.Join(o.out, "gate.md"), []byte(text), 0o600)); err != nil {
		return err
	}
	var missed []string
	for _, f := range all {
		if f.missed() {
			missed = append(missed, fmt.Sprintf("%s: %.2f, limit %.2f", f.What, f.Value, f.Limit))
		}
	}
	if o.check && len(missed) > 0 {
		return fmt.Errorf("missed: %s", strings.Join(missed, "; "))
	}
	return nil
}

// table is the figures in Markdown.
func table(all []figure) string {
	number := func(v float64) string {
		switch {
		case v == 0:
			return ""
		case v < 10:
			return fmt.Sprintf("%.2f", v)
		}
		return fmt.Sprintf("%.0f", v)
	}
	var t strings.Builder
	t.WriteString("| figure | unit | gate | Traefik | bare client | limit | |\n| --- | --- | ---: | ---: | ---: | --- | --- |\n")
	for _, f := range all {
		limit, met := "", ""
		if f.Of != "" {
			sign, result := "≥", "met"
			if f.AtMost {
				sign = "≤"
			}
			if f.missed() {
				result = "**missed**"
			}
			limit, met = fmt.Sprintf("%s %s %s", strings.Replace(f.Of, "gate", "", 1), sign, cmp.Or(number(f.Limit), "0")), result
			if f.Of != "gate" {
				met += fmt.Sprintf(": %.2f", f.Value)
			}
		}
		ours := number(f.Gate)
		if ours == "" {
			ours = "0"
		}
		fmt.Fprintf(&t, "| %s | %s | %s | %s | %s | %s | %s |\n", f.What, f.Unit, ours, number(f.Traefik), number(f.Bare), strings.TrimSpace(limit), met)
	}
	return t.String()
}
