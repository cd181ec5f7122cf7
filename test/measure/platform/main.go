// Command platform measures berg-api side by side with what it stands for: instances that are created directly, and the
// API server's own reads. It starts the operator and the replicas of berg-api as processes with the rights of the deployed
// ones, on the cluster of KUBECONFIG, which must be one that test/cluster made with --audit and the profile simulated.
// "make load-platform" does all of that. docs/performance.md tells what is measured and what came out.
package main

import (
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
)

// options are what the command line can say.
type options struct {
	scenarios string
	operator  string // the operator's program
	api       string // that of berg-api
	tunnel    string // that of berg-tunnel
	strangers int    // connections without proof at each port
	out       string // folder of platform.json
	pairs     int    // boots of each kind in scenario boot
	rounds    int    // rounds of eight boots
	restarts  int    // restarts in scenario restarts
	crowd     int    // registrations with an instance each
	rate      int    // reads in a second
	seconds   int    // how long they are kept up
}

// figure is one line of the result.
type figure struct {
	What   string  `json:"what"`
	Unit   string  `json:"unit"`
	API    float64 `json:"api"`
	Direct float64 `json:"direct,omitempty"`
	// Ratio of the two, and the limit of the ratio; without a ratio the limit is that of API. 0: none.
	Ratio float64 `json:"ratio,omitempty"`
	Limit float64 `json:"limit,omitempty"`
}

type scenario struct {
	name string
	run  func(context.Context, *bench) ([]figure, error)
}

// scenarios in their order. The crowd is last: its instances stay.
var scenarios = []scenario{{"boot", boot}, {"eight", eight}, {"restarts", restarts}, {"strangers", strangersEverywhere}, {"crowd", crowd}}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "platform: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	if len(args) > 0 && args[0] == "strangers" {
		return crowdAround(ctx, args[1], args[2], args[3], args[4])
	}
	var o options
	var names []string
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	flags := flag.NewFlagSet("platform", flag.ContinueOnError)
	flags.StringVar(&o.scenarios, "scenarios", strings.Join(names, ","), "which of "+strings.Join(names, ", "))
	flags.StringVar(&o.operator, "operator", "bin/manager", "the operator's program")
	flags.StringVar(&o.api, "api", "bin/berg-api", "berg-api's program")
	flags.StringVar(&o.tunnel, "tunnel", "bin/berg-tunnel", "berg-tunnel's program")
	flags.IntVar(&o.strangers, "strangers", 10_000, "connections without proof at each port")
	flags.StringVar(&o.out, "out", "dist/platform", "folder of platform.json")
	flags.IntVar(&o.pairs, "pairs", 60, "boots through berg-api, and as many direct creations between them")
	flags.IntVar(&o.rounds, "rounds", 9, "rounds of eight boots together")
	flags.IntVar(&o.restarts, "restarts", 1000, "restarts over two replicas, one of which is killed")
	flags.IntVar(&o.crowd, "crowd", 5000, "registrations with an instance each")
	flags.IntVar(&o.rate, "rate", 2500, "reads in a second")
	flags.IntVar(&o.seconds, "seconds", 20, "how long the reads are kept up")
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
	defer func() { err = errors.Join(err, b.close()) }()
	var all []figure
	for _, s := range scenarios {
		if !slices.Contains(chosen, s.name) {
			continue
		}
		fmt.Fprintln(os.Stderr, s.name, "…")
		figures, err := s.run(ctx, b)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Fprint(os.Stderr, table(figures)) // an interruption costs no result
		all = append(all, figures...)
	}
	fmt.Print(table(all))
	data, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o750); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.out, "platform.json"), append(data, '\n'), 0o600)
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
	t.WriteString("| figure | through berg-api | direct | ratio | limit |\n| --- | ---: | ---: | ---: | ---: |\n")
	for _, f := range all {
		through := number(f.API)
		if through == "" {
			through = "0"
		}
		fmt.Fprintf(&t, "| %s | %s | %s | %s | %s |\n", f.What, strings.TrimSpace(through+" "+f.Unit), number(f.Direct), number(f.Ratio), number(f.Limit))
	}
	return t.String()
}
