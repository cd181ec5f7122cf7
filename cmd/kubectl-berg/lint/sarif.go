package lint

import (
	"path/filepath"
	"slices"
)

// SARIF returns findings in the Static Analysis Results Interchange Format 2.1.0, which code hosts show in pull requests.
func SARIF(findings []Finding, version string) any {
	type text struct {
		Text string `json:"text"`
	}
	type rule struct {
		ID               string `json:"id"`
		ShortDescription text   `json:"shortDescription"`
	}
	type artifact struct {
		URI string `json:"uri"`
	}
	type region struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn"`
	}
	type physical struct {
		ArtifactLocation artifact `json:"artifactLocation"`
		Region           region   `json:"region"`
	}
	type location struct {
		PhysicalLocation physical `json:"physicalLocation"`
	}
	type result struct {
		RuleID    string     `json:"ruleId"`
		Level     Severity   `json:"level"`
		Message   text       `json:"message"`
		Locations []location `json:"locations"`
	}
	type driver struct {
		Name           string `json:"name"`
		Version        string `json:"version,omitempty"`
		InformationURI string `json:"informationUri"`
		Rules          []rule `json:"rules"`
	}
	type tool struct {
		Driver driver `json:"driver"`
	}
	type run struct {
		Tool    tool     `json:"tool"`
		Results []result `json:"results"`
	}
	type log struct {
		Schema  string `json:"$schema"`
		Version string `json:"version"`
		Runs    []run  `json:"runs"`
	}
	rules, results := []rule{}, []result{}
	for _, f := range findings {
		if !slices.ContainsFunc(rules, func(r rule) bool { return r.ID == f.Rule }) {
			rules = append(rules, rule{ID: f.Rule, ShortDescription: text{"Mistakes in " + f.Rule}})
		}
		message := f.Message
		if f.Field != "" {
			message = f.Field + ": " + message
		}
		results = append(results, result{
			RuleID: f.Rule, Level: f.Severity, Message: text{message},
			Locations: []location{{physical{artifact{filepath.ToSlash(f.File)}, region{f.Line, f.Column}}}},
		})
	}
	return log{
		Schema:  "https://json.schemastore.org/sarif-2.1.0.json",
		Version: "2.1.0",
		Runs: []run{{tool{driver{
			Name: "kubectl-berg", Version: version, InformationURI: "https://github.com/bergctf/berg-operator", Rules: rules,
		}}, results}},
	}
}
