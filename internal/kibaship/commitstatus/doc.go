// Package commitstatus has git providers show at a commit how its build goes: pending, success or failure, and nothing else of it. It
// does so for Deployments that pushes have started, where their Application asks for it and the administrator allows it.
//
//	request.go     pure: the request for a provider
//	controller.go  when to send it, and the note of the last state
package commitstatus
