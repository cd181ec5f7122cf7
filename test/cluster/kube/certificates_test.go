package kube

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestCertificates(t *testing.T) {
	for _, profile := range []string{ProfileSimulated, ProfileNode} {
		t.Run(profile, func(t *testing.T) {
			c := &Cluster{Name: "berg", Profile: profile, BasePort: 20000, Subnet: 7, dir: t.TempDir()}
			if err := c.prepare(); err != nil {
				t.Fatal(err)
			}
			for _, id := range c.identities() {
				roots := x509.NewCertPool()
				authority, err := os.ReadFile(c.certificate(id.Authority))
				if err != nil || !roots.AppendCertsFromPEM(authority) {
					t.Fatalf("%s: %v", id.Authority, err)
				}
				pair, err := tls.LoadX509KeyPair(c.certificate(id.Name), c.key(id.Name))
				if err != nil {
					t.Fatal(err)
				}
				usages := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
				if len(id.Hosts) > 0 {
					usages = append(usages, x509.ExtKeyUsageServerAuth)
				}
				for _, usage := range usages {
					_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}})
					if err != nil {
						t.Errorf("%s, usage %v: %v", id.Name, usage, err)
					}
				}
				for _, host := range id.Hosts {
					if err := pair.Leaf.VerifyHostname(host); err != nil {
						t.Error(err)
					}
				}
				if left := time.Until(pair.Leaf.NotAfter); left < 24*time.Hour || left > 31*24*time.Hour {
					t.Errorf("%s is valid for %s", id.Name, left)
				}
			}
		})
	}
}

func TestSecretsAreForTheOwnerAlone(t *testing.T) {
	c := &Cluster{Name: "berg", Profile: ProfileSimulated, BasePort: 20000, dir: filepath.Join(t.TempDir(), "berg")}
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := c.prepare(); err != nil {
		t.Fatal(err)
	}
	if err := c.save(); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestKubeconfig(t *testing.T) {
	c := &Cluster{Name: "berg", Profile: ProfileNode, Subnet: 7, dir: t.TempDir()}
	if err := c.prepare(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Current  string `json:"current-context"`
		Contexts []struct{ Name string }
		Clusters []struct {
			Cluster struct {
				Server    string
				Authority []byte `json:"certificate-authority-data"`
			}
		}
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		t.Fatal(err)
	}
	authority, err := os.ReadFile(c.certificate(clusterAuthority))
	if err != nil {
		t.Fatal(err)
	}
	if config.Current != "berg-berg" || config.Contexts[0].Name != config.Current {
		t.Errorf("current context %q, contexts %v", config.Current, config.Contexts)
	}
	if got := config.Clusters[0].Cluster; got.Server != "https://198.18.7.2:6443" || !slices.Equal(got.Authority, authority) {
		t.Errorf("cluster %+v", got)
	}
}
