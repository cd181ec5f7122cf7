// Package chart holds the Helm chart to the file that installs the operator, by Helm's own
// engine. It is a module of its own for Helm, whose program is built from here too.
package chart
