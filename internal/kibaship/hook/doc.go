// Package hook receives webhooks of git providers. It is a program of its own, of the operator's image, with rights of its own.
//
// A webhook says that there may be new commits, and no more: the receiver writes an annotation on the Application, and the operator
// asks the repository. So the receiver parses no body, and a webhook that is forged, repeated or outdated builds nothing.
//
// The secret of each Application is derived from one key and the Application's path, which has its UID. So the receiver knows the
// secret for any path, needs no right to read Applications or Secrets, and answers the same, in the same time, for an Application that
// does not exist and for a wrong signature.
//
//	key.go        the key of all secrets, as the operator creates and reads it
//	secret.go     pure: the secret of a path
//	verify.go     pure: signatures and tokens of each provider
//	receiver.go   requests
//	main.go       the program
package hook
