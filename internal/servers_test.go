package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// Package ports bounds what clients without proof cost at every port. The servers of libraries have no such limits, and neither has one of
// net/http as it is.
func TestEveryPortHasLimits(t *testing.T) {
	bounded := map[string]bool{
		"internal/kit/ports/server.go":     true,
		"internal/gate/frontend/serve.go":  true, // its connections pass a gate of package ports before they are accepted
		"internal/tunnel/proxy/session.go": true, // serves a ports.Listener
	}
	addresses := map[string]bool{"HealthProbeBindAddress": true, "PprofBindAddress": true, "BindAddress": true}
	found := 0
	for _, path := range sources(t, ".go") {
		if !strings.HasPrefix(path, "internal/") && !strings.HasPrefix(path, "cmd/") || strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		report := func(what string) {
			if found++; !bounded[path] {
				t.Errorf("%s: %s serves without limits: use ports.NewServer", path, what)
			}
		}
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.CompositeLit:
				if isSelector(node.Type, "http", "Server") {
					report("http.Server")
				}
				if options, ok := node.Type.(*ast.SelectorExpr); ok && options.Sel.Name == "Options" {
					for _, element := range node.Elts {
						if value, ok := element.(*ast.KeyValueExpr); ok {
							key, _ := value.Key.(*ast.Ident)
							text, literal := value.Value.(*ast.BasicLit)
							if key != nil && addresses[key.Name] && (!literal || text.Value != `"0"`) {
								report(key.Name + " of a library")
							}
						}
					}
				}
			case *ast.CallExpr:
				for _, call := range [][2]string{{"http", "Serve"}, {"http", "ListenAndServe"}, {"http", "ListenAndServeTLS"}, {"grpc", "NewServer"}, {"httptest", "NewServer"}} {
					if isSelector(node.Fun, call[0], call[1]) {
						report(call[0] + "." + call[1])
					}
				}
			}
			return true
		})
	}
	if found < 3 {
		t.Errorf("only %d servers were found", found)
	}
}
