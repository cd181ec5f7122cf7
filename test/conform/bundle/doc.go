// Package bundle holds the bundles to the rules of OLM v1, the operator-controller, whose programs the tests cannot run. Each rule is a
// test with its name; the rules are those of its pages and of what it checks when it renders a bundle.
package bundle
