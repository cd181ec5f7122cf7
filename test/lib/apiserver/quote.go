package apiserver

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Quotation is what QuoteFlags makes the API server say, without the flag.
const Quotation = "not with "

// Overheard remembers the last warning of an API server.
type Overheard struct{ text atomic.Value }

// HandleWarningHeader implements rest.WarningHandler.
func (o *Overheard) HandleWarningHeader(_ int, _, text string) { o.text.Store(text) }

// String returns the last warning.
func (o *Overheard) String() string {
	text, _ := o.text.Load().(string)
	return text
}

// QuoteFlags makes the API server quote the flag of each ChallengeInstance in a namespace that others than the operator create or
// change, until the spec ends: action Deny refuses it, Warn warns of it.
func QuoteFlags(ctx context.Context, namespace, action string) {
	GinkgoHelper()
	for _, text := range []string{`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [berg.norelect.ch], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [challengeinstances]}]
  matchConditions: [{name: others, expression: "request.userInfo.username != '%[3]s' && request.namespace == '%[1]s'"}]
  validations: [{expression: "false", messageExpression: "'%[4]s' + object.spec.flag", reason: Forbidden}]`, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [%[2]s]}`} {
		Create(ctx, Object(fmt.Sprintf(text, namespace, action, OperatorUser, Quotation)))
	}
	followed := &Overheard{}
	config := rest.CopyConfig(Config)
	config.WarningHandler = followed
	attentive, err := client.New(config, client.Options{})
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() string { // the API server takes a moment before it follows a policy
		probe := Object(fmt.Sprintf(`
apiVersion: berg.norelect.ch/v1
kind: ChallengeInstance
metadata: {namespace: %s, name: probe}
spec: {challengeRef: {name: probe}, ownerId: %s, flag: a-probe}`, namespace, uuid.NewString()))
		return fmt.Sprint(attentive.Create(ctx, probe, client.DryRunAll), followed)
	}).Should(ContainSubstring(Quotation + "a-probe"))
}
