// Command measure opens the live page over many instances of the cluster of KUBECONFIG, and prints how long the page takes
// until it is painted, how long a change takes until it is on the page, and how much memory berg-api takes. make measure-live-page does
// all of that; docs/live-page.md has the figures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/conform/livepage/chrome"
	"github.com/bergctf/berg-operator/test/conform/livepage/wall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "measure: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("measure", flag.ContinueOnError)
	count := flags.Int("instances", 5000, "how many instances there are")
	visits := flags.Int("visits", 100, "how often the page is opened")
	updates := flags.Int("updates", 200, "how many changes are followed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *count < 1 || *visits < 1 || *updates < 1 {
		return errors.New("--instances, --visits and --updates must be 1 or more")
	}
	w, err := wall.Open(ctx, "live-page-many-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close(ctx)) }()
	if err := w.Challenge(ctx, "web", bergv1.PublicHTTPRoute); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "creating %d instances\n", *count)
	if err := create(ctx, w, *count); err != nil {
		return err
	}
	browser, err := chrome.New(ctx)
	if err != nil {
		return err
	}
	defer browser.Close()
	tab, err := browser.Open(w.Address, w.Authorization())
	if err != nil {
		return err
	}
	defer tab.Close()
	// The page has all instances.
	if err := errors.Join(tab.Go(w.Address), tab.Until(fmt.Sprintf(`document.body.textContent.includes("%d found")`, *count))); err != nil {
		return err
	}
	paints, err := paint(tab, w.Address, *visits)
	if err != nil {
		return err
	}
	latencies, err := follow(ctx, w, tab, *updates)
	if err != nil {
		return err
	}
	memory, err := memoryOf(w.Process.Pid)
	if err != nil {
		return err
	}
	fmt.Printf("%d instances\n", *count)
	fmt.Printf("first paint, of %d visits: %s\n", len(paints), describe(paints))
	fmt.Printf("from a change to the page, of %d changes: %s\n", len(latencies), describe(latencies))
	fmt.Printf("memory of berg-api: %s now, %s at most\n", memory["VmRSS"], memory["VmHWM"])
	return nil
}

// create makes instances that run, a few at a time.
func create(ctx context.Context, w *wall.Wall, count int) error {
	numbers := make(chan int)
	var mu sync.Mutex
	var failed error
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for n := range numbers {
				name := fmt.Sprint("instance-", n)
				if _, err := w.Write(ctx, name, "web", fmt.Sprint("team-", n), wall.Running(name, 3*time.Second)); err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
				}
			}
		})
	}
	for n := range count {
		mu.Lock()
		stop := failed != nil
		mu.Unlock()
		if stop {
			break
		}
		numbers <- n
	}
	close(numbers)
	workers.Wait()
	return failed
}

// paint opens the page again and again, and returns how long each visit took until its first contents were painted.
func paint(tab *chrome.Tab, address string, visits int) (all []time.Duration, err error) {
	for range visits {
		if err := errors.Join(tab.Go(address), tab.Until(`performance.getEntriesByName("first-contentful-paint").length > 0`)); err != nil {
			return nil, err
		}
		at, err := tab.Number(`performance.getEntriesByName("first-contentful-paint")[0].startTime`)
		if err != nil {
			return nil, err
		}
		all = append(all, time.Duration(at*float64(time.Millisecond)))
	}
	return all, nil
}

// follow changes instances one after the other, and returns how long each change took from the answer of the API server until it was
// in the document. The browser notes when, with the clock of the same machine.
func follow(ctx context.Context, w *wall.Wall, tab *chrome.Tab, updates int) (all []time.Duration, err error) {
	err = errors.Join(tab.Go(w.Address), tab.Until(`document.getElementById("connection").textContent === "live"`))
	if err != nil {
		return nil, err
	}
	_, err = tab.Text(`(() => {
		window.shown = {};
		new MutationObserver(() => {
			const at = Date.now();
			for (const e of document.querySelectorAll("#problems .problem")) {
				const change = e.textContent.match(/change (\d+)/);
				if (change && !(change[1] in window.shown)) { window.shown[change[1]] = at; }
			}
		}).observe(document.body, {childList: true, subtree: true});
	})()`)
	if err != nil {
		return nil, err
	}
	for n := range updates {
		name := fmt.Sprint("instance-", n)
		status := wall.Waiting(bergv1.PhaseStarting, bergv1.CauseCrashing, bergv1.ConditionPodsReady, fmt.Sprint("change ", n))
		if _, err := w.Write(ctx, name, "web", fmt.Sprint("team-", n), status); err != nil {
			return nil, err
		}
		written := time.Now()
		if err := tab.Until(fmt.Sprintf(`"%d" in window.shown`, n)); err != nil {
			return nil, err
		}
		at, err := tab.Number(fmt.Sprintf(`window.shown["%d"]`, n))
		if err != nil {
			return nil, err
		}
		all = append(all, max(0, time.UnixMilli(int64(at)).Sub(written)))
	}
	return all, nil
}

// memoryOf returns what Linux says of the memory of a process.
func memoryOf(process int) (map[string]string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(process) + "/status")
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if kilobytes, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB")); err == nil {
			all[name] = fmt.Sprintf("%d MiB", kilobytes/1024)
		}
	}
	return all, nil
}

func describe(all []time.Duration) string {
	slices.Sort(all)
	at := func(percent int) time.Duration {
		return all[min(len(all)*percent/100, len(all)-1)].Round(time.Millisecond)
	}
	return fmt.Sprintf("p50 %s, p99 %s, at most %s", at(50), at(99), all[len(all)-1].Round(time.Millisecond))
}
