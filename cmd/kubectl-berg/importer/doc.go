// Package importer converts files of authors into Challenges: a compose file, a Dockerfile, or a challenge of klodd, kCTF
// or rCTF. It reads files and writes none.
//
//	importer.go    detects the kind of a file or folder
//	result.go      the result: Challenges, notes and images to build
//	compose.go     compose files, which compose-go reads as docker compose does
//	service.go     the keys of a service of a compose file
//	dockerfile.go  instructions of a Dockerfile, as BuildKit parses them
//	program.go     the program of an image, its files and its ports
//	klodd.go       challenges of klodd
//	kctf.go        challenges of kCTF
//	rcds.go        challenges of rCTF
//	draft.go       the common part of all formats: names, images, types of ports
//	flag.go        the flag of a program
//	flagpath.go    whether the path of the flag is certain
//	probe.go       health checks
//	node.go        positions and spelling in YAML
//	write.go       the YAML
package importer
