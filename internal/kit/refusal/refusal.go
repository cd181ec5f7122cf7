// Package refusal says what a message means with which the API server, or a controller of Kubernetes, refuses to create an
// object. It is pure. All API groups, kubectl berg and the platform API read such messages here.
package refusal

import "strings"

// Kind is what a message is about.
type Kind string

// The kinds.
const (
	Webhook          Kind = "Webhook"
	Policy           Kind = "Policy"
	PodSecurity      Kind = "PodSecurity"
	Quota            Kind = "Quota"
	LimitRange       Kind = "LimitRange"
	Rights           Kind = "Rights"
	NodePorts        Kind = "NodePorts"
	ServiceAddresses Kind = "ServiceAddresses"
	RuntimeClass     Kind = "RuntimeClass"
	WebhookDown      Kind = "WebhookDown"
	PriorityClass    Kind = "PriorityClass"
	ServiceAccount   Kind = "ServiceAccount"
	Certificate      Kind = "Certificate"
	Credentials      Kind = "Credentials"
	Storage          Kind = "Storage"
	Trouble          Kind = "Trouble"
)

// Meaning explains a message: Text is a clause, Do a sentence.
type Meaning struct {
	Kind     Kind
	Text, Do string
}

// meanings are in the order in which they are tried. The message of a webhook or a policy may quote any other message, so
// these come first. Each phrase has a blank, which no name of an object has.
var meanings = []struct {
	phrases []string
	Meaning
}{
	{[]string{" denied the request", "image policy webhook backend denied "}, Meaning{
		Webhook, "an admission webhook refuses it", "Change what the webhook's message names, or ask the administrator for an exception.",
	}},
	{[]string{" denied request: ", "validatingadmissionpolicy '"}, Meaning{
		Policy, "an admission policy refuses it", "Change what the policy's message names, or ask the administrator for an exception.",
	}},
	{[]string{"violates podsecurity "}, Meaning{
		PodSecurity, "the Pod Security level of its namespace refuses the pod",
		"Ask the administrator to lower the level of the namespace, or change what the message names.",
	}},
	{[]string{"unable to validate against any security context constraint"}, Meaning{
		PodSecurity, "the security context constraints of its namespace refuse the pod",
		"Ask the administrator for a SecurityContextConstraints that allows what the message names: oc get scc",
	}},
	{[]string{"conversion webhook for "}, Meaning{
		WebhookDown, "a conversion webhook fails", "Repair the program that serves the kind that the message names: kubectl get crds",
	}},
	{[]string{"failed calling webhook ", "failed to call webhook", "no endpoints available for service \""}, Meaning{
		WebhookDown, "an admission webhook does not answer", "Repair or remove the webhook that the message names: kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations",
	}},
	{[]string{"exceeded quota: ", "failed quota: ", "insufficient quota to match", "status unknown for quota: "}, Meaning{
		Quota, "a quota is used up", "End what uses the quota, or raise it: kubectl get resourcequotas -A",
	}},
	{[]string{"failed to allocate a nodeport: range is full", "failed to allocate requested nodeport: range is full"}, Meaning{
		NodePorts, "all node ports of the cluster are in use",
		"End instances, use host names (publicHttpRoute, publicTlsRoute), or extend --service-node-port-range of the API server.",
	}},
	{[]string{"failed to allocate a serviceip: range is full", "failed to allocate a serviceip: no addresses", "failed to allocate ip: range is full"}, Meaning{
		ServiceAddresses, "all addresses for Services of the cluster are in use", "End instances, or add a ServiceCIDR to the cluster.",
	}},
	{[]string{" usage per container is ", " usage per pod is ", "limit to request ratio "}, Meaning{
		LimitRange, "a LimitRange refuses its resources", "Change its requests and limits as the message says, or the LimitRange: kubectl get limitranges -A",
	}},
	{[]string{"must be less than or equal to cpu limit", "must be less than or equal to memory limit", "must be less than or equal to ephemeral-storage limit"}, Meaning{
		LimitRange, "it requests more than its limit, which may be the default of a LimitRange", "Lower the request, or raise the limit: kubectl get limitranges -A",
	}},
	{[]string{"no priorityclass with name "}, Meaning{
		PriorityClass, "its PriorityClass does not exist", "Correct the name, or create the PriorityClass: kubectl get priorityclasses",
	}},
	{[]string{"error looking up service account "}, Meaning{
		ServiceAccount, "its ServiceAccount does not exist yet", "Wait. If it continues, the controller manager of the cluster does not run: kubectl get leases -n kube-system",
	}},
	{[]string{"pod rejected: runtimeclass "}, Meaning{
		RuntimeClass, "its RuntimeClass does not exist, or does not take it", "Correct the name, or create the RuntimeClass: kubectl get runtimeclasses",
	}},
	{[]string{
		" cannot create resource ", " cannot update resource ", " cannot patch resource ", " cannot delete resource ", " cannot get resource ", " cannot list resource ",
		"is attempting to grant rbac permissions not currently held", "cannot set blockownerdeletion ", "cannot set an ownerref on ",
	}, Meaning{
		Rights, "the account lacks a right", "Grant the right that the message names. The operator's rights come with its installation: apply it again.",
	}},
	{[]string{"x509: ", "failed to verify certificate"}, Meaning{
		Certificate, "a certificate of the API server is not accepted", "Compare the clocks of both machines, and renew the certificate if it has expired. The message has the dates or names.",
	}},
	{[]string{"the server has asked for the client to provide credentials", "you must be logged in to the server"}, Meaning{
		Credentials, "the API server does not accept the token of the account", "Wait a minute for a new token. If it continues, the account was deleted or created again: restart the pod.",
	}},
	{[]string{"database space exceeded", "etcdserver: request is too large", "request entity too large", "trying to send message larger than max"}, Meaning{
		Storage, "the storage of the API server is full, or the object is too large for it", "Compact and defragment etcd, and remove its alarm. kubectl get --raw '/readyz?verbose' shows its state.",
	}},
	{[]string{
		"etcdserver: ", "connection refused", "connection reset by peer", "client connection lost", "i/o timeout", "context deadline exceeded", "unexpected eof", "too many requests",
		"is currently unable to handle the request", "the server was unable to return a response", "timed out waiting", "request timed out", "tls handshake timeout",
		"at this time", "no route to host", "rate: wait", "apiserver not ready", "no such host", "network is unreachable", ": eof", "server sent goaway", "evaluation timed out",
		"server closed idle connection", "storage is (re)initializing",
	}, Meaning{
		Trouble, "the API server fails, or does not answer in time", "Wait. If it continues, check the API server: kubectl get --raw '/readyz?verbose'",
	}},
}

// Explain returns the meaning of a message; known is false if nothing is known about it. It compares texts because the API server
// and its plugins give no code for most refusals. A text of another version that is not recognised costs the explanation and
// nothing else.
func Explain(message string) (meaning Meaning, known bool) {
	message = strings.ToLower(message)
	for _, m := range meanings {
		for _, phrase := range m.phrases {
			if strings.Contains(message, phrase) {
				return m.Meaning, true
			}
		}
	}
	return Meaning{}, false
}

// Annotate adds to a message what helps, if that is known.
func Annotate(message string) string {
	meaning, known := Explain(message)
	if !known {
		return message
	}
	return strings.TrimRight(message, ". ") + ". " + meaning.Do
}
