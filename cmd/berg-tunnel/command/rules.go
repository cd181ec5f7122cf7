package command

import (
	"github.com/spf13/pflag"

	"github.com/bergctf/berg-operator/internal/kit/allowlist"
)

func addRules(flags *pflag.FlagSet, allowed, denied, deniedPorts *string) {
	flags.StringVar(allowed, "allowed-servers", allowlist.DefaultAllowed, "networks that tunnels may lead to")
	flags.StringVar(denied, "denied-servers", "", "networks that tunnels must not lead to, even if they are allowed")
	flags.StringVar(deniedPorts, "denied-server-ports", allowlist.DefaultDeniedPorts, "ports that tunnels must not lead to: by default those of Kubernetes itself; empty denies none")
}

func rules(allowed, denied, deniedPorts string) (r allowlist.Rules, err error) {
	if r.Allowed, err = allowlist.ParseNetworks(allowed); err != nil {
		return r, usage("--allowed-servers: %w", err)
	}
	if r.Denied, err = allowlist.ParseNetworks(denied); err != nil {
		return r, usage("--denied-servers: %w", err)
	}
	if r.DeniedPorts, err = allowlist.ParsePorts(deniedPorts); err != nil {
		return r, usage("--denied-server-ports: %w", err)
	}
	return r, nil
}
