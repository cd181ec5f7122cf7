// Package site opens the site of the documentation in a browser, which make test-docs-site does.
package site
