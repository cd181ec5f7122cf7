package settings

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bergctf/berg-operator/internal/kit/naming"
)

// MaxDuration is the maximum that Go can represent, in whole hours: 292 years.
const MaxDuration = 2562047 * time.Hour

// The syntax of time.ParseDuration and resource.ParseQuantity; it accepts a little more.
const (
	durationPattern = `^\+?([0-9]*\.?[0-9]*(ns|us|µs|μs|ms|s|m|h))+$`
	quantityPattern = `^\+?[0-9.]+([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$`
)

// Func is a value that a function parses.
func Func(set func(text string) error) Value { return Value{set: set} }

// Name is a name that check, one of Kubernetes' validations, accepts.
func Name(to *string, check func(string) []string) Value {
	return Func(func(text string) error {
		*to = text
		return joined(check(text))
	})
}

// Optional accepts the texts of a value, and an empty text, which leaves its variable as it is.
func Optional(v Value) Value {
	form := v.form
	if form.Enum != nil {
		form.Enum = append([]string{""}, form.Enum...)
	}
	return Func(func(text string) error {
		if text == "" {
			return nil
		}
		return v.set(text)
	}).In(form)
}

// Names are names of namespaces, separated by commas; nil for an empty text.
func Names(to *[]string) Value {
	return Func(func(text string) error {
		*to = nil
		for part := range Parts(text) {
			if err := joined(validation.IsDNS1123Label(part)); err != nil {
				return fmt.Errorf("%q: %w", part, err)
			}
			*to = append(*to, part)
		}
		return nil
	}).In(Form{Type: List})
}

// Enum is one of some texts.
func Enum[T ~string](to *T, allowed ...T) Value {
	return Func(func(text string) error {
		*to = T(text)
		return checkAllowed(T(text), allowed)
	}).In(Form{Enum: texts(allowed)})
}

// EnumList is a list of at least one of the allowed texts, separated by commas. An empty text
// makes the list nil: the user of the setting decides.
func EnumList(to *[]string, allowed ...string) Value {
	return Func(func(text string) error {
		*to = nil
		if text == "" {
			return nil
		}
		for part := range Parts(text) {
			if slices.Contains(*to, part) {
				continue
			}
			if err := checkAllowed(part, allowed); err != nil {
				return fmt.Errorf("%q: %w", part, err)
			}
			*to = append(*to, part)
		}
		if len(*to) == 0 {
			return checkAllowed("", allowed)
		}
		return nil
	}).In(Form{Type: List})
}

func checkAllowed[T ~string](text T, allowed []T) error {
	if slices.Contains(allowed, text) {
		return nil
	}
	return fmt.Errorf("must be one of %s", strings.Join(texts(allowed), ", "))
}

func texts[T ~string](all []T) []string {
	names := make([]string, len(all))
	for i, a := range all {
		names[i] = string(a)
	}
	return names
}

// Bool is true or false.
func Bool(to *bool) Value {
	return Func(func(text string) error {
		b, err := strconv.ParseBool(text)
		if err != nil {
			return errors.New("must be true or false")
		}
		*to = b
		return nil
	}).In(Form{Type: Boolean})
}

// Int is a whole number from low to high.
func Int(to *int, low, high int) Value {
	return Func(func(text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < low || n > high {
			return fmt.Errorf("must be a number from %d to %d", low, high)
		}
		*to = n
		return nil
	}).In(Form{Type: Integer, Minimum: low, Maximum: high})
}

// Port is the number of a port.
func Port(to *int32) Value {
	return Func(func(text string) error {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 1 || n > 65535 {
			return errors.New("must be a port number from 1 to 65535")
		}
		*to = int32(n)
		return nil
	}).In(Form{Type: Integer, Minimum: 1, Maximum: 65535})
}

// Duration is a second or longer, as Go writes it.
func Duration(to *time.Duration) Value {
	return Func(func(text string) error {
		d, err := time.ParseDuration(text)
		if err != nil || d < time.Second {
			return fmt.Errorf("must be a duration from 1s to %dh, for example 90m or 2h", int64(MaxDuration.Hours()))
		}
		*to = d
		return nil
	}).In(Form{Pattern: durationPattern})
}

