package gateway

import (
	"os"
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
	confv1 "sigs.k8s.io/gateway-api/conformance/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
)

// The claimed features are those in the status of the class, so the suite reads them there.
func TestConformance(t *testing.T) {
	if os.Getenv("KUBECONFIG") == "" || os.Getenv("GATEWAY_CONFORMANCE") == "" {
		t.Skip("make e2e-gate brings up a cluster, and runs this test with it")
	}
	options := conformance.DefaultOptions(t)
	options.GatewayClassName = "berg-gate"
	options.ConformanceProfiles = []suite.ConformanceProfileName{suite.GatewayHTTPConformanceProfileName, suite.GatewayTLSConformanceProfileName}
	options.AllowCRDsMismatch = true // a cluster may have the experimental channel
	options.Implementation = confv1.Implementation{
		Organization: "bergctf", Project: "berg-gate", URL: "https://github.com/bergctf/berg-operator", Version: os.Getenv("GATE_VERSION"),
		Contact: []string{"https://github.com/bergctf/berg-operator/issues"},
	}
	options.ReportOutputPath = os.Getenv("GATEWAY_CONFORMANCE_REPORT")
	options.CleanupBaseResources, options.CleanupTestResources = true, true
	conformance.RunConformanceWithOptions(t, options)
}
