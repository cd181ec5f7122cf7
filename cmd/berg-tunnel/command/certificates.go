package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/bergctf/berg-operator/internal/tunnel/pki"
)

// roles are the folders that certificates are written to.
var roles = []struct {
	folder string
	role   pki.Role
}{
	{"client", pki.ClientProxy},
	{"server", pki.ServerProxy},
	{"controller", pki.Controller},
}

func (p *program) certificates() *cobra.Command {
	var output string
	var validity time.Duration
	c := &cobra.Command{
		Use:   "certificates",
		Short: "Make or renew the certificates of a pair",
		Long: `certificates makes an authority for one pair of proxies, and a certificate for each of its ends, in
the folders client, server and controller. Each folder is for --tls-dir. The authority stays in the folder
authority. If the command is run again, it renews the certificates with this authority. Running proxies read
them again.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			switch {
			case output == "":
				return usage("--output is missing: set it to the folder to write to")
			case validity < time.Minute:
				return usage("--validity is %s: want a minute or more", validity)
			}
			return writeCertificates(output, time.Now(), validity)
		},
	}
	c.Flags().StringVar(&output, "output", "", "folder to write to (required)")
	c.Flags().DurationVar(&validity, "validity", 90*24*time.Hour, "how long the certificates are valid; the authority is valid ten times as long")
	return c
}

// The authority is written before the first certificate. After an interruption the next run uses it again.
func writeCertificates(output string, now time.Time, validity time.Duration) error {
	authority, err := readAuthority(filepath.Join(output, "authority"))
	if errors.Is(err, fs.ErrNotExist) {
		if authority, err = pki.NewAuthority("berg-tunnel", now, 10*validity); err == nil {
			err = pki.WriteFiles(filepath.Join(output, "authority"), nil, authority.Pair)
		}
	}
	if err != nil {
		return err
	}
	for _, r := range roles {
		pair, err := authority.Issue(r.role, now, validity)
		if err != nil {
			return err
		}
		if err := pki.WriteFiles(filepath.Join(output, r.folder), authority.Certificate, pair); err != nil {
			return err
		}
	}
	return nil
}

func readAuthority(dir string) (*pki.Authority, error) {
	certificate, err := os.ReadFile(filepath.Join(dir, pki.CertificateFile))
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(filepath.Join(dir, pki.KeyFile))
	if err != nil {
		return nil, fmt.Errorf("the authority has a certificate and no key: remove %s to start over: %w", dir, errors.Unwrap(err))
	}
	return pki.ParseAuthority(pki.Pair{Certificate: certificate, Key: key})
}
