// Command rights compares what the operator is granted with what it used, as the API
// server's audit log tells: nothing granted is unused, and nothing used is missing.
//
// On a cluster that test/cluster made with --audit, after the tests, this takes down
// what the log of the cluster of KUBECONFIG tells:
//
//	go run ./test/measure/rights --collect dist/rights/integration.json
//
// And this compares everything that was taken down with the roles of config:
//
//	go run ./test/measure/rights dist/rights/*.json
//
// This tries, on a cluster of its own, what a stolen token of each installation can do, and compares it with a page:
//
//	go run ./test/measure/rights --attack docs/security.md
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "rights: %v\n", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("rights", flag.ContinueOnError)
	flags.SetOutput(stderr)
	collect := flags.String("collect", "", "file to write: which rights the operator used, by the audit log of the cluster of KUBECONFIG")
	roles := flags.String("rbac", "config", "folder with the roles and bindings of operator and families")
	page := flags.String("attack", "", "page with the table of what a stolen token can do: try it on the cluster of KUBECONFIG, and compare")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *page != "" {
		return attack(ctx, *page, stdout)
	}
	if *collect != "" {
		return takeDown(ctx, os.Getenv("KUBECONFIG"), *collect)
	}
	if flags.NArg() == 0 {
		return errors.New("name the files that --collect has written")
	}
	all := usage{}
	for _, file := range flags.Args() {
		raw, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var one usage
		if err := json.Unmarshal(raw, &one); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for use, n := range one {
			all[use] += n
		}
	}
	granted, err := readGrants(*roles, slices.Concat(usual, onRequest))
	if err != nil {
		return err
	}
	problems := compare(granted, all)
	if len(problems) > 0 {
		return fmt.Errorf("%d rights do not fit what was used:\n%s", len(problems), strings.Join(problems, "\n"))
	}
	fmt.Fprintf(stdout, "all %d granted rights were used, and no other, in %d requests of %s\n", len(granted), all.requests(), strings.Join(flags.Args(), ", "))
	return nil
}

func takeDown(ctx context.Context, kubeconfig, file string) error {
	used := usage{}
	logs, err := completeLogs(ctx, kubeconfig)
	if err != nil {
		return err
	}
	for _, log := range logs {
		if err := used.addLog(log); err != nil {
			return err
		}
	}
	if used.requests() == 0 {
		return fmt.Errorf("the audit log of the cluster has no request of %s", operatorUser)
	}
	raw, err := json.MarshalIndent(used, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return err
	}
	return os.WriteFile(file, append(raw, '\n'), 0o600)
}
