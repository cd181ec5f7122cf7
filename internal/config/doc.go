// Package config has the settings for administrators, and nothing that acts on them.
//
//	process.go        the operator itself
//	berg.go           challenge instances, with the values that Challenges may replace
//	hexactf.go        HexaCTF challenges
//	hexactf_kafka.go  the brokers for their messages
//	kibaship.go       projects, builds and pushes
//	quix.go           environments
//	tunnel.go         container networks and their tunnels
//
// Each section is a table: a name, a default, the variable that it is read into, and the help. Documentation, manifests and the
// options of the command line are written from these tables. Package kit/settings reads them.
//
// # Order of a start
//
// Every setting is parsed alone, by a function that may leave the variable changed when it reports an error. Then check of each
// section compares settings with each other, also after such an error, so it says nothing about zero values that no text can give.
// With any error the process does not start. Warnings are for combinations that are valid and probably not intended. Nothing
// here is changed after the start: a new value needs a new process.
package config
