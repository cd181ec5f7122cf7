package refusal

import (
	"strings"
	"testing"
)

func TestExplain(t *testing.T) {
	for message, want := range map[string]Kind{
		`Internal error occurred: failed to allocate a nodePort: range is full`:                                                                  NodePorts,
		`Service "web-nodeport" is invalid: spec.ports[0].nodePort: Invalid value: 30000: provided port is already allocated`:                    "",
		`Internal error occurred: failed to allocate a serviceIP: range is full`:                                                                 ServiceAddresses,
		`deployments.apps "web" is forbidden: exceeded quota: quota, requested: count/deployments.apps=1, used: 0, limited: 0`:                   Quota,
		`pods "web" is forbidden: failed quota: compute: must specify limits.cpu for: web`:                                                       Quota,
		`pods "range-is-full" is forbidden: exceeded quota: failed-calling-webhook, requested: pods=1, used: 9, limited: 9`:                      Quota,
		`admission webhook "v.example.com" denied the request: exceeded quota: ask Ann`:                                                          Webhook,
		`services "web" is forbidden: ValidatingAdmissionPolicy 'no-ports' with binding 'all' denied request: failed calling webhook is no name`: Policy,
		`pods "web" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false`:                                   PodSecurity,
		`Internal error occurred: failed calling webhook "v.example.com": failed to call webhook: Post "https://v.svc:443": connection refused`:  WebhookDown,
		`pods "web" is forbidden: maximum memory usage per Container is 64Mi, but limit is 512Mi`:                                                LimitRange,
		`pods "web" is forbidden: pod rejected: RuntimeClass "gvisor" not found`:                                                                 RuntimeClass,
		`services is forbidden: User "system:serviceaccount:a:b" cannot create resource "services" in API group "" in the namespace "c"`:         Rights,
		`etcdserver: mvcc: database space exceeded`:                                                                                              Storage,
		`pods "web" is forbidden: image policy webhook backend denied one or more images: no signature`:                                          Webhook,
		`pods "web" is forbidden: unable to validate against any security context constraint: [provider restricted-v2: not usable]`:              PodSecurity,
		`conversion webhook for cilium.io/v2, Kind=A failed: Post "https://c.svc:443": connection refused`:                                       WebhookDown,
		`failed calling webhook "v.example.com": failed to call webhook: x509: certificate signed by unknown authority`:                          WebhookDown,
		`Pod "web" is invalid: spec.containers[0].resources.requests: Invalid value: "1Gi": must be less than or equal to memory limit of 512Mi`: LimitRange,
		`pods "web" is forbidden: no PriorityClass with name high was found`:                                                                     PriorityClass,
		`pods "web-" is forbidden: error looking up service account a/default: serviceaccount "default" not found`:                               ServiceAccount,
		`roles "a" is forbidden: user "b" (groups=["c"]) is attempting to grant RBAC permissions not currently held:`:                            Rights,
		`deployments.apps "a" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on`: Rights,
		`tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2026-11-29 is after 2026-01-01`:      Certificate,
		`the server has asked for the client to provide credentials`:                                                                             Credentials,
		`Request entity too large: limit is 3145728`:                                                                                             Storage,
		`Get "https://10.0.0.1/api": EOF`:                                                     Trouble,
		`http2: server sent GOAWAY and closed the connection; LastStreamID=1`:                 Trouble,
		`Post "https://api.example.com:6443": dial tcp: lookup api.example.com: no such host`: Trouble,
		`Internal error occurred: resource quota evaluation timed out`:                        Trouble,
		`etcdserver: leader changed`:                                                          Trouble,
		`Post "https://10.0.0.1/api": dial tcp 10.0.0.1:443: connect: connection refused`:     Trouble,
		`the server is currently unable to handle the request`:                                Trouble,
		`Service "web" is invalid: spec.ports: Required value`:                                "",
	} {
		got, known := Explain(message)
		if got.Kind != want || known != (want != "") {
			t.Errorf("%s: %q, want %q", message, got.Kind, want)
		}
	}
	for _, m := range meanings {
		if m.Text == "" || m.Do == "" {
			t.Errorf("%s has no sentences", m.Kind)
		}
		for _, phrase := range m.phrases {
			if phrase != strings.ToLower(phrase) || !strings.Contains(phrase, " ") {
				t.Errorf("%s: %q may be in a name, or is never found", m.Kind, phrase)
			}
		}
	}
	if got := Annotate("etcdserver: leader changed."); !strings.HasPrefix(got, "etcdserver: leader changed. Wait. ") || Annotate("a") != "a" {
		t.Error(got)
	}
}
