// Package client speaks to the API server of a cluster as its administrator.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// Client speaks to the API server as the administrator. What it needs is so little that a client library,
// and the minutes it takes to compile, would not pay.
type Client struct {
	base string
	http *http.Client
}

// New returns a client for the API server at a URL, with a certificate, its key and that of the authority
// in these files.
func New(url, certificate, key, authority string) (*Client, error) {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	trusted, err := os.ReadFile(authority)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trusted)
	return &Client{
		base: url,
		http: &http.Client{
			// What starts a cluster bounds its own time. A request that takes so long is lost: a busy machine, where an
			// API server takes half a minute for a large CRD, does not.
			Timeout: 3 * time.Minute,
			Transport: &http.Transport{
				// No proxy: the cluster is on this machine.
				TLSClientConfig:     &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots},
				ForceAttemptHTTP2:   true,
				MaxIdleConnsPerHost: 4,
			},
		},
	}, nil
}

// Do sends one request and decodes the answer into out where that is not nil.
func (a *Client) Do(ctx context.Context, method, path string, header http.Header, body []byte, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	maps.Copy(req.Header, header)
	resp, err := a.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %.300s", method, path, resp.Status, bytes.TrimSpace(raw))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(raw, out)
}

// Get reads a path and decodes the answer into out where that is not nil.
func (a *Client) Get(ctx context.Context, path string, out any) error {
	return a.Do(ctx, http.MethodGet, path, nil, nil, out)
}

// Healthy asks a server's own health endpoint.
func (a *Client) Healthy(ctx context.Context) error {
	return a.Get(ctx, "/readyz", nil)
}

// Condition is one of an object's status.
type Condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Message string `json:"message"`
}

// Holds tells whether the condition of a type is there and true.
func Holds(conditions []Condition, kind string) bool {
	for _, c := range conditions {
		if c.Type == kind {
			return c.Status == "True"
		}
	}
	return false
}

type node struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Status struct {
		Conditions []Condition `json:"conditions"`
	} `json:"status"`
}

// Nodes counts the nodes, and those that are ready.
func (a *Client) Nodes(ctx context.Context) (ready, all int, err error) {
	var list struct {
		Items []node `json:"items"`
	}
	if err := a.Get(ctx, "/api/v1/nodes", &list); err != nil {
		return 0, 0, err
	}
	for _, n := range list.Items {
		if Holds(n.Status.Conditions, "Ready") {
			ready++
		}
	}
	return ready, len(list.Items), nil
}

// NodesReady wants at least so many nodes Ready.
func (a *Client) NodesReady(ctx context.Context, want int) error {
	ready, _, err := a.Nodes(ctx)
	if err == nil && ready < want {
		err = fmt.Errorf("%d of %d nodes are Ready", ready, want)
	}
	return err
}

// DeploymentReady wants all replicas of a Deployment available.
func (a *Client) DeploymentReady(ctx context.Context, namespace, name string) error {
	var d struct {
		Metadata struct {
			Generation int `json:"generation"`
		} `json:"metadata"`
		Spec struct {
			Replicas int `json:"replicas"`
		} `json:"spec"`
		Status struct {
			ObservedGeneration int `json:"observedGeneration"`
			AvailableReplicas  int `json:"availableReplicas"`
			UpdatedReplicas    int `json:"updatedReplicas"`
		} `json:"status"`
	}
	if err := a.Get(ctx, "/apis/apps/v1/namespaces/"+namespace+"/deployments/"+name, &d); err != nil {
		return err
	}
	if d.Status.ObservedGeneration < d.Metadata.Generation || d.Status.UpdatedReplicas < d.Spec.Replicas || d.Status.AvailableReplicas < d.Spec.Replicas {
		return fmt.Errorf("%s/%s: %d of %d replicas are available", namespace, name, d.Status.AvailableReplicas, d.Spec.Replicas)
	}
	return nil
}

// DaemonSetReady wants all pods of a DaemonSet ready.
func (a *Client) DaemonSetReady(ctx context.Context, namespace, name string) error {
	var d struct {
		Status struct {
			DesiredNumberScheduled int `json:"desiredNumberScheduled"`
			NumberReady            int `json:"numberReady"`
		} `json:"status"`
	}
	if err := a.Get(ctx, "/apis/apps/v1/namespaces/"+namespace+"/daemonsets/"+name, &d); err != nil {
		return err
	}
	if ready, want := d.Status.NumberReady, d.Status.DesiredNumberScheduled; want == 0 || ready < want {
		return fmt.Errorf("%s/%s: %d of %d pods are ready", namespace, name, ready, want)
	}
	return nil
}

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// topLevelName finds metadata.name of a manifest as the generators of CustomResourceDefinitions write it.
var topLevelName = regexp.MustCompile(`(?m)^  name: (\S+)$`)

// Definition is the manifest of one CustomResourceDefinition.
type Definition struct {
	Name     string
	manifest []byte
}

func readDefinition(file string) (Definition, error) {
	manifest, err := os.ReadFile(file)
	if err != nil {
		return Definition{}, err
	}
	match := topLevelName.FindSubmatch(manifest)
	if match == nil {
		return Definition{}, fmt.Errorf("%s: no metadata.name", file)
	}
	return Definition{Name: string(match[1]), manifest: manifest}, nil
}

// ApplyDefinition creates a definition or brings it up to date.
func (a *Client) ApplyDefinition(ctx context.Context, d Definition) error {
	path := definitionsPath + "/" + url.PathEscape(d.Name) + "?fieldManager=berg-cluster&force=true"
	return a.Do(ctx, http.MethodPatch, path, http.Header{"Content-Type": {"application/apply-patch+yaml"}}, d.manifest, nil)
}

// DefinitionsEstablished wants every named definition served.
func (a *Client) DefinitionsEstablished(ctx context.Context, names []string) error {
	for _, name := range names {
		var crd struct {
			Status struct {
				Conditions []Condition `json:"conditions"`
			} `json:"status"`
		}
		if err := a.Get(ctx, definitionsPath+"/"+url.PathEscape(name), &crd); err != nil {
			return err
		}
		if !Holds(crd.Status.Conditions, "Established") {
			return fmt.Errorf("%s is not Established", name)
		}
	}
	return nil
}

// Definitions returns the names of all definitions there are.
func (a *Client) Definitions(ctx context.Context) (map[string]bool, error) {
	var list struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		} `json:"items"`
	}
	// Without this the answer is megabytes of schemas.
	const namesOnly = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	if err := a.Do(ctx, http.MethodGet, definitionsPath, http.Header{"Accept": {namesOnly}}, nil, &list); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, item := range list.Items {
		names[item.Metadata.Name] = true
	}
	return names, nil
}

// ReadDefinitions reads the files that match a pattern of filepath.Match, one definition each.
func ReadDefinitions(pattern string) ([]Definition, error) {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	all := make([]Definition, len(files))
	for i, file := range files {
		if all[i], err = readDefinition(file); err != nil {
			return nil, err
		}
	}
	return all, nil
}
