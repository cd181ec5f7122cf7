// Command scorecard checks what the bundle promises: that it names every
// variable of the operator with its true default, asks for no right and no
// privilege beyond its needs, and shows an example of each kind. It runs as a
// custom test of "operator-sdk scorecard", and its checks run over bundle/ with
// the unit tests.
package main
