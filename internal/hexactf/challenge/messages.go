package challenge

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
)

// maxOutbox bounds the status of a challenge whose state keeps changing while the broker does not answer: the second
// oldest message is dropped. The platform must know the first state that it has no message about, and the last ones.
const maxOutbox = 64

// record adds the message about a new state of a challenge. Its timestamp has the precision of the API server, so that
// a repeat has the same bytes. It is never before the timestamp of the previous message, even if the clock was put
// back. It writes only into the status that the caller is about to patch. So a state and its message are stored together, or
// neither is.
func record(s *hexactfv1.ChallengeStatus, state hexactfv1.State, now time.Time) {
	if s.ChallengeID == "" || s.User == "" {
		return // the platform refuses a message without both
	}
	if s.Messages == nil {
		s.Messages = &hexactfv1.Messages{}
	}
	m := s.Messages
	m.Recorded++
	// The sequence is counted in the status, so it grows across processes.
	message := hexactfv1.Message{Sequence: m.Recorded, NewStatus: state, Timestamp: metav1.NewMicroTime(now.UTC().Truncate(time.Microsecond))}
	if n := len(m.Outbox); n > 0 && message.Timestamp.Before(&m.Outbox[n-1].Timestamp) {
		message.Timestamp = m.Outbox[n-1].Timestamp
	}
	if state == hexactfv1.StateRunning {
		message.Endpoint = s.Endpoint
	}
	m.Outbox = append(m.Outbox, message)
	if len(m.Outbox) > maxOutbox {
		m.Outbox = slices.Delete(m.Outbox, 1, 2)
	}
}

// dropped is how many messages that were not acknowledged were dropped between two statuses.
func dropped(before, after *hexactfv1.ChallengeStatus, acknowledged int64) int {
	if after.Messages == nil || len(after.Messages.Outbox) < maxOutbox {
		return 0
	}
	first := after.Messages.Outbox[1].Sequence
	n := 0
	for _, m := range pending(before, acknowledged) {
		if m.Sequence > after.Messages.Outbox[0].Sequence && m.Sequence < first {
			n++
		}
	}
	return n
}

// removeAcknowledged removes the acknowledged messages from an outbox.
func removeAcknowledged(s *hexactfv1.ChallengeStatus, acknowledged int64) {
	if s.Messages == nil {
		return
	}
	s.Messages.Outbox = pending(s, acknowledged)
}

// pending are the messages of an outbox that were not acknowledged, nil for none. The outbox is sorted by sequence, so the rest
// begins at the first that was not acknowledged.
func pending(s *hexactfv1.ChallengeStatus, acknowledged int64) []hexactfv1.Message {
	if s.Messages == nil {
		return nil
	}
	all := s.Messages.Outbox
	first := slices.IndexFunc(all, func(m hexactfv1.Message) bool { return m.Sequence > acknowledged })
	if first < 0 {
		return nil
	}
	return all[first:]
}

// messageState returns whether there is a message about a state, and which state it names.
func messageState(state hexactfv1.State) (named hexactfv1.State, ok bool) {
	switch state {
	case hexactfv1.StateCreating, hexactfv1.StateRunning, hexactfv1.StateError:
		return state, true
	case hexactfv1.StateTerminating:
		return hexactfv1.StateDeleted, true
	case hexactfv1.StateNone, hexactfv1.StateDeleted:
	}
	return "", false
}

// payload is a message as consumers read it. All consumers need the first four fields; a consumer that does not know
// the later ones ignores them. uid and sequence together identify a message: a repeat has the same. Its fields and their order
// are part of the interface to consumers: a change would give a repeated message other bytes.
type payload struct {
	User      string          `json:"user"`
	ProblemID string          `json:"problemId"`
	NewStatus hexactfv1.State `json:"newStatus"`
	Timestamp string          `json:"timestamp"`
	Endpoint  string          `json:"endpoint"`
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	UID       string          `json:"uid"`
	Sequence  int64           `json:"sequence"`
}

// encode returns the key and the value of a message.
func encode(c *hexactfv1.Challenge, m hexactfv1.Message) (key string, value []byte, err error) {
	p := payload{
		User: c.Status.User, ProblemID: c.Status.ChallengeID, NewStatus: m.NewStatus,
		Timestamp: m.Timestamp.UTC().Format(time.RFC3339Nano),
		Namespace: c.Namespace, Name: c.Name, UID: string(c.UID), Sequence: m.Sequence,
	}
	if m.Endpoint != 0 {
		p.Endpoint = strconv.Itoa(int(m.Endpoint))
	}
	value, err = json.Marshal(p)
	return c.Status.User + "-" + c.Status.ChallengeID, value, err
}
