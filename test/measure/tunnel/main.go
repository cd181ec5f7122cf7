// Command tunnel measures berg-tunnel side by side with what people use today, and with programs
// that only relay. docs/performance.md tells how, and shows the table.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bergctf/berg-operator/test/measure/machine"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "tunnel: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "relay" {
		flags := flag.NewFlagSet("relay", flag.ContinueOnError)
		listen, to := flags.String("listen", "", "where to listen"), flags.String("to", "", "where to dial")
		secureIn, secureOut := flags.Bool("secure-in", false, "serve TLS"), flags.Bool("secure-out", false, "dial TLS")
		dir := flags.String("tls-dir", "", "folder with certificates")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return relay(ctx, *listen, *to, *secureIn, *secureOut, *dir)
	}
	if len(args) > 0 && args[0] == "serve" {
		flags := flag.NewFlagSet("serve", flag.ContinueOnError)
		listen := flags.String("listen", "127.0.0.1:0", "where to listen")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		listener, err := net.Listen("tcp", *listen)
		if err != nil {
			return err
		}
		serveAll(listener)
		return nil
	}
	return compare(ctx, args)
}

// figures is what is written to a file.
type figures struct {
	When    string              `json:"when"`
	Machine machine.Description `json:"machine"`
	Load    string              `json:"load"`
	Results map[string]result   `json:"results"`
	Missing map[string]string   `json:"missing,omitempty"`
}

func compare(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("tunnel", flag.ContinueOnError)
	berg := flags.String("berg-tunnel", "", "the program, built by make")
	tools := flags.String("tools", "", "folder with chisel, frps, frpc and rathole")
	kubectl := flags.String("kubectl", "", "kubectl and its options; needs KUBECONFIG, with this machine as the node")
	podImage := flags.String("pod-image", "", "any image that the node has, for the pod that ports are forwarded to")
	only := flags.String("only", "", "names of tunnels, with commas between them; all if empty")
	rounds := flags.Int("rounds", 3, "rounds; of each figure the median counts")
	out := flags.String("out", "", "folder for the table and the figures")
	check := flags.Bool("check", false, "fail if a target is missed")
	p := plan{}
	flags.DurationVar(&p.duration, "duration", 5*time.Second, "how long each figure is measured")
	flags.DurationVar(&p.limit, "limit", 2*time.Minute, "how long all figures of one tunnel may take in a round; then it is stopped, and the missing figures are reported")
	flags.IntVar(&p.streams, "streams", 100, "concurrent streams")
	flags.IntVar(&p.idle, "idle", 1000, "idle streams")
	flags.IntVar(&p.workers, "workers", 16, "clients that make new connections concurrently")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *berg == "" || *rounds < 1 || p.duration <= 0 || p.limit <= 0 {
		return errors.New("want --berg-tunnel, one round or more, a duration and a limit")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "berg-tunnel-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if said, err := exec.CommandContext(ctx, *berg, "certificates", "--output", filepath.Join(dir, "pair")).CombinedOutput(); err != nil {
		return fmt.Errorf("make certificates: %w: %s", err, said)
	}
	// The server is a process of its own, so that it is the same for all.
	port := freePort()
	server := &tunnel{name: "server"}
	b := &bench{ctx: ctx, self: self, berg: *berg, tools: *tools, dir: dir, server: port, kubectl: strings.Fields(*kubectl), podImage: *podImage}
	if err := b.run(server, self, "serve", "--listen", address(port)); err != nil {
		return err
	}
	defer server.stop()
	if err := waitPort(ctx, address(port)); err != nil {
		return err
	}

	f := figures{When: time.Now().UTC().Format("2006-01-02 15:04 MST"), Machine: machine.Describe(), Results: map[string]result{}, Missing: map[string]string{}}
	all := map[string][]result{}
	for round := range *rounds {
		for _, w := range ways {
			if *only != "" && !slices.Contains(strings.Split(*only, ","), w.name) {
				continue
			}
			r, err := b.round(w, p)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			for _, why := range r.failures {
				fmt.Fprintf(os.Stderr, "round %d of %d: %s: %v\n", round+1, *rounds, w.name, why)
			}
			if errors.Is(err, errNotAsked) {
				continue
			}
			if err != nil {
				f.Missing[w.name] = err.Error()
				fmt.Fprintf(os.Stderr, "round %d of %d: %s: %v\n", round+1, *rounds, w.name, err)
				continue
			}
			fmt.Fprintf(os.Stderr, "round %d of %d: %-22s %6.2f Gbit/s, %6.2f, %7.0f/s, %6.0f µs, %6.0f, %9.0f B\n",
				round+1, *rounds, w.name, r.One, r.Many, r.Connections, r.P50, r.P99, r.Memory)
			all[w.name] = append(all[w.name], r)
		}
	}
	for name, rounds := range all {
		f.Results[name] = median(rounds)
		delete(f.Missing, name)
	}
	f.Load = machine.LoadAverage()
	table := f.table(p, *rounds)
	if _, err := io.WriteString(os.Stdout, table); err != nil {
		return err
	}
	if *out != "" {
		encoded, err := json.MarshalIndent(f, "", "  ")
		if err != nil {
			return err
		}
		if err := errors.Join(os.MkdirAll(*out, 0o755),
			os.WriteFile(filepath.Join(*out, "tunnel.json"), append(encoded, '\n'), 0o644),
			os.WriteFile(filepath.Join(*out, "tunnel.md"), []byte(table), 0o644)); err != nil {
			return err
		}
	}
	if missed := f.missed(); *check && len(missed) > 0 {
		return fmt.Errorf("targets are missed: %s", strings.Join(missed, "; "))
	}
	return nil
}

