package cache

import (
	"hash/maphash"
	"slices"
	"strconv"

	toolscache "k8s.io/client-go/tools/cache"
)

// index finds objects by the values that its functions give them. The indexer of client-go
// keeps a set for every value, which takes 250 bytes, and most values here, namespaces and
// owners, have only one object of a kind. So many values share a set, and the objects in it
// are filtered by value.
type index struct {
	toolscache.Indexer
	functions toolscache.Indexers
}

// setsOfIndex is the number of sets: with 10,000 namespaces, each has ten objects.
const setsOfIndex = 1024

var (
	setSeed  = maphash.MakeSeed()
	setNames = func() (names [setsOfIndex]string) {
		for i := range names {
			names[i] = strconv.Itoa(i)
		}
		return names
	}()
)

func hashedSet(value string) string { return setNames[maphash.String(setSeed, value)%setsOfIndex] }

// coarse returns functions that map objects to sets instead of values. client-go calls these functions in its own lock, for each
// stored object and again for the object that it replaces. Both must give the same sets.
func (i index) coarse(indexers toolscache.Indexers) toolscache.Indexers {
	coarse := toolscache.Indexers{}
	for name, function := range indexers {
		i.functions[name] = function
		coarse[name] = func(object any) ([]string, error) {
			values, err := i.values(name, object)
			sets := make([]string, 0, len(values))
			for _, value := range values {
				if set := hashedSet(value); !slices.Contains(sets, set) {
					sets = append(sets, set)
				}
			}
			return sets, err
		}
	}
	return coarse
}

// values returns the values that an index function computes for a cached object.
func (i index) values(name string, object any) ([]string, error) {
	if name != toolscache.NamespaceIndex {
		object = decode(object)
	}
	return i.functions[name](object)
}

func (i index) GetIndexers() toolscache.Indexers { return i.functions }

func (i index) ByIndex(name, value string) ([]any, error) {
	objects, err := i.kept(name, value)
	return decodeAll(objects), err
}

func (i index) Index(name string, like any) ([]any, error) {
	objects, err := i.Indexer.Index(name, like)
	if err != nil {
		return nil, err
	}
	values, err := i.values(name, like)
	if err != nil {
		return nil, err
	}
	objects, err = i.having(name, objects, values...)
	return decodeAll(objects), err
}

// kept are the objects with a value, still encoded.
func (i index) kept(name, value string) ([]any, error) {
	objects, err := i.Indexer.ByIndex(name, hashedSet(value))
	if err != nil {
		return nil, err
	}
	return i.having(name, objects, value)
}

// having filters objects by any of some values.
func (i index) having(name string, objects []any, wanted ...string) ([]any, error) {
	var found []any
	for _, object := range objects {
		values, err := i.values(name, object)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(values, func(value string) bool { return slices.Contains(wanted, value) }) {
			found = append(found, object)
		}
	}
	return found, nil
}

// IndexKeys filters the objects of the coarse index by the value.
func (i index) IndexKeys(name, value string) ([]string, error) {
	objects, err := i.kept(name, value)
	if err != nil {
		return nil, err
	}
	keys := make([]string, len(objects))
	for n, object := range objects {
		if keys[n], err = toolscache.MetaNamespaceKeyFunc(object); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// ListIndexFuncValues goes through all objects, since the index below has coarse values.
func (i index) ListIndexFuncValues(name string) []string {
	var all []string
	for _, object := range i.Indexer.List() {
		values, err := i.values(name, object)
		if err == nil {
			all = append(all, values...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (i index) List() []any { return decodeAll(i.Indexer.List()) }

func (i index) Get(like any) (any, bool, error) {
	object, exists, err := i.Indexer.Get(like)
	return decode(object), exists, err
}

func (i index) GetByKey(key string) (any, bool, error) {
	object, exists, err := i.Indexer.GetByKey(key)
	return decode(object), exists, err
}
