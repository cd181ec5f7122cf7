// Package importer makes Challenges of what authors have: a compose file, a Dockerfile, or a challenge of klodd. It reads
// files and writes none.
//
//	importer.go    finds out what a file or folder is
//	compose.go     compose files, which compose-go reads as docker compose does
//	service.go     what the keys of a service become
//	dockerfile.go  what a Dockerfile says of ports and flags
//	klodd.go       challenges of klodd
//	draft.go       what all have in common: names, images, kinds of ports
//	flag.go        where the flag is
//	probe.go       health checks
//	write.go       the YAML
package importer
