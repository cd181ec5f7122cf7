// Package kafka sends messages to one topic of a Kafka broker, for senders that keep a message until it is acknowledged.
//
// # What a caller may rely on
//
//   - Publish returns within the setting KAFKA_SEND_TIMEOUT in every state of the broker. A send that may have reached the
//     broker stays in flight until the broker answers, or the library gives it up after about ten seconds.
//   - There is one send in flight for each key, so messages of a key are in the order in which they were published. An
//     attempt to publish the same value again waits for the send in flight, or returns that it was acknowledged. A second
//     copy is only sent if it is unknown whether the first one arrived.
//   - An error does not mean that the message will not arrive. Consumers sometimes see a message twice.
//   - The memory is bounded: beyond the limit Publish refuses immediately.
//   - A broker that does not answer is no reason to give up, nor to refuse to start. New reports permanent
//     errors, such as an unreadable certificate.
//
// # Defects of clients that are handled here
//
// A client of the library can break permanently: after a producer ID was refused once, or a topic was created again under
// another ID, every later message fails immediately. After an error that is not about a single message the client is
// replaced, with a growing delay between replacements.
//
// client.go sends, credentials.go reads certificates and passwords for each connection, and reason.go puts errors into words.
package kafka
