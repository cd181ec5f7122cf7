// Package nodes says whether the nodes of a cluster can run pods in user namespaces. Containers with sandbox: nested need
// them, and CHALLENGE_USER_NAMESPACES=auto goes by it.
package nodes
