// Command scorecard holds the operator's own tests of "operator-sdk scorecard".
//
// Without an argument it checks what the bundle promises: that it names every
// variable of the operator with its true default, asks for no right and no
// privilege beyond its needs, and describes every field. The same checks run over
// bundle/ with the unit tests.
//
// With the argument "examples" it runs the examples of the bundle on the cluster,
// where the operator must be installed, and removes them again.
package main
