// Package deploy embeds manifests that a program applies.
package deploy

import _ "embed"

// Fence has the admission policies of all API groups, which limit the operator's account and keep pods confined.
//
//go:embed fence.yaml
var Fence []byte
