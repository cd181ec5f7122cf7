package config

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bergctf/berg-operator/internal/kit/settings"
)

// everything is what all sections are read into.
type everything struct {
	Berg
	Quix    Quix
	Process Process
}

func (e *everything) sections() []settings.Section {
	berg := &e.Berg
	return []settings.Section{berg.Section(), e.Quix.Section(), e.Process.Section([]string{"berg.norelect.ch", "quix.io"})}
}

func (e *everything) all() []settings.Setting {
	var all []settings.Setting
	for _, section := range e.sections() {
		all = append(all, section.Settings...)
	}
	return all
}

func load(t *testing.T, args []string, env map[string]string) (everything, error) {
	t.Helper()
	var e everything
	_, err := settings.Load("", e.sections(), args, func(name string) string { return env[name] }, &bytes.Buffer{})
	return e, err
}

func TestDefaultsAreValid(t *testing.T) {
	cfg, err := load(t, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Challenge.Timeout != 2*time.Hour || cfg.Challenge.Namespace != "berg" || cfg.Challenge.TLSPort != 443 || !cfg.Process.LeaderElect {
		t.Errorf("unexpected defaults: %+v", cfg)
	}
}

func TestOptionsWinOverVariables(t *testing.T) {
	cfg, err := load(t, []string{"--challenge-domain=flag.example"}, map[string]string{"CHALLENGE_DOMAIN": "env.example", "CHALLENGE_NAMESPACE": "env", "GATEWAY_NAME": " "})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Challenge.Domain != "flag.example" || cfg.Challenge.Namespace != "env" || cfg.Gateway.Name != "berg-gateway" {
		t.Errorf("domain %q, namespace %q, gateway %q", cfg.Challenge.Domain, cfg.Challenge.Namespace, cfg.Gateway.Name)
	}
	if cfg, err := load(t, []string{"--leader-elect=false"}, nil); err != nil || cfg.Process.LeaderElect {
		t.Errorf("a boolean option is not followed: %v", err)
	}
}

func TestEveryErrorNamesItsVariable(t *testing.T) {
	bad := map[string]string{
		"CHALLENGE_NAMESPACE": "Not A Name", "CHALLENGE_DOMAIN": "-x", "CHALLENGE_HTTP_PORT": "0", "CHALLENGE_HTTP_TLS": "https", "CHALLENGE_TLS_PORT": "http",
		"GATEWAY_NAME": "A", "GATEWAY_NAMESPACE": "a.b", "CHALLENGE_HTTP_LISTENER_NAME": "_", "CHALLENGE_TLS_LISTENER_NAME": "_",
		"GATEWAY_DATAPLANE_NAMESPACES": "ok,NOT", "CHALLENGE_INSTANCE_TIMEOUT": "0s", "CHALLENGE_MAX_LIFETIME": "soon",
		"CHALLENGE_START_DEADLINE": "-1m", "CHALLENGE_TIMEOUT_FROM": "pull", "CHALLENGE_CONNECT_TIMEOUT": "31s", "CHALLENGE_WITHDRAWAL_POLICY": "keep", "ORPHAN_GRACE_PERIOD": "10", "CHALLENGE_CPU_LIMIT": "lots", "CHALLENGE_CPU_REQUEST": "0",
		"CHALLENGE_MEMORY_LIMIT": "100mi", "CHALLENGE_MEMORY_REQUEST": "-1", "CHALLENGE_EGRESS_BANDWIDTH": "1", "CHALLENGE_INGRESS_BANDWIDTH": "fast",
		"CHALLENGE_EPHEMERAL_STORAGE_LIMIT": "500m", "CHALLENGE_EPHEMERAL_STORAGE_REQUEST": "-1",
		"CHALLENGE_SECCOMP_PROFILE": "Localhost", "HEXACTF_ALLOWED_CAPABILITIES": "all", "HEXACTF_TRUSTED_AUTHORS": "root", "CHALLENGE_USER_NAMESPACES": "on", "CHALLENGE_NESTED_SECCOMP_PROFILE": "../x.json",
		"CHALLENGE_IMAGE_PULL_POLICY": "Sometimes", "CHALLENGE_RUNTIME_CLASS_NAME": "G V", "PULL_SECRET_NAME": "A/B",
		"ENABLED_APIS": "berg.norelect.ch,berg", "NAMESPACE_SUFFIX": "-q_", "ENVIRONMENT_REGEX": "(", "SERVICE_ACCOUNT_NAME": "A", "SERVICE_ACCOUNT_NAMESPACE": "a.b",
		"CLUSTER_ROLE_NAME": "a/b", "ROLE_VIOLATION_POLICY": "Ignore", "ENVIRONMENT_POD_SECURITY": "strict", "CACHE_SYNC_PERIOD": "often",
		"CHALLENGE_ADDITIONAL_HEADLESS_SERVICE": "perhaps", "CLUSTER_DOMAIN": ".", "POD_NAMESPACE": ".", "METRICS_BIND_ADDRESS": "8443",
		"METRICS_SECURE": "2", "HEALTH_PROBE_BIND_ADDRESS": ":x", "LEADER_ELECT": "maybe", "LEASE_NAME": "a_b", "LOG_LEVEL": "debug", "NETWORK_POLICY": "Cilium", "CILIUM_NAMESPACE": "kube system",
		"CLUSTER_NODE_CIDRS": "10.0.0.1/24", "CLUSTER_POD_CIDRS": "10.0.0.0/8,fd00::", "MAX_CONCURRENT_RECONCILES": "0",
		"CHALLENGE_OUTBOUND_PRIVATE": "some", "ISOLATION_CHECK": "always", "CHECK_CONCURRENCY": "101", "CHALLENGE_MAX_INSTANCES": "-1", "CHALLENGE_NAMESPACE_MAX_INSTANCES": "many", "SOURCE_MAX_INSTANCES": "-1", "SOURCE_BUDGET": "1.5", "CHALLENGE_WARM_MAX_INSTANCES": "-1", "CHALLENGE_WARM_MAX_STARTING": "0",
		"IMAGE_PREPULL_LEAD": "early", "IMAGE_PREPULL_CONCURRENCY": "0",
		"RECORD_RETENTION": "long", "RECORD_NAMESPACE": "a.b", "RECORD_LIMIT": "0", "RECORD_SIZE_LIMIT": "much",
		"UPGRADE_HOLD_MAX": "long", "OPERATOR_CONDITION_NAME": "A", "TERMINATION_LOG": "here",
		"CHALLENGE_REF_POLICY": "any", "CHALLENGE_INSTANCE_NAMESPACES": "a,B", "CHALLENGE_ALLOWED_CAPABILITIES": "NONE,KILL",
		"PPROF_BIND_ADDRESS": "6060", "WEBHOOK_BIND_ADDRESS": "9443", "WEBHOOK_CERT_DIR": "certs",
	}
	_, err := load(t, nil, bad)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, v := range new(everything).all() {
		if _, ok := bad[v.Name]; !ok {
			t.Errorf("the table has %s and this test has no bad value for it", v.Name)
		}
		if !strings.Contains(err.Error(), v.Name+"=") {
			t.Errorf("no error for %s in:\n%v", v.Name, err)
		}
	}
}

// A unit that is missing, or is another one than it seems.
func TestAmountsThatCannotBeMeant(t *testing.T) {
	for name, texts := range map[string]map[string]bool{
		"CHALLENGE_CPU_LIMIT":    {"1000": false, "12e4": false, "512Mi": false, "2": true, "500m": true, "0.5": true},
		"CHALLENGE_MEMORY_LIMIT": {"512": false, "512m": false, "512MB": false, "1g": false, "0.5Gi": true, "512M": true, "1e9": true},
	} {
		for text, ok := range texts {
			// A request must not be above its limit.
			_, err := load(t, nil, map[string]string{name: text, "CHALLENGE_CPU_REQUEST": "1m", "CHALLENGE_MEMORY_REQUEST": "1Mi"})
			if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), name) {
				t.Errorf("%s=%s: %v", name, text, err)
			}
		}
	}
}

