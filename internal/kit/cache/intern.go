package cache

import (
	"hash/maphash"
	"math"
	"reflect"
	"strings"
	"sync"
	"time"
)

const (
	// recentParts is the minimum number of parts and of texts that are known. Parts of a
	// single instance are forgotten again; parts of all instances are met too often for that.
	recentParts = 4096
	// maxText is the length up to which a text is likely to occur again.
	maxText = 512
)

// intern finds parts of objects that occurred before: texts, and the referents of pointers,
// slices and maps.
type intern struct {
	mu    sync.Mutex
	seed  maphash.Seed
	texts generations[string, string]
	parts generations[partKey, reflect.Value]
}

type partKey struct {
	typ  reflect.Type
	hash uint64
}

func newIntern() *intern { return &intern{seed: maphash.MakeSeed()} }

// share replaces parts of an object by equal parts of other objects, and the rest by
// copies: the decoded parts are next to parts that are dropped, and would keep whole pages
// of memory alive. The object must not be changed afterwards.
func (s *intern) share(object any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.walk(reflect.ValueOf(object).Elem())
}

// walk shares the parts of v, from the inside out, and returns a hash of v.
func (s *intern) walk(v reflect.Value) uint64 {
	switch v.Kind() {
	case reflect.String:
		return s.text(v)
	case reflect.Bool:
		if v.Bool() {
			return 1
		}
		return 2
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return uint64(v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return v.Uint()
	case reflect.Float32, reflect.Float64:
		return math.Float64bits(v.Float())
	case reflect.Struct:
		return s.fields(v)
	case reflect.Pointer:
		if v.IsNil() {
			return 0
		}
		return s.part(v, s.walk(v.Elem()))
	case reflect.Slice:
		if v.IsNil() {
			return 0
		}
		return s.part(v, s.elements(v))
	case reflect.Map:
		if v.IsNil() {
			return 0
		}
		return s.part(v, s.entries(v))
	default:
		return 0 // rare: only equality decides
	}
}

func (s *intern) text(v reflect.Value) uint64 {
	text := v.String()
	if v.CanSet() && text != "" {
		v.SetString(s.shared(text))
	}
	return maphash.String(s.seed, text)
}

var timeType = reflect.TypeFor[time.Time]()

func (s *intern) fields(v reflect.Value) uint64 {
	if v.Type() == timeType {
		return 0 // its parts include the time zone; equality decides
	}
	hash := uint64(v.NumField())
	for i := range v.NumField() {
		hash = mix(hash, s.walk(v.Field(i)))
	}
	return hash
}

func (s *intern) elements(v reflect.Value) uint64 {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		return maphash.Bytes(s.seed, v.Bytes())
	}
	hash := uint64(v.Len())
	for i := range v.Len() {
		hash = mix(hash, s.walk(v.Index(i)))
	}
	return hash
}

// entries does not depend on the order, which differs each time. Elements of
// a map cannot be set; one of texts is made again.
func (s *intern) entries(v reflect.Value) uint64 {
	if m, ok := settableTexts(v); ok {
		shared := make(map[string]string, len(m))
		for key, value := range m {
			shared[s.shared(key)] = s.shared(value)
		}
		v.Set(reflect.ValueOf(shared).Convert(v.Type()))
	}
	hash := uint64(v.Len())
	for entries := v.MapRange(); entries.Next(); {
		hash += mix(s.walk(entries.Key()), s.walk(entries.Value()))
	}
	return hash
}

func settableTexts(v reflect.Value) (map[string]string, bool) {
	if !v.CanSet() {
		return nil, false
	}
	m, ok := v.Interface().(map[string]string)
	return m, ok
}

// shared copies also a text that it does not keep: otherwise a short text would hold the whole answer of which it is a part.
func (s *intern) shared(text string) string {
	if len(text) > maxText {
		return strings.Clone(text)
	}
	if interned, known := s.texts.get(text); known {
		return interned
	}
	text = strings.Clone(text)
	s.texts.put(text, text)
	return text
}

// part replaces a reference by a known equal one, or by a copy, which is
// known afterwards.
func (s *intern) part(v reflect.Value, hash uint64) uint64 {
	hash = mix(hash, 1)
	if !v.CanSet() {
		return hash
	}
	key := partKey{v.Type(), hash}
	known, ok := s.parts.get(key)
	// Different parts may have the same hash: only equal ones are shared.
	if ok && reflect.DeepEqual(known.Interface(), v.Interface()) {
		v.Set(known)
		return hash
	}
	switch v.Kind() {
	case reflect.Slice:
		exact := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(exact, v)
		v.Set(exact)
	case reflect.Pointer:
		fresh := reflect.New(v.Type().Elem())
		fresh.Elem().Set(v.Elem())
		v.Set(fresh)
	}
	if !ok {
		// A copy of the reference: v itself would keep the whole object alive.
		s.parts.put(key, reflect.ValueOf(v.Interface()))
	}
	return hash
}

func mix(a, b uint64) uint64 {
	a = (a ^ b) * 0x9e3779b97f4a7c15
	return a ^ a>>32
}

// generations is a map that forgets entries that were not used for a while.
type generations[K comparable, V any] struct {
	recent, earlier map[K]V
}

func (g *generations[K, V]) get(key K) (V, bool) {
	if v, ok := g.recent[key]; ok {
		return v, true
	}
	v, ok := g.earlier[key]
	// An entry that is used once in a generation moves on to the next one, and is never forgotten.
	if ok {
		g.put(key, v)
	}
	return v, ok
}

// The older half is dropped as a whole, so nothing has to be moved for each entry, and the size is bounded by twice recentParts.
func (g *generations[K, V]) put(key K, v V) {
	if g.recent == nil || len(g.recent) >= recentParts {
		g.earlier, g.recent = g.recent, make(map[K]V, recentParts)
	}
	g.recent[key] = v
}
