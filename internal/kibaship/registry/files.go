package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// WriteResult writes a result of a step, unless file is "".
func WriteResult(file, text string) error {
	if file == "" {
		return nil
	}
	return os.WriteFile(file, []byte(text), 0o600)
}

// maxTime is the last second of the year 9999: JSON has no later time.
const maxTime = 253402300799

// ParseTime returns the time of a commit. Its author may have chosen any number: the result is between 1970 and 9999.
func ParseTime(seconds string) (time.Time, error) {
	number, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return time.Time{}, errors.New("must be seconds since 1970")
	}
	return time.Unix(min(max(number, 0), maxTime), 0).UTC(), nil
}

// connect returns the logins and the transport of two files; empty for none. setting names the Secret of the logins in errors.
func connect(login, setting, authorities string) (logins Logins, through *http.Transport, err error) {
	if login != "" {
		content, err := os.ReadFile(login)
		if err != nil {
			return nil, nil, fmt.Errorf("the Secret of %s has no key %s", setting, ConfigKey)
		}
		if logins, err = ParseLogins(content); err != nil {
			return nil, nil, fmt.Errorf("key %s of the Secret of %s: %w", ConfigKey, setting, err)
		}
	}
	var certificates []byte
	if authorities != "" {
		if certificates, err = os.ReadFile(authorities); err != nil {
			return nil, nil, errors.New("the ConfigMap of BUILD_CA_CONFIG_MAP has no key ca.crt")
		}
	}
	if through, err = Transport(certificates, Nearby); err != nil {
		return nil, nil, fmt.Errorf("key ca.crt of the ConfigMap of BUILD_CA_CONFIG_MAP: %w", err)
	}
	return logins, through, nil
}

// keychain is the one login that there is.
type keychain struct{ authn.Authenticator }

func (k keychain) Resolve(authn.Resource) (authn.Authenticator, error) { return k.Authenticator, nil }

// CheckPush returns why layers cannot be kept in a repository of the cache, nil if they can.
func CheckPush(repository, login, authorities string) error {
	logins, through, err := connect(login, "BUILD_PULL_SECRET", authorities)
	if err != nil {
		return err
	}
	through.ResponseHeaderTimeout = ResolveTimeout
	to, err := name.NewRepository(repository)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*ResolveTimeout)
	defer cancel()
	// The library's function takes no context. The buffer lets its goroutine end after this function has returned.
	done := make(chan error, 1)
	go func() {
		done <- remote.CheckPushPermission(to.Tag("cache"), keychain{logins.For(to)}, through)
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return &Error{What: repository, err: err}
	}
	return nil
}
