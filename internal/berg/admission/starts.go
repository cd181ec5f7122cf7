package admission

import "k8s.io/apimachinery/pkg/types"

// Starts are the starts that this process has written and the cache may not show yet, so that a
// decision never counts too few. The zero value is ready for use, by one goroutine.
type Starts struct {
	// versions are the resource versions of the writes, zero where the outcome is unknown.
	versions map[types.UID]uint64
}

// Wrote notes the resource version with which an instance was started.
func (s *Starts) Wrote(uid types.UID, version uint64) {
	if s.versions == nil {
		s.versions = map[types.UID]uint64{}
	}
	s.versions[uid] = version
}

// Unknown notes that it is not known whether an instance was started: the request was sent, and no
// answer came. It counts as started until Wrote or NotWritten is called.
func (s *Starts) Unknown(uid types.UID) { s.Wrote(uid, 0) }

// NotWritten notes that an instance was certainly not started.
func (s *Starts) NotWritten(uid types.UID) { delete(s.versions, uid) }

// Merge completes all instances as the cache shows them, and forgets what it shows by now. It
// returns those of which the outcome is unknown.
func (s *Starts) Merge(all []Instance) (unknown []Instance) {
	if len(s.versions) == 0 {
		return nil
	}
	kept := map[types.UID]uint64{}
	for n := range all {
		i := &all[n]
		version, ok := s.versions[i.UID]
		switch {
		case !ok, i.Started, version != 0 && i.Version >= version:
			continue
		case version == 0:
			unknown = append(unknown, *i)
		}
		kept[i.UID], i.Started = version, true
	}
	s.versions = kept // the others are gone: all were in the cache when they were started
	return unknown
}

// Listed are instances as the API server listed them after this process had become the leader. Until
// the cache shows all that the previous leader wrote, nothing is decided.
type Listed map[types.UID]Instance

// Unseen forgets the instances that the cache shows in that version or in a later one, and returns
// the others: the cache will show them, unless they are gone.
func (l Listed) Unseen(all []Instance) []Instance {
	if len(l) == 0 {
		return nil
	}
	for _, i := range all {
		if listed, ok := l[i.UID]; ok && i.Version >= listed.Version {
			delete(l, i.UID)
		}
	}
	unseen := make([]Instance, 0, len(l))
	for _, i := range l {
		unseen = append(unseen, i)
	}
	return unseen
}
