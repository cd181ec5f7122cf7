// Dashboards generates the dashboards for Grafana: that of the process in config/grafana, and that of each family in
// config/<family>/grafana.
//
//	go run ./hack/dashboards config
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: dashboards CONFIG")
		os.Exit(2)
	}
	for _, b := range boards() {
		if err := write(filepath.Join(os.Args[1], b.folder, "grafana", b.uid+".json"), b); err != nil {
			fmt.Fprintln(os.Stderr, "dashboards:", err)
			os.Exit(1)
		}
	}
}

func write(file string, b board) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(b.grafana()); err != nil {
		return err
	}
	return os.WriteFile(file, text.Bytes(), 0o644) //nolint:gosec // a published file
}