// Without a deadline an instance that is never ready would never expire.
func TestTimeoutFromReadyNeedsADeadline(t *testing.T) {
	for deadline, ok := range map[string]bool{"": false, "10m": true} {
		_, err := load(t, nil, map[string]string{"CHALLENGE_TIMEOUT_FROM": "ready", "CHALLENGE_START_DEADLINE": deadline})
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "CHALLENGE_START_DEADLINE") {
			t.Errorf("deadline %q: %v", deadline, err)
		}
	}
}

func TestEnabledAPIs(t *testing.T) {
	for text, want := range map[string][]string{
		"":                             nil,
		"quix.io":                      {"quix.io"},
		" quix.io , berg.norelect.ch,": {"quix.io", "berg.norelect.ch"},
		"quix.io,quix.io":              {"quix.io"},
	} {
		cfg, err := load(t, nil, map[string]string{"ENABLED_APIS": text})
		if err != nil || !slices.Equal(cfg.Process.EnabledAPIs, want) {
			t.Errorf("%q: %v, error %v, want %v", text, cfg.Process.EnabledAPIs, err, want)
		}
	}
	for _, text := range []string{",", "quix", "quix.io;berg.norelect.ch", "*"} {
		if _, err := load(t, nil, map[string]string{"ENABLED_APIS": text}); err == nil {
			t.Errorf("%q: accepted", text)
		}
	}
}

