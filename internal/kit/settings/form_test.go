package settings_test

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bergctf/berg-operator/internal/kit/settings"
)

// A schema that is stricter than the operator would keep an administrator from a setting that
// works.
func TestFormExcludesNothingThatTheValueAccepts(t *testing.T) {
	var (
		text     string
		list     []string
		number   int
		port     int32
		yes      bool
		duration time.Duration
		amount   resource.Quantity
		prefixes []netip.Prefix
	)
	durations := []string{"1s", "90m", "1h30m", "1.5h", "+2h", ".5h", "1h0.5s", "2000ms", "3000000µs", "2d", "5", "1 h"}
	amounts := []string{"1", "500m", "0.5", ".5", "2.", "1e3", "1E3", "1e-1", "+1Gi", "5k", "7Ei", "1G i", "much"}
	for name, c := range map[string]struct {
		value settings.Value
		texts []string
	}{
		"Duration":         {settings.Duration(&duration), durations},
		"OptionalDuration": {settings.Optional(settings.Duration(&duration)), durations},
		"Amount":           {settings.Amount(&amount), amounts},
		"Cores":            {settings.Cores(&amount), amounts},
		"Bytes":            {settings.Bytes(&amount), amounts},
		"OneOf":            {settings.Enum(&text, "a", "b"), []string{"a", "b", "c", "A"}},
		"Int":              {settings.Int(&number, 1, 9), []string{"0", "1", "9", "10", "x"}},
		"Port":             {settings.Port(&port), []string{"0", "1", "65535", "65536"}},
		"Bool":             {settings.Bool(&yes), []string{"true", "false", "maybe"}},
		"Names":            {settings.Names(&list), []string{"a,b", ""}},
		"Prefixes":         {settings.Prefixes(&prefixes), []string{"10.0.0.0/8,fd00::/8", "10.0.0.0/8, 192.0.2.1/32 ,", "", "10.0.0.1"}},
	} {
		accepted := 0
		for _, text := range c.texts {
			section := settings.Section{Settings: []settings.Setting{{Name: "X", Default: text, Value: c.value}}}
			_, err := settings.Load("", []settings.Section{section}, nil, func(string) string { return "" }, nil)
			if err != nil {
				continue
			}
			accepted++
			form := c.value.Form()
			n, notNumber := strconv.Atoi(text)
			switch {
			case form.Pattern != "" && !regexp.MustCompile(form.Pattern).MatchString(text):
				t.Errorf("%s accepts %q, and its pattern does not", name, text)
			case form.Enum != nil && !slices.Contains(form.Enum, text):
				t.Errorf("%s accepts %q, which is none of %q", name, text, form.Enum)
			case form.Type == settings.Integer && (notNumber != nil || n < form.Minimum || n > form.Maximum):
				t.Errorf("%s accepts %q, which is not from %d to %d", name, text, form.Minimum, form.Maximum)
			}
		}
		if accepted == 0 {
			t.Errorf("%s accepts none of %q", name, c.texts)
		}
	}
}
