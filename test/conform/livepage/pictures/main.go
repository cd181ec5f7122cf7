// Command pictures takes the pictures of docs/live-page.md: a healthy and a bad event on the cluster of KUBECONFIG, in a browser.
// make live-page-pictures does all of that.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/conform/livepage/chrome"
	"github.com/bergctf/berg-operator/test/conform/livepage/wall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "pictures: %v\n", err)
		os.Exit(1)
	}
}

// The width of the pictures, and how high they are at most.
const width, maxHeight = 1280, 1800

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("pictures", flag.ContinueOnError)
	out := flags.String("out", "docs/pictures", "folder of the pictures, from the root of the repository")
	minutes := flags.Int("minutes", 6, "how long the event is; the history has a point for each minute")
	if err := flags.Parse(args); err != nil {
		return err
	}
	root, err := wall.Root()
	if err != nil {
		return err
	}
	folder := filepath.Join(root, *out)
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return err
	}
	w, err := wall.Open(ctx, "ctf")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close(ctx)) }()
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
	take := func(name, path, until string) error {
		if err := errors.Join(tab.Size(width, 900), tab.Go(w.Address+path), tab.Until(until)); err != nil {
			return err
		}
		height, err := tab.Number("document.documentElement.scrollHeight")
		if err != nil {
			return err
		}
		if err := tab.Size(width, min(int64(height), maxHeight)); err != nil {
			return err
		}
		picture, err := tab.Picture()
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(folder, name), picture, 0o600)
	}
	e := event{w: w}
	if err := e.begin(ctx); err != nil {
		return err
	}
	for minute := range *minutes {
		if err := e.minute(ctx, minute); err != nil {
			return err
		}
	}
	live := `document.getElementById("connection").textContent === "live" && `
	if err := take("live-page-healthy.png", "", live+`document.querySelectorAll("#problems > ul > li").length === 0`); err != nil {
		return err
	}
	if err := e.goBad(ctx); err != nil {
		return err
	}
	if err := take("live-page-bad.png", "", live+`document.querySelectorAll("#problems > ul > li").length === 4`); err != nil {
		return err
	}
	return take("live-page-instance.png", "instances/team-red-kernel", live+`document.body.textContent.includes("Back-off")`)
}

// event is the event that the pictures show.
type event struct {
	w       *wall.Wall
	started int
}

var challenges = []string{"guestbook", "kernel", "notes"}

var teams = []string{"amber", "blue", "coral", "dune", "ember", "fern", "gold", "hazel", "iris", "jade", "kelp", "lime", "mint", "navy", "opal", "pine"}

func (e *event) begin(ctx context.Context) error {
	accepted := metav1.Condition{Type: bergv1.ChallengeConditionAccepted, Status: metav1.ConditionTrue, Reason: bergv1.ChallengeAccepted}
	pulled := metav1.Condition{Type: bergv1.ChallengeConditionImagesReady, Status: metav1.ConditionTrue, Reason: bergv1.ImagesPulled}
	e.w.Memory = "1Gi" // so that 24 instances fill four nodes of the size below
	for n, name := range challenges {
		port := bergv1.PublicHTTPRoute
		if n == 1 {
			port = bergv1.PublicPort
		}
		if err := errors.Join(e.w.Challenge(ctx, name, port, accepted, pulled), e.w.Check(ctx, name, bergv1.CheckSolved)); err != nil {
			return err
		}
	}
	return e.w.Nodes(ctx, corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("7Gi"), corev1.ResourcePods: resource.MustParse("110"),
	})
}

// minute lets a few instances start, and one end.
func (e *event) minute(ctx context.Context, minute int) error {
	for n := range 3 + minute%3 {
		team, challenge := teams[e.started%len(teams)], challenges[(e.started+n)%len(challenges)]
		name := fmt.Sprintf("team-%s-%s", team, challenge)
		e.started++
		took := time.Duration(2+(e.started*7)%5) * time.Second
		if _, err := e.w.Write(ctx, name, challenge, "team-"+team, wall.Running(name, took)); err != nil {
			return err
		}
	}
	select {
	case <-time.After(time.Minute): // the history has a point for each
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// goBad is what a person must see.
func (e *event) goBad(ctx context.Context) error {
	if err := e.w.Check(ctx, "notes", bergv1.CheckNeverStarted); err != nil {
		return err
	}
	for _, bad := range []struct {
		team, challenge string
		status          bergv1.ChallengeInstanceStatus
	}{
		{"rust", "notes", wall.Waiting(bergv1.PhaseStarting, bergv1.CauseImageUnavailable, bergv1.ConditionPodsReady, "example.org/notes:1: not found")},
		{"sand", "guestbook", wall.Waiting(bergv1.PhaseStarting, bergv1.CauseNoCapacity, bergv1.ConditionPodsReady, "0 of 4 nodes are available: insufficient memory")},
		{"teal", "guestbook", wall.Waiting(bergv1.PhaseStarting, bergv1.CauseNoCapacity, bergv1.ConditionPodsReady, "0 of 4 nodes are available: insufficient memory")},
		{"umber", "notes", wall.Waiting(bergv1.PhasePending, bergv1.CauseQueued, bergv1.ConditionAdmitted, "30 of 30 instances exist")},
		{"violet", "guestbook", wall.Waiting(bergv1.PhasePending, bergv1.CauseQueued, bergv1.ConditionAdmitted, "30 of 30 instances exist")},
		{"red", "kernel", wall.Waiting(bergv1.PhaseStarting, bergv1.CauseCrashing, bergv1.ConditionPodsReady, "Container web ended with exit code 139")},
	} {
		name := fmt.Sprintf("team-%s-%s", bad.team, bad.challenge)
		i, err := e.w.Write(ctx, name, bad.challenge, "team-"+bad.team, bad.status)
		if err != nil {
			return err
		}
		if bad.team == "red" {
			if err := e.w.Event(ctx, i, corev1.EventTypeWarning, "Crashing", "Back-off restarting container web"); err != nil {
				return err
			}
		}
	}
	return nil
}
