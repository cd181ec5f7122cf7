// Package lint checks the YAML of Challenges without a cluster. It is pure. It reads the source, so that it can quote
// the author's spelling where YAML gives it another meaning.
//
//	lint.go     a file, its documents, and the findings about one Challenge
//	types.go    values with the wrong type, and spellings that YAML changes
//	unknown.go  fields that a Challenge does not have, and the fields that were meant
//	node.go     the position of a field in the source
//	sarif.go    findings for code hosts
//
// The checks of one Challenge go from the spelling to the meaning: duplicates and types first, then decoding, then the rules of the
// API server and of the operator, which package berg/rules has. An error of an early check makes a later decoding fail, which is
// then not reported again; after an error, a field has no further finding. Every position is in the file, not in the document.
package lint
