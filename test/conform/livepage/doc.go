// Package livepage opens the live page in a browser, over instances of a real API server. It is a module of its own,
// since what drives the browser is none of the product's business.
//
//	wall      berg-api as a process, and the instances that it shows
//	chrome    the browser
//	measure   how fast the page is with 5,000 instances, and how much memory it takes
//	pictures  the pictures of docs/live-page.md
package livepage
