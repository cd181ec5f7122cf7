// Package kafka sends messages to one topic of a Kafka broker, for senders that keep what is
// to be sent until it is acknowledged.
//
// # What a caller may rely on
//
//   - Publish returns within the setting KAFKA_SEND_TIMEOUT, whatever the broker does. The
//     library's own deadlines do not bound a send that may have reached the broker.
//   - There is one send in flight for each key, so messages of a key are in the order in which
//     they were published. An attempt to publish the same value again waits for the send that
//     is under way, or learns that it arrived meanwhile; a second copy is only sent where
//     nobody can know.
//   - An error does not mean that the message will not arrive. Consumers see a message twice
//     at times.
//   - What is kept in memory is bounded: beyond that Publish refuses at once.
//   - A broker that is away is no reason to give up, nor to refuse to start. What would fail
//     for ever, such as an unreadable certificate, New tells.
//
// # What goes wrong in clients, and is handled here
//
// A client of the library can be spoilt for good: a producer ID that was refused once, or a
// topic that was created again under another ID, fails every later message at once. After an
// error that is not about a single message the client is replaced, with a growing pause in
// between. One that gets no acknowledgement although the broker answers is replaced, too.
package kafka
