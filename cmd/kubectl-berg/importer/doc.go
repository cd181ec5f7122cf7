// Package importer converts files of authors into Challenges: a compose file, a Dockerfile, or a challenge of klodd, kCTF
// or rCTF. It reads regular files of one folder, and writes none.
//
//	importer.go    detects the kind of a file or folder
//	result.go      the result: Challenges, notes and images to build
//	compose.go     compose files, which compose-go reads as docker compose does
//	references.go  the files that compose-go opens by itself
//	loader.go      variables of compose files
//	service.go     the keys of a service of a compose file
//	klodd.go       challenges of klodd
//	kctf.go        challenges of kCTF
//	rcds.go        challenges of rCTF
//	about.go       what ctfcli and the tools of events say of a challenge
//	pod.go         containers of pods
//	finish.go      the common part of all formats: defaults where the files are silent
//	draft.go       a Challenge on its way: names, images, types of ports, notes
//	dockerfile.go  instructions of a Dockerfile, as BuildKit parses them
//	program.go     the program of an image, its files and its ports
//	ports.go       types and names of ports
//	jail.go        whether programs make namespaces
//	flag.go        the flag of a program
//	flagpath.go    whether the path of the flag is certain
//	probe.go       health checks
//	files.go       the files of an author, and why some are not read
//	node.go        positions and spelling in YAML
//	write.go       the YAML
package importer
