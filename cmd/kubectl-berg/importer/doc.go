// Package importer makes Challenges of what authors have: a compose file, a Dockerfile, or a challenge of klodd, kCTF or rCTF.
// It reads files and writes none.
//
//	importer.go    finds out what a file or folder is
//	result.go      what comes of it
//	compose.go     compose files, which compose-go reads as docker compose does
//	service.go     what the keys of a service become
//	dockerfile.go  instructions of a Dockerfile, as BuildKit parses them
//	program.go     the program of an image, its files and its ports
//	klodd.go       challenges of klodd
//	kctf.go        challenges of kCTF
//	rcds.go        challenges of rCTF
//	draft.go       what all have in common: names, images, kinds of ports
//	flag.go        where the flag is
//	flagpath.go    whether its path is certain
//	probe.go       health checks
//	node.go        places and words in YAML
//	write.go       the YAML
package importer