// The maximum is shown in hours, not in nanoseconds.
func TestDurations(t *testing.T) {
	for _, name := range []string{"CHALLENGE_INSTANCE_TIMEOUT", "CHALLENGE_MAX_LIFETIME", "CHALLENGE_START_DEADLINE", "CACHE_SYNC_PERIOD", "UPGRADE_HOLD_MAX"} {
		for text, ok := range map[string]bool{
			"1s": true, "90m": true, "2562047h": true,
			"999ms": false, "-1h": false, "0": false, "2562048h": false, "9999999999h": false, "2d": false, "5": false,
		} {
			_, err := load(t, nil, map[string]string{name: text})
			if (err == nil) != ok {
				t.Errorf("%s=%q: error %v, want accepted: %v", name, text, err, ok)
			}
			if err != nil && !strings.Contains(err.Error(), "from 1s to 2562047h") {
				t.Errorf("%s=%q: the error does not say what is allowed: %v", name, text, err)
			}
		}
	}
}

func TestNamespaceSuffixLeavesRoomForTheID(t *testing.T) {
	for suffix, ok := range map[string]bool{
		"-qdep": true, "x": true, "-" + strings.Repeat("a", 18): true,
		"-" + strings.Repeat("a", 19): false, "-": false, "-A": false, ".a": false,
	} {
		if _, err := load(t, nil, map[string]string{"NAMESPACE_SUFFIX": suffix}); (err == nil) != ok {
			t.Errorf("%q: error %v, want accepted: %v", suffix, err, ok)
		}
	}
}

func TestVariablesAreComparedWithEachOther(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"CHALLENGE_CPU_REQUEST":               {"CHALLENGE_CPU_REQUEST": "2", "CHALLENGE_CPU_LIMIT": "1"},
		"CHALLENGE_MEMORY_REQUEST":            {"CHALLENGE_MEMORY_REQUEST": "1Gi"},
		"CHALLENGE_EPHEMERAL_STORAGE_REQUEST": {"CHALLENGE_EPHEMERAL_STORAGE_REQUEST": "2Gi"},
		"CHALLENGE_TLS_PORT":                  {"CHALLENGE_TLS_PORT": "80"},
		"IMAGE_PREPULL_LEAD":                  {"IMAGE_PREPULL_LEAD": "30m", "CHALLENGE_IMAGE_PULL_POLICY": "Never"},
		"CHALLENGE_TLS_LISTENER_NAME":         {"CHALLENGE_HTTP_LISTENER_NAME": "tls"},
	} {
		if _, err := load(t, nil, env); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: error %v does not name %s", env, err, name)
		}
	}
}

func TestWarnings(t *testing.T) {
	for want, env := range map[string]map[string]string{
		"CHALLENGE_HTTP_TLS=true has no effect":                {"CHALLENGE_HTTP_TLS": "true"},
		"CHALLENGE_HTTP_TLS=false and CHALLENGE_HTTP_PORT=443": {"CHALLENGE_HTTP_TLS": "false", "CHALLENGE_HTTP_PORT": "443", "CHALLENGE_TLS_PORT": "8443"},
	} {
		cfg, err := load(t, nil, env)
		if got := settings.Warnings(cfg.sections()); err != nil || len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("%v: warnings %q, error %v", env, got, err)
		}
	}
	for _, env := range []map[string]string{
		{"CHALLENGE_HTTP_PORT": "443", "CHALLENGE_TLS_PORT": "8443"},
		{},
		{"CHALLENGE_HTTP_TLS": "false"},
		{"CHALLENGE_HTTP_TLS": "false", "CHALLENGE_HTTP_PORT": "8080"},
	} {
		cfg, err := load(t, nil, env)
		if got := settings.Warnings(cfg.sections()); err != nil || len(got) > 0 {
			t.Errorf("%v: warnings %q, error %v", env, got, err)
		}
	}
}

