package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// measured are the folders that every scenario measures: a change of them may change each figure.
var measured = []string{"internal/berg", "internal/kit", "internal/operator", "config/fence", "config/berg/rbac"}

// staleMark stands below the title of a scenario whose figures are older than the code that they measure.
const staleMark = "**Older than the last change of the code that it measures.** `%s` measures it again.\n\n"

// measureCommand returns the command that measures a scenario again.
func measureCommand(scenario string) string {
	if scenario == "pods" || scenario == "warm-pods" { // they need a real node
		return "make load-" + scenario
	}
	return fmt.Sprintf("make load ARGS='--scenarios %s'", scenario)
}

// lastChange returns when the measured code was last committed. dir is a folder of the checkout.
func lastChange(ctx context.Context, dir string) (time.Time, error) {
	root, err := exec.CommandContext(ctx, "git", "-C", dir, "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return time.Time{}, fmt.Errorf("%s is not a checkout: %w", dir, err)
	}
	log := append([]string{"-C", strings.TrimSpace(string(root)), "log", "-1", "--format=%cI", "--"}, measured...)
	date, err := exec.CommandContext(ctx, "git", log...).Output()
	if err != nil {
		return time.Time{}, fmt.Errorf("git log: %w", err)
	}
	return time.Parse(time.RFC3339, strings.TrimSpace(string(date)))
}