// round starts a tunnel, measures it, and stops it.
func (b *bench) round(w way, p plan) (result, error) {
	t := &tunnel{name: w.name}
	defer t.stop()
	if err := w.start(b, t); err != nil {
		return result{}, err
	}
	if err := t.works(b.ctx); err != nil {
		return result{}, err
	}
	// A tunnel that hangs must not delay the others: its connections break then.
	limit := time.AfterFunc(p.limit, t.kill)
	defer limit.Stop()
	return p.measure(t)
}

// table returns the figures for people.
func (f *figures) table(p plan, rounds int) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s, on %d CPUs (%s), Linux %s, %s; load average %s. Medians of %d rounds by turns, %s for each figure.\n\n", f.When, f.Machine.Processors, f.Machine.Processor, f.Machine.Kernel, f.Machine.Go, f.Load, rounds, p.duration)
	fmt.Fprintf(&s, "| | 1 stream, Gbit/s | %d streams, Gbit/s | new connections per second | latency p50, µs | p99, µs | memory that 1,000 idle streams add, MB | all memory with 1,000 idle streams after bulk, MB | |\n", p.streams)
	s.WriteString("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n")
	for _, w := range ways {
		r, ok := f.Results[w.name]
		if !ok {
			if why := f.Missing[w.name]; why != "" {
				fmt.Fprintf(&s, "| %s | | | | | | | | not measured: %s |\n", w.name, strings.ReplaceAll(why, "\n", " "))
			}
			continue
		}
		figure := func(format string, value float64) string {
			if value == 0 {
				return "–"
			}
			return fmt.Sprintf(format, value)
		}
		fmt.Fprintf(&s, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", w.name, figure("%.2f", r.One), figure("%.2f", r.Many),
			figure("%.0f", r.Connections), figure("%.0f", r.P50), figure("%.0f", r.P99), figure("%.1f", r.Memory/1e6), figure("%.1f", r.MemoryAfter/1e6), w.note)
	}
	if missed := f.missed(); len(missed) > 0 {
		fmt.Fprintf(&s, "\nTargets missed: %s.\n", strings.Join(missed, "; "))
	} else {
		s.WriteString("\nAll targets are met.\n")
	}
	return s.String()
}

// missed returns the targets that are not met: ahead of every peer in each figure, and close to
// the bare relay with the same TLS. A peer that could not be measured is unknown, so its target
// is missed, too.
func (f *figures) missed() (all []string) {
	ours, ok := f.Results["berg-tunnel"]
	if !ok {
		return []string{"berg-tunnel was not measured"}
	}
	for _, w := range ways {
		if f.Missing[w.name] != "" {
			all = append(all, w.name+" could not be measured")
		}
	}
	for _, w := range ways {
		r, ok := f.Results[w.name]
		if !ok {
			continue
		}
		switch w.name {
		case "direct", "bare TCP relay", "berg-tunnel":
		case "bare TLS relay":
			if ours.One < 0.8*r.One {
				all = append(all, fmt.Sprintf("one stream is at %.2f of the bare relay with TLS, want 0.8", ours.One/r.One))
			}
			direct := f.Results["direct"].P99
			if added := r.P99 - direct; direct > 0 && added > 0 && ours.P99-direct > 1.5*added {
				all = append(all, fmt.Sprintf("added latency p99 is %.2f times that of the bare relay with TLS, want 1.5", (ours.P99-direct)/added))
			}
		default:
			for _, c := range []struct {
				what         string
				ours, theirs float64
			}{
				{"one stream", ours.One, r.One},
				{"many streams", ours.Many, r.Many},
				{"new connections", ours.Connections, r.Connections},
				{"latency p50", -ours.P50, -r.P50},
				{"latency p99", -ours.P99, -r.P99},
				{"idle memory", -ours.Memory, -r.Memory},
			} {
				switch {
				case c.ours == 0 || c.theirs == 0:
					all = append(all, fmt.Sprintf("%s: could not be compared with %s", c.what, w.name))
				case c.ours < c.theirs:
					all = append(all, fmt.Sprintf("%s: %s is ahead", c.what, w.name))
				}
			}
		}
	}
	return all
}