func TestSchemeFollowsThePort(t *testing.T) {
	for _, test := range []struct {
		port, tls string
		want      bool
	}{
		{"", "", false},
		{"80", "auto", false},
		{"443", "", true},
		{"8443", "auto", true},
		{"8080", "false", false},
		{"80", "true", false},
		{"8080", "true", true},
	} {
		cfg, err := load(t, nil, map[string]string{"CHALLENGE_HTTP_PORT": test.port, "CHALLENGE_HTTP_TLS": test.tls, "CHALLENGE_TLS_PORT": "9443"})
		if err != nil || cfg.Challenge.UsesHTTPS() != test.want {
			t.Errorf("%+v: HTTPS %t, error %v", test, cfg.Challenge.UsesHTTPS(), err)
		}
	}
}

func TestEphemeralStorageNeedNotBeBounded(t *testing.T) {
	for _, env := range []map[string]string{
		{"CHALLENGE_EPHEMERAL_STORAGE_LIMIT": "0"},
		{"CHALLENGE_EPHEMERAL_STORAGE_LIMIT": "0", "CHALLENGE_EPHEMERAL_STORAGE_REQUEST": "5Gi"},
		{"CHALLENGE_EPHEMERAL_STORAGE_REQUEST": "0"},
	} {
		if _, err := load(t, nil, env); err != nil {
			t.Errorf("%v: %v", env, err)
		}
	}
}

func TestAddressRanges(t *testing.T) {
	cfg, err := load(t, nil, map[string]string{"CLUSTER_NODE_CIDRS": " 192.0.2.0/24, 2001:db8::/64 ,"})
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64")}
	if !slices.Equal(cfg.Challenge.NodeCIDRs, want) || cfg.Challenge.PodCIDRs != nil {
		t.Errorf("nodes %v, pods %v", cfg.Challenge.NodeCIDRs, cfg.Challenge.PodCIDRs)
	}
	for _, bad := range []string{"10.0.0.0", "10.0.0.1/24", "::ffff:10.0.0.0/104", "fd00::1/64", "0.0.0.0/0", "nodes"} {
		if _, err := load(t, nil, map[string]string{"CLUSTER_NODE_CIDRS": bad}); err == nil {
			t.Errorf("%s: accepted", bad)
		}
	}
}

func TestAllowedCapabilities(t *testing.T) {
	for text, want := range map[string][]string{
		"NONE": nil, "ALL": {"ALL"}, " CAP_KILL, NET_RAW,": {"KILL", "NET_RAW"},
	} {
		cfg, err := load(t, nil, map[string]string{"CHALLENGE_ALLOWED_CAPABILITIES": text})
		if err != nil || !slices.Equal(cfg.Challenge.AllowedCapabilities, want) {
			t.Errorf("%q: %v, error %v", text, cfg.Challenge.AllowedCapabilities, err)
		}
	}
	for _, bad := range []string{"net_raw", "KILL NET_RAW", "NONE,KILL", "CAP_"} {
		if cfg, err := load(t, nil, map[string]string{"CHALLENGE_ALLOWED_CAPABILITIES": bad}); err == nil {
			t.Errorf("%q: accepted as %v", bad, cfg.Challenge.AllowedCapabilities)
		}
	}
}

func TestUnknownArguments(t *testing.T) {
	for _, args := range [][]string{{"--unknown=1"}, {"serve"}} {
		if _, err := load(t, args, nil); err == nil {
			t.Errorf("%v: accepted", args)
		}
	}
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	var e everything
	if _, err := settings.Load("It is for tests.", e.sections(), []string{"--help"}, func(string) string { return "" }, &out); !errors.Is(err, settings.ErrHelp) {
		t.Fatalf("error %v", err)
	}
	for _, v := range e.all() {
		if !strings.Contains(out.String(), v.Name) || !strings.Contains(out.String(), "--"+v.Flag()) {
			t.Errorf("the help does not show %s", v.Name)
		}
		if msgs := validation.IsEnvVarName(v.Name); len(msgs) > 0 || !strings.HasSuffix(v.Help, ".") {
			t.Errorf("%s: %v, help %q", v.Name, msgs, v.Help)
		}
	}
}
