// Package docs embeds the pages for users, for tests that compare them with the code.
package docs

import "embed"

// Pages are the pages of this folder and of the folders below it.
//
//go:embed *.md */*.md
var Pages embed.FS
