package poll

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/registry"
	"github.com/bergctf/berg-operator/internal/kit/apply"
)

// The keys of the Secret with a token, and of the ConfigMap with authorities.
const (
	tokenKey     = "token"
	authorityKey = "ca.crt"
)

// workers is how many questions one provider gets at the same time.
const workers = 8

// maxClients is how many different sets of authorities have a client of their own.
const maxClients = 64

// Providers reaches git providers for Applications: with their tokens, and the authorities of their namespaces.
type Providers struct {
	// Live reads from the API server, by the rights that the operator has in the namespaces of Projects.
	Live   client.Reader
	Config config.Builds

	mu      sync.Mutex
	clients map[string]*http.Client // by the way to an address, and authorities
}

// Token returns the token in a Secret of an Application.
func (p *Providers) Token(ctx context.Context, namespace, name string) (string, error) {
	secret := &corev1.Secret{}
	if err := p.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret); err != nil {
		if apply.Absent(err) {
			return "", fmt.Errorf("Secret %s (spec.gitRepository.secretRef) not found: create it", name) //nolint:staticcheck // a Kind
		}
		return "", err
	}
	token := strings.TrimSpace(string(secret.Data[tokenKey]))
	if token == "" {
		return "", fmt.Errorf("Secret %s (spec.gitRepository.secretRef) has no key %s", name, tokenKey) //nolint:staticcheck // a Kind
	}
	return token, nil
}

// Client returns the client for a provider. It connects to public addresses, and for a provider at an address of GIT_PROVIDER_URLS also
// to private ones; it follows no redirect.
func (p *Providers) Client(ctx context.Context, namespace string, provider kibashipv1.GitProvider) (*http.Client, error) {
	var authorities []byte
	if name := p.Config.CAConfigMap; name != "" {
		found := &corev1.ConfigMap{}
		if err := apply.IgnoreAbsent(p.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, found)); err != nil {
			return nil, err
		}
		authorities = []byte(found.Data[authorityKey])
	}
	reach, key := registry.Internet, "internet "
	if !p.Config.PublicProvider(string(provider)) {
		reach, key = registry.Public, "public "
	}
	key += string(authorities)
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.clients[key]; known != nil {
		return known, nil
	}
	transport, err := registry.Transport(authorities, reach)
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s: key %s %w", p.Config.CAConfigMap, authorityKey, err)
	}
	transport.DisableKeepAlives, transport.IdleConnTimeout, transport.MaxIdleConnsPerHost = false, 90*time.Second, workers
	made := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	// All are dropped, and made again as they are asked for. A client that is in use serves its requests to the end.
	if p.clients == nil || len(p.clients) >= maxClients {
		p.clients = map[string]*http.Client{}
	}
	p.clients[key] = made
	return made, nil
}
