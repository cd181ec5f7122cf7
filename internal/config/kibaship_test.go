package config

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/bergctf/berg-operator/internal/kit/settings"
)

func loadKibaShip(env map[string]string) (KibaShip, error) {
	var cfg KibaShip
	_, err := settings.Load("", []settings.Section{cfg.Section()}, nil, func(name string) string { return env[name] }, nil)
	return cfg, err
}

func TestBuildLimits(t *testing.T) {
	for text, want := range map[string]map[corev1.ResourceName]string{
		"":                                 {corev1.ResourceCPU: "2", corev1.ResourceMemory: "4Gi", corev1.ResourceEphemeralStorage: "48Gi"},
		"memory=2Gi":                       {corev1.ResourceMemory: "2Gi"},
		"cpu=500m, ephemeral-storage=10Gi": {corev1.ResourceCPU: "500m", corev1.ResourceEphemeralStorage: "10Gi"},
		"none":                             {},
	} {
		cfg, err := loadKibaShip(map[string]string{"BUILD_LIMITS": text})
		if err != nil || len(cfg.Builds.Limits) != len(want) {
			t.Errorf("%q: %v, %v", text, cfg.Builds.Limits, err)
		}
		for name, amount := range want {
			if got := cfg.Builds.Limits[name]; got.String() != amount {
				t.Errorf("%q: %s is %s, want %s", text, name, got.String(), amount)
			}
		}
	}
	for _, text := range []string{"4Gi", "memory", "memory=", "memory=0", "memory=-1Gi", "memory=much", "memory=512m", "memory=4", "cpu=1000", "cpu=2Gi", "gpu=1", "cpu=1,cpu=2", "none,cpu=1", "memory=4Gi;cpu=2"} {
		if _, err := loadKibaShip(map[string]string{"BUILD_LIMITS": text}); err == nil || !strings.Contains(err.Error(), "BUILD_LIMITS") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestImageRegistries(t *testing.T) {
	cfg, err := loadKibaShip(map[string]string{"IMAGE_REGISTRIES": "docker.io, registry.example.org:5000,"})
	if err != nil || !slices.Equal(cfg.ImageRegistries, []string{"docker.io", "registry.example.org:5000"}) {
		t.Errorf("%v, %v", cfg.ImageRegistries, err)
	}
	if cfg, err := loadKibaShip(nil); err != nil || len(cfg.ImageRegistries) > 0 {
		t.Errorf("%v, %v", cfg.ImageRegistries, err)
	}
	for _, text := range []string{"https://registry.example.org", "registry.example.org/team", "Registry.example.org", "user@registry.example.org", ":5000", "a b"} {
		if _, err := loadKibaShip(map[string]string{"IMAGE_REGISTRIES": text}); err == nil || !strings.Contains(err.Error(), "IMAGE_REGISTRIES") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestBuilderArgs(t *testing.T) {
	cfg, err := loadKibaShip(map[string]string{"BUILD_ARGS": "--registry-mirror=mirror.example.org, --label=a=b c,--verbose"})
	if want := []string{"--registry-mirror=mirror.example.org", "--label=a=b c", "--verbose"}; err != nil || !slices.Equal(cfg.Builds.BuilderArgs, want) {
		t.Errorf("%v, %v", cfg.Builds.BuilderArgs, err)
	}
	for text, want := range map[string]string{
		"--registry-mirror mirror.example.org":  "its value with =",
		"--verbose --registry-mirror=a.example": "separate arguments with a comma",
		"verbose":                               "begins with --",
	} {
		if _, err := loadKibaShip(map[string]string{"BUILD_ARGS": text}); err == nil || !strings.Contains(err.Error(), "BUILD_ARGS") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestPushes(t *testing.T) {
	for name, tc := range map[string]struct {
		env     map[string]string
		enabled bool
		url     string
	}{
		"nothing":     {nil, false, ""},
		"an interval": {map[string]string{"GIT_POLL_INTERVAL": "1m"}, true, ""},
		"a URL":       {map[string]string{"GIT_WEBHOOK_URL": "https://pushes.example.org/x/"}, true, "https://pushes.example.org/x"},
		"the state":   {map[string]string{"GIT_COMMIT_STATUS": "true"}, false, ""},
	} {
		cfg, err := loadKibaShip(tc.env)
		if err != nil || cfg.Pushes.Enabled() != tc.enabled || cfg.Pushes.WebhookURL != tc.url {
			t.Errorf("%s: %+v %v", name, cfg.Pushes, err)
		}
	}
	for _, url := range []string{"pushes.example.org", "ftp://x", "https://user:word@x", "https://x/?a=b"} {
		if _, err := loadKibaShip(map[string]string{"GIT_WEBHOOK_URL": url}); err == nil || !strings.Contains(err.Error(), "GIT_WEBHOOK_URL") {
			t.Errorf("%q: %v", url, err)
		}
	}
	cfg, err := loadKibaShip(map[string]string{"GIT_PROVIDER_URLS": "github.com=https://git.example.org"})
	if err != nil || cfg.Builds.PublicProvider("github.com") || !cfg.Builds.PublicProvider("gitlab.com") {
		t.Errorf("%+v %v", cfg.Builds.Providers, err)
	}
	if got := cfg.Builds.RepositoryURL("bitbucket.com", "team/web.git"); got != "https://bitbucket.org/team/web.git" {
		t.Error(got)
	}
}
