package settings_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/bergctf/berg-operator/internal/kit/settings"
)

func TestOptionsThenEnvironmentThenConfigMap(t *testing.T) {
	var value string
	section := settings.Section{Settings: []settings.Setting{settings.New("CHALLENGE_DOMAIN", "default", settings.Enum(&value, "default", "option", "env", "map"), "")}}
	for name, c := range map[string]struct {
		args     []string
		env, own string
		want     string
		source   settings.Source
	}{
		"nothing":                            {nil, "", "", "default", settings.FromDefault},
		"all":                                {[]string{"--challenge-domain=option"}, "env", "map", "option", settings.FromOption},
		"an option with the default":         {[]string{"--challenge-domain=default"}, "env", "map", "default", settings.FromOption},
		"environment and ConfigMap":          {nil, "env", "map", "env", settings.FromEnvironment},
		"a variable with the default":        {nil, "default", "map", "map", settings.FromConfigMap},
		"an empty value of a ConfigMap":      {nil, "", " ", "default", settings.FromDefault},
		"a ConfigMap":                        {nil, "", "map", "map", settings.FromConfigMap},
		"a ConfigMap with the default value": {nil, "", "default", "default", settings.FromConfigMap},
	} {
		shared := func() (map[string]string, error) {
			return map[string]string{"CHALLENGE_DOMAIN": c.own, "OTHER_PROGRAM": "x"}, nil
		}
		effective, err := settings.LoadShared("", []settings.Section{section}, c.args, func(string) string { return c.env }, shared, io.Discard)
		if err != nil || value != c.want || effective[0].Value != c.want || effective[0].Source != c.source {
			t.Errorf("%s: %q, effective %v, error %v", name, value, effective, err)
		}
	}
}

func TestBinaryDataIsContent(t *testing.T) {
	content := settings.JoinContent(map[string]string{"CHALLENGE_DOMAIN": "a"}, map[string][]byte{"CHALLENGE_DOMAINS": {0xff}})
	if err := settings.CheckNames(content); len(content) != 2 || err == nil || !strings.Contains(err.Error(), "CHALLENGE_DOMAINS is no setting") {
		t.Errorf("content %q, error %v", content, err)
	}
}

func TestErrorsOfAConfigMap(t *testing.T) {
	var port int32
	section := settings.Section{Settings: []settings.Setting{settings.New("CHALLENGE_HTTP_PORT", "80", settings.Port(&port), "")}}
	load := func(env string, shared func() (map[string]string, error)) error {
		_, err := settings.LoadShared("", []settings.Section{section}, nil, func(string) string { return env }, shared, io.Discard)
		return err
	}
	err := load("", func() (map[string]string, error) { return map[string]string{"CHALLENGE_HTTP_PORT": "http"}, nil })
	if err == nil || !strings.HasPrefix(err.Error(), `ConfigMap berg-operator-settings: CHALLENGE_HTTP_PORT="http": must be`) {
		t.Errorf("error %v", err)
	}
	unread := errors.New("unreachable")
	if err := load("", func() (map[string]string, error) { return nil, unread }); !errors.Is(err, unread) {
		t.Errorf("error %v", err)
	}
	err = load("x", func() (map[string]string, error) {
		t.Error("read although the environment is invalid")
		return nil, nil
	})
	if err == nil || !strings.HasPrefix(err.Error(), `CHALLENGE_HTTP_PORT="x"`) {
		t.Errorf("error %v", err)
	}
}

func TestNamesOfAConfigMap(t *testing.T) {
	if err := settings.CheckNames(map[string]string{"CHALLENGE_DOMAIN": "a", "PLATFORM_API": "b", "GATE_PORTS": "c"}); err != nil {
		t.Error(err)
	}
	err := settings.CheckNames(map[string]string{"CHALLENGE_DOMAIN": "", "POD_NAMESPACE": "x", "Z": "", "platform-api": ""})
	if err == nil {
		t.Fatal("accepted")
	}
	lines := strings.Split(err.Error(), "\n")
	for i, want := range []string{"POD_NAMESPACE can be set in the environment only", "Z is no setting:", "platform-api is no setting, did you mean PLATFORM_API?"} {
		if len(lines) != 3 || !strings.Contains(lines[i], want) {
			t.Errorf("%q, want %q", lines, want)
		}
	}
}

func TestLogValuesNameTheSources(t *testing.T) {
	values := settings.LogValues([]settings.Effective{{"A", "1", settings.FromDefault}, {"B", "2", settings.FromConfigMap}, {"C", "3", settings.FromConfigMap}})
	index := slices.Index(values, any("from the ConfigMap berg-operator-settings"))
	if index < 0 || !slices.Equal(values[index+1].([]string), []string{"B", "C"}) || slices.Contains(values, any("from the environment")) {
		t.Errorf("%v", values)
	}
}
