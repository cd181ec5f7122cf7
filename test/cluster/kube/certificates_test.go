package kube

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

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
