package main

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
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// apiClient speaks to the API server as the administrator. What it needs is so little that a client library,
// and the minutes it takes to compile, would not pay.
type apiClient struct {
	base string
	http *http.Client
}

func (c *cluster) client() (*apiClient, error) {
	pair, err := tls.LoadX509KeyPair(c.certificate("admin"), c.key("admin"))
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(c.certificate(clusterAuthority))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	return &apiClient{
		base: c.apiURL(),
		http: &http.Client{
			Timeout: 30 * time.Second,
			Transport: &http.Transport{
				// No proxy: the cluster is on this machine.
				TLSClientConfig:     &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots},
				ForceAttemptHTTP2:   true,
				MaxIdleConnsPerHost: 4,
			},
		},
	}, nil
}

// do sends one request and decodes the answer into out where that is not nil.
func (a *apiClient) do(ctx context.Context, method, path string, header http.Header, body []byte, out any) error {
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

func (a *apiClient) get(ctx context.Context, path string, out any) error {
	return a.do(ctx, http.MethodGet, path, nil, nil, out)
}

// healthy asks a server's own health endpoint.
func (a *apiClient) healthy(ctx context.Context) error {
	return a.get(ctx, "/readyz", nil)
}

type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Message string `json:"message"`
}

func holds(conditions []condition, kind string) bool {
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
		Conditions []condition `json:"conditions"`
	} `json:"status"`
}

func (a *apiClient) nodes(ctx context.Context) (ready, all int, err error) {
	var list struct {
		Items []node `json:"items"`
	}
	if err := a.get(ctx, "/api/v1/nodes", &list); err != nil {
		return 0, 0, err
	}
	for _, n := range list.Items {
		if holds(n.Status.Conditions, "Ready") {
			ready++
		}
	}
	return ready, len(list.Items), nil
}

// nodesReady wants at least so many nodes Ready.
func (a *apiClient) nodesReady(ctx context.Context, want int) error {
	ready, _, err := a.nodes(ctx)
	if err == nil && ready < want {
		err = fmt.Errorf("%d of %d nodes are Ready", ready, want)
	}
	return err
}

// deploymentReady wants all replicas of a Deployment available.
func (a *apiClient) deploymentReady(ctx context.Context, namespace, name string) error {
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
	if err := a.get(ctx, "/apis/apps/v1/namespaces/"+namespace+"/deployments/"+name, &d); err != nil {
		return err
	}
	if d.Status.ObservedGeneration < d.Metadata.Generation || d.Status.UpdatedReplicas < d.Spec.Replicas || d.Status.AvailableReplicas < d.Spec.Replicas {
		return fmt.Errorf("%s/%s: %d of %d replicas are available", namespace, name, d.Status.AvailableReplicas, d.Spec.Replicas)
	}
	return nil
}

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// topLevelName finds metadata.name of a manifest as the generators of CustomResourceDefinitions write it.
var topLevelName = regexp.MustCompile(`(?m)^  name: (\S+)$`)

// definition is the manifest of one CustomResourceDefinition.
type definition struct {
	name     string
	manifest []byte
}

func readDefinition(file string) (definition, error) {
	manifest, err := os.ReadFile(file)
	if err != nil {
		return definition{}, err
	}
	match := topLevelName.FindSubmatch(manifest)
	if match == nil {
		return definition{}, fmt.Errorf("%s: no metadata.name", file)
	}
	return definition{name: string(match[1]), manifest: manifest}, nil
}

func (a *apiClient) applyDefinition(ctx context.Context, d definition) error {
	path := definitionsPath + "/" + url.PathEscape(d.name) + "?fieldManager=berg-cluster&force=true"
	return a.do(ctx, http.MethodPatch, path, http.Header{"Content-Type": {"application/apply-patch+yaml"}}, d.manifest, nil)
}

// definitionsEstablished wants every named definition served.
func (a *apiClient) definitionsEstablished(ctx context.Context, names []string) error {
	for _, name := range names {
		var crd struct {
			Status struct {
				Conditions []condition `json:"conditions"`
			} `json:"status"`
		}
		if err := a.get(ctx, definitionsPath+"/"+url.PathEscape(name), &crd); err != nil {
			return err
		}
		if !holds(crd.Status.Conditions, "Established") {
			return fmt.Errorf("%s is not Established", name)
		}
	}
	return nil
}

// definitions returns the names of all definitions there are.
func (a *apiClient) definitions(ctx context.Context) (map[string]bool, error) {
	var list struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		} `json:"items"`
	}
	// Without this the answer is megabytes of schemas.
	const namesOnly = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	if err := a.do(ctx, http.MethodGet, definitionsPath, http.Header{"Accept": {namesOnly}}, nil, &list); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, item := range list.Items {
		names[item.Metadata.Name] = true
	}
	return names, nil
}

// apply hands a manifest to the cluster's own kubectl.
func (c *cluster) apply(ctx context.Context, manifest string) error {
	cmd := exec.CommandContext(ctx, c.kubectl(), "apply", "--server-side", "--force-conflicts", "--field-manager=berg-cluster", "-f", "-")
	cmd.Env = []string{"KUBECONFIG=" + c.kubeconfig(), "HOME=" + c.path("home"), "PATH=" + systemPath}
	cmd.Stdin = strings.NewReader(manifest)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl apply: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