var (
	// leastAmount is less than any program needs: the unit is missing, or another one than its author thought.
	leastAmount = resource.MustParse("1Mi")
	// mostCores are more than a node has.
	mostCores = resource.MustParse("512")
)

// Amount is memory or storage, 1Mi or more.
func Amount(to *resource.Quantity) Value { return parsed(to, ParseAmount) }

// ParseAmount reads memory or storage, 1Mi or more.
func ParseAmount(text string) (resource.Quantity, error) {
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Cmp(leastAmount) < 0 {
		return q, errors.New("must be an amount with a unit of 1Mi or more, for example 256Mi")
	}
	return q, nil
}

// Cores is a number of cores above zero that a node may have.
func Cores(to *resource.Quantity) Value { return parsed(to, ParseCores) }

// ParseCores reads a number of cores above zero that a node may have.
func ParseCores(text string) (resource.Quantity, error) {
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() <= 0 || q.Cmp(mostCores) > 0 {
		return q, errors.New("must be a number of cores from 1m to 512, for example 500m or 2: 1000 are a thousand cores, and 1000m is one")
	}
	return q, nil
}

func parsed(to *resource.Quantity, parse func(string) (resource.Quantity, error)) Value {
	return Func(func(text string) error {
		q, err := parse(text)
		if err == nil {
			*to = q
		}
		return err
	}).In(Form{Type: Quantity, Pattern: quantityPattern})
}

// Bytes is a whole number of bytes, which may be zero. "500m" would be half a byte.
func Bytes(to *resource.Quantity) Value {
	return parsed(to, func(text string) (resource.Quantity, error) {
		q, err := resource.ParseQuantity(text)
		if err != nil || q.Sign() < 0 || q.MilliValue()%1000 != 0 {
			return q, errors.New("must be a number of bytes, for example 512Mi, or 0")
		}
		return q, nil
	})
}

// prefixesPattern matches the form of prefixes; whether the numbers are right is not a matter of a pattern.
const prefixesPattern = `^[ ,]*([0-9A-Fa-f.:]+/[0-9]+[ ,]*)*$`

// Prefixes are address ranges, separated by commas, each written with the host bits zero, as
// a network policy requires; nil for an empty text.
func Prefixes(to *[]netip.Prefix) Value {
	return Func(func(text string) error {
		*to = nil
		for part := range Parts(text) {
			prefix, err := netip.ParsePrefix(part)
			if err != nil || prefix != prefix.Masked() || prefix.Bits() == 0 || prefix.Addr().Is4In6() {
				return fmt.Errorf("%q: must be an address range such as 10.0.0.0/24 or fd00:1::/64", part)
			}
			*to = append(*to, prefix)
		}
		return nil
	}).In(Form{Type: List, Pattern: prefixesPattern})
}

// Address is an address to listen on. off is the text that means not to listen.
func Address(to *string, off string) Value {
	return Func(func(text string) error {
		*to = text
		if text == off {
			return nil
		}
		_, port, err := net.SplitHostPort(text)
		if err != nil {
			return errors.New("must be an address such as :8081")
		}
		if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
			return errors.New("must end in a port number")
		}
		return nil
	})
}

// Path is the absolute path of a file.
func Path(to *string) Value {
	return Func(func(text string) error {
		if !filepath.IsAbs(text) {
			return errors.New("must be an absolute path")
		}
		*to = text
		return nil
	})
}

// Pattern is a regular expression of Go; nil for an empty text.
func Pattern(to **regexp.Regexp) Value {
	return Func(func(text string) error {
		*to = nil
		if text == "" {
			return nil
		}
		pattern, err := regexp.Compile(text)
		if err != nil {
			return fmt.Errorf("must be a regular expression of Go: %w", err)
		}
		*to = pattern
		return nil
	})
}

// Parts are the parts between commas that are not empty, without the spaces around them.
func Parts(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part != "" && !yield(part) {
				return
			}
		}
	}
}

func joined(problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	return errors.New(naming.Sentence(strings.Join(problems, "; ")))
}
