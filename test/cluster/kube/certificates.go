package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"

	"github.com/bergctf/berg-operator/test/cluster/disk"
	"github.com/bergctf/berg-operator/test/cluster/pki"
)

// Certificates and keys are NAME.crt and NAME.key in the directory pki of a cluster.
const (
	clusterAuthority    = "ca"
	frontProxyAuthority = "front-proxy-ca"
	etcdAuthority       = "etcd-ca"
	accountKey          = "service-account"
)

// Groups that Kubernetes itself gives a meaning.
const (
	groupMasters = "system:masters"
	groupNodes   = "system:nodes"
)

// writeCertificates makes everything that the components of a cluster identify themselves with.
func (c *Cluster) writeCertificates() error {
	authorities := map[string]*pki.Authority{}
	for _, name := range []string{clusterAuthority, frontProxyAuthority, etcdAuthority} {
		a, err := pki.NewAuthority("berg-" + c.Name + "-" + name)
		if err != nil {
			return err
		}
		authorities[name] = a
		if err := c.writePair(name, a.Certificate.Raw, a.Key); err != nil {
			return err
		}
	}
	for _, id := range c.identities() {
		raw, key, err := authorities[id.Authority].Issue(id)
		if err != nil {
			return fmt.Errorf("certificate %s: %w", id.Name, err)
		}
		if err := c.writePair(id.Name, raw, key); err != nil {
			return err
		}
	}

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := c.writeKey(accountKey, key); err != nil {
		return err
	}
	return disk.WriteFile(c.path("pki", accountKey+".pub"), pki.Encode("PUBLIC KEY", public), 0o600)
}

func (c *Cluster) identities() []pki.Identity {
	loopback := []string{"127.0.0.1", "localhost"}
	ids := []pki.Identity{
		{Name: "etcd", Authority: etcdAuthority, User: "etcd", Hosts: loopback},
		{Name: "etcd-client", Authority: etcdAuthority, User: "kube-apiserver"},
		{Name: "apiserver", Authority: clusterAuthority, User: "kube-apiserver", Hosts: append([]string{
			c.apiHost(), serviceIP(1), "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc." + clusterDomain,
		}, loopback...)},
		{Name: "apiserver-kubelet", Authority: clusterAuthority, User: "kube-apiserver-kubelet-client", Group: groupMasters},
		{Name: "front-proxy", Authority: frontProxyAuthority, User: "front-proxy-client"},
		{Name: "admin", Authority: clusterAuthority, User: "berg-admin", Group: groupMasters},
		{Name: "controller-manager", Authority: clusterAuthority, User: "system:kube-controller-manager"},
		{Name: "scheduler", Authority: clusterAuthority, User: "system:kube-scheduler"},
	}
	if more := c.profile().identities; more != nil {
		ids = append(ids, more(c)...)
	}
	return ids
}

// kubeconfigUsers are the identities that get a kubeconfig.
func (c *Cluster) kubeconfigUsers() []string {
	return append([]string{"admin", "controller-manager", "scheduler"}, c.profile().users...)
}

func (c *Cluster) certificate(name string) string { return c.path("pki", name+".crt") }

func (c *Cluster) key(name string) string { return c.path("pki", name+".key") }

func (c *Cluster) writePair(name string, certificate []byte, key *ecdsa.PrivateKey) error {
	if err := c.writeKey(name, key); err != nil {
		return err
	}
	return disk.WriteFile(c.certificate(name), pki.Encode("CERTIFICATE", certificate), 0o600)
}

func (c *Cluster) writeKey(name string, key *ecdsa.PrivateKey) error {
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return disk.WriteFile(c.key(name), pki.Encode("EC PRIVATE KEY", raw), 0o600)
}

// writeKubeconfig writes one with everything inside, so that it can be copied elsewhere.
// JSON is YAML, which is what clients read.
func (c *Cluster) writeKubeconfig(user string) error {
	authority, err := os.ReadFile(c.certificate(clusterAuthority))
	if err != nil {
		return err
	}
	certificate, err := os.ReadFile(c.certificate(user))
	if err != nil {
		return err
	}
	key, err := os.ReadFile(c.key(user))
	if err != nil {
		return err
	}
	name := "berg-" + c.Name
	config := map[string]any{
		"apiVersion":      "v1",
		"kind":            "Config",
		"current-context": name,
		"clusters": []any{map[string]any{"name": name, "cluster": map[string]any{
			"server":                     c.apiURL(),
			"certificate-authority-data": authority,
		}}},
		"users": []any{map[string]any{"name": name, "user": map[string]any{
			"client-certificate-data": certificate,
			"client-key-data":         key,
		}}},
		"contexts": []any{map[string]any{"name": name, "context": map[string]any{"cluster": name, "user": name}}},
	}
	raw, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return err
	}
	return disk.WriteFile(c.path("kubeconfig", user), append(raw, '\n'), 0o600)
}
