package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// validity outlasts every use of a throw-away cluster, and is short enough that a forgotten key is worth nothing.
const validity = 14 * 24 * time.Hour

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

// identity is one certificate to issue: for a server when it has hosts, for a client otherwise, or for both.
type identity struct {
	name      string
	authority string
	user      string
	group     string
	hosts     []string
}

// writeCertificates makes everything that the components of a cluster identify themselves with.
func (c *cluster) writeCertificates() error {
	authorities := map[string]*authority{}
	for _, name := range []string{clusterAuthority, frontProxyAuthority, etcdAuthority} {
		a, err := newAuthority("berg-" + c.Name + "-" + name)
		if err != nil {
			return err
		}
		authorities[name] = a
		if err := c.writePair(name, a.certificate.Raw, a.key); err != nil {
			return err
		}
	}
	for _, id := range c.identities() {
		raw, key, err := authorities[id.authority].issue(id)
		if err != nil {
			return fmt.Errorf("certificate %s: %w", id.name, err)
		}
		if err := c.writePair(id.name, raw, key); err != nil {
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
	return writeFile(c.path("pki", accountKey+".pub"), encode("PUBLIC KEY", public), 0o600)
}

func (c *cluster) identities() []identity {
	loopback := []string{"127.0.0.1", "localhost"}
	ids := []identity{
		{name: "etcd", authority: etcdAuthority, user: "etcd", hosts: loopback},
		{name: "etcd-client", authority: etcdAuthority, user: "kube-apiserver"},
		{name: "apiserver", authority: clusterAuthority, user: "kube-apiserver", hosts: append([]string{
			c.apiHost(), serviceIP(1), "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc." + clusterDomain,
		}, loopback...)},
		{name: "apiserver-kubelet", authority: clusterAuthority, user: "kube-apiserver-kubelet-client", group: groupMasters},
		{name: "front-proxy", authority: frontProxyAuthority, user: "front-proxy-client"},
		{name: "admin", authority: clusterAuthority, user: "berg-admin", group: groupMasters},
		{name: "controller-manager", authority: clusterAuthority, user: "system:kube-controller-manager"},
		{name: "scheduler", authority: clusterAuthority, user: "system:kube-scheduler"},
	}
	if c.Profile == profileSimulated {
		return append(ids, identity{name: "kwok", authority: clusterAuthority, user: "kwok", group: groupMasters})
	}
	if c.Profile == profileNetwork {
		ids = append(ids,
			// Programs of the node itself, as are kubelet and kube-proxy, but nobody has given them roles.
			identity{name: "cilium", authority: clusterAuthority, user: "cilium", group: groupMasters},
			identity{name: "traefik", authority: clusterAuthority, user: "traefik", group: groupMasters},
			identity{name: "gateway", authority: clusterAuthority, user: "gateway", hosts: []string{"*." + gatewayDomain}},
		)
	}
	return append(ids,
		identity{
			name: "kubelet", authority: clusterAuthority, user: "system:node:" + nodeName, group: groupNodes,
			hosts: []string{nodeName, c.nodeIP()},
		},
		identity{name: "kube-proxy", authority: clusterAuthority, user: "system:kube-proxy"},
		identity{name: "registry", authority: clusterAuthority, user: "registry", hosts: []string{c.nodeIP()}},
	)
}

// kubeconfigUsers are the identities that get a kubeconfig.
func (c *cluster) kubeconfigUsers() []string {
	users := []string{"admin", "controller-manager", "scheduler"}
	if c.Profile == profileSimulated {
		return append(users, "kwok")
	}
	users = append(users, "kubelet", "kube-proxy")
	if c.Profile == profileNetwork {
		users = append(users, "cilium", "traefik")
	}
	return users
}

type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := newTemplate()
	if err != nil {
		return nil, err
	}
	template.Subject = pkix.Name{CommonName: name}
	template.IsCA = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(raw)
	return &authority{certificate: certificate, key: key}, err
}

func (a *authority) issue(id identity) (raw []byte, key *ecdsa.PrivateKey, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, err
	}
	template, err := newTemplate()
	if err != nil {
		return nil, nil, err
	}
	template.Subject = pkix.Name{CommonName: id.user}
	if id.group != "" {
		template.Subject.Organization = []string{id.group}
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	// etcd presents its server certificate as a client to its own gateway, so a server's is good for both.
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(id.hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, host := range id.hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	raw, err = x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	return raw, key, err
}

func newTemplate() (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber:          serial,
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(validity),
		BasicConstraintsValid: true,
	}, nil
}

func (c *cluster) certificate(name string) string { return c.path("pki", name+".crt") }
func (c *cluster) key(name string) string         { return c.path("pki", name+".key") }

func (c *cluster) writePair(name string, certificate []byte, key *ecdsa.PrivateKey) error {
	if err := c.writeKey(name, key); err != nil {
		return err
	}
	return writeFile(c.certificate(name), encode("CERTIFICATE", certificate), 0o600)
}

func (c *cluster) writeKey(name string, key *ecdsa.PrivateKey) error {
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writeFile(c.key(name), encode("EC PRIVATE KEY", raw), 0o600)
}

func encode(kind string, raw []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw})
}

// writeKubeconfig writes one with everything inside, so that it can be copied elsewhere.
// JSON is YAML, which is what clients read.
func (c *cluster) writeKubeconfig(user string) error {
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
	return writeFile(c.path("kubeconfig", user), append(raw, '\n'), 0o600)
}
