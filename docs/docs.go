// Package docs holds the pages for users, for programs that compare what they
// say with what is.
package docs

import "embed"

// Pages are the pages of this folder and of the folders below it.
//
//go:embed *.md */*.md
var Pages embed.FS
