package olm

import (
	"slices"
	"strings"

	"github.com/bergctf/berg-operator/test/lib/residue"
)

// promised is what OLM keeps on purpose: the definitions, since with them every
// Challenge would go, and what the API server notes of them; the roles that OLM
// makes for them; its own record; and roles of an OperatorGroup, which a busy OLM writes again
// when it is deleted.
func promised(object string) bool {
	if object == "operators.operators.coreos.com/"+packageName+"."+operatorNamespace {
		return true
	}
	if strings.HasPrefix(object, "clusterroles.rbac.authorization.k8s.io/olm.og.") {
		return true
	}
	definitions := residue.Definitions("../../..")
	return residue.OfDefinitions(object, definitions) || slices.ContainsFunc(definitions, func(name string) bool {
		return strings.HasPrefix(object, "clusterroles.rbac.authorization.k8s.io/"+name+"-v1")
	})
}
