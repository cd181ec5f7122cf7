package admission

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var noon = time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)

// named is the name of a Challenge in the namespace of all instances here.
func named(challenge string) types.NamespacedName {
	return types.NamespacedName{Namespace: "event", Name: challenge}
}

// instance is the one that was created so many seconds after noon, by an owner of its own.
func instance(second int, challenge string, change ...func(*Instance)) Instance {
	name := fmt.Sprintf("%04d", second)
	i := Instance{
		UID: types.UID(name), Key: named(name), Owner: "owner of " + name, Challenge: named(challenge),
		Created: noon.Add(time.Duration(second) * time.Second),
	}
	for _, c := range change {
		c(&i)
	}
	return i
}

func started(i *Instance) { i.Started = true }
func ending(i *Instance)  { i.Ending = true }
func blocked(i *Instance) { i.Blocked = true }
func ofCheck(i *Instance) { i.Check = true }
func trusted(i *Instance) { i.Trusted = true }

func owner(name string) func(*Instance) { return func(i *Instance) { i.Owner = name } }
func from(name string) func(*Instance)  { return func(i *Instance) { i.Source = name } }
func in(namespace string) func(*Instance) {
	return func(i *Instance) { i.Key.Namespace = namespace }
}

// rules are some limits, and Challenges by their names. Others have no limit and cost 1.
func rules(limits Limits, challenges map[string]Challenge) Rules {
	return Rules{Limits: limits, Challenge: func(key types.NamespacedName) Challenge {
		if c, ok := challenges[key.Name]; ok {
			return c
		}
		return Challenge{Cost: 1}
	}}
}

// reasons are the decisions by the name of the instance, as texts: that it waits for another one of its
// owner with the name of that one.
func reasons(decisions []Decision) map[string]string {
	all := map[string]string{}
	for _, d := range decisions {
		text := string(d.Reason)
		switch d.Reason {
		case Start:
			text = "starts"
		case OwnerBusy:
			text = d.Ahead.Name
		}
		all[d.Key.Name] = text
	}
	return all
}

func TestDecisions(t *testing.T) {
	one := func(limits Limits) Rules { return rules(limits, nil) }
	for name, tc := range map[string]struct {
		rules Rules
		all   []Instance
		want  []string // of those that wait, in the order of the decisions
	}{
		"nothing is decided about what is started, ends, or cannot be built": {
			one(Limits{}), []Instance{instance(1, "web", started), instance(2, "web", ending), instance(3, "web", blocked)}, nil,
		},
		"without a limit none waits": {
			one(Limits{}),
			[]Instance{instance(2, "web"), instance(1, "pwn"), instance(3, "web", from("a"))},
			[]string{"0001 starts", "0002 starts", "0003 starts"},
		},
		"the older one starts first, in any order of the list": {
			one(Limits{All: 2}),
			[]Instance{instance(4, "web"), instance(3, "pwn"), instance(2, "web"), instance(1, "web")},
			[]string{"0001 starts", "0002 starts", "0003 Full", "0004 Full"},
		},
		"of two of the same second the UID decides, and not the name": {
			one(Limits{All: 1}),
			[]Instance{
				instance(2, "web", func(i *Instance) { i.Created = noon; i.Key.Name = "a" }),
				instance(1, "web", func(i *Instance) { i.Created = noon; i.Key.Name = "z" }),
			},
			[]string{"z starts", "a Full"},
		},
		"one that cannot be built holds up no other": {
			one(Limits{All: 1}),
			[]Instance{instance(1, "web", blocked), instance(2, "web")},
			[]string{"0002 starts"},
		},
		"one that ends before its start holds up no other": {
			one(Limits{All: 1}),
			[]Instance{instance(1, "web", ending), instance(2, "web")},
			[]string{"0002 starts"},
		},
		"one that is being deleted counts until it is gone": {
			one(Limits{All: 1}),
			[]Instance{instance(1, "web", started, ending), instance(2, "web")},
			[]string{"0002 Full"},
		},
		"more are started than a lowered limit allows": {
			one(Limits{All: 1}),
			[]Instance{instance(1, "web", started), instance(2, "web", started), instance(3, "web")},
			[]string{"0003 Full"},
		},
		"a Challenge that is full holds up no other": {
			rules(Limits{All: 3}, map[string]Challenge{"web": {MaxInstances: 1}}),
			[]Instance{instance(1, "web"), instance(2, "web"), instance(3, "pwn"), instance(4, "pwn"), instance(5, "pwn")},
			[]string{"0001 starts", "0002 ChallengeFull", "0003 starts", "0004 starts", "0005 Full"},
		},
		"a slot is not given to a younger one that an older one can use": {
			rules(Limits{All: 3}, map[string]Challenge{"web": {MaxInstances: 2}}),
			[]Instance{instance(1, "web", started), instance(2, "pwn", started), instance(3, "web"), instance(4, "pwn")},
			[]string{"0003 starts", "0004 Full"},
		},
		"what has started without a limit counts for one that comes later": {
			rules(Limits{}, map[string]Challenge{"web": {MaxInstances: 2}}),
			[]Instance{instance(1, "web", started), instance(2, "web", started), instance(3, "web"), instance(4, "pwn")},
			[]string{"0003 ChallengeFull", "0004 starts"},
		},
		"a namespace that is full holds up no other": {
			one(Limits{Namespace: 1}),
			[]Instance{instance(1, "web", started, in("a")), instance(2, "web", in("a")), instance(3, "web", in("b")), instance(4, "web", in("b"))},
			[]string{"0002 NamespaceFull", "0003 starts", "0004 NamespaceFull"},
		},
		"all limits: the first that is reached is the reason": {
			rules(Limits{All: 1, Namespace: 1, SourceInstances: 1, SourceBudget: 1}, map[string]Challenge{"web": {MaxInstances: 1, Cost: 1}, "dear": {MaxInstances: 1, Cost: 2}}),
			[]Instance{
				instance(1, "web", started, from("a")),
				instance(2, "web", from("a"), owner("owner of 0001")), instance(3, "web", from("a")), instance(4, "dear", from("b")),
				instance(5, "web", from("b")), instance(6, "pwn", from("b")), instance(7, "pwn", from("b"), in("b")),
			},
			[]string{"0002 0001", "0003 SourceInstances", "0004 AboveBudget", "0005 ChallengeFull", "0006 NamespaceFull", "0007 Full"},
		},

		"of one owner the oldest starts, and each other names the one before it": {
			one(Limits{}),
			[]Instance{instance(3, "web", owner("o")), instance(1, "web", owner("o")), instance(2, "pwn", owner("o"), in("b")), instance(4, "web")},
			[]string{"0001 starts", "0002 0001", "0003 0002", "0004 starts"},
		},
		"what is started keeps its owner, also from an older one": {
			one(Limits{}),
			[]Instance{instance(1, "web", owner("o")), instance(2, "web", owner("o"), started)},
			[]string{"0001 0002"},
		},
		"what is started keeps its owner until it is gone": {
			one(Limits{}),
			[]Instance{instance(1, "web", owner("o"), started, ending), instance(2, "web", owner("o")), instance(3, "web", owner("o"))},
			[]string{"0002 0001", "0003 0002"},
		},
		"an owner ID belongs to the platform, also if others ask first": {
			one(Limits{}),
			[]Instance{instance(1, "web", owner("o"), in("stranger")), instance(2, "web", owner("o"), trusted), instance(3, "web", owner("o"), in("stranger"))},
			[]string{"0001 0002", "0002 starts", "0003 0001"},
		},
		"the platform waits for the end of what a stranger has started": {
			one(Limits{}),
			[]Instance{instance(1, "web", owner("o"), in("stranger"), started, ending), instance(2, "web", owner("o"), trusted)},
			[]string{"0002 0001"},
		},
		"one that cannot be built or ends holds up none of its owner": {
			one(Limits{}),
			[]Instance{instance(1, "web", owner("o"), blocked), instance(2, "web", owner("o"), ending), instance(3, "web", owner("o"))},
			[]string{"0003 starts"},
		},
		"the first of an owner holds up the others while it waits itself": {
			rules(Limits{}, map[string]Challenge{"web": {MaxInstances: 1}}),
			[]Instance{instance(1, "web", started), instance(2, "web", owner("o")), instance(3, "pwn", owner("o"))},
			[]string{"0002 ChallengeFull", "0003 0002"},
		},
		"those that wait for their owner take no slots": {
			one(Limits{All: 2}),
			[]Instance{instance(1, "web", owner("o"), started), instance(2, "web", owner("o")), instance(3, "web")},
			[]string{"0002 0001", "0003 starts"},
		},

		"as many of a source as may be": {
			one(Limits{SourceInstances: 2}),
			[]Instance{
				instance(1, "web", from("a"), started), instance(2, "web", from("a")), instance(3, "web", from("a")),
				instance(4, "web", from("b")), instance(5, "web"), instance(6, "web"), instance(7, "web"),
			},
			[]string{"0002 starts", "0003 SourceInstances", "0004 starts", "0005 starts", "0006 starts", "0007 starts"},
		},
		"one name in two namespaces is two sources": {
			one(Limits{SourceInstances: 1, SourceBudget: 1}),
			[]Instance{instance(1, "web", from("a"), in("x"), started), instance(2, "web", from("a"), in("y"))},
			[]string{"0002 starts"},
		},
		"a budget is spent by what is started": {
			rules(Limits{SourceBudget: 5}, map[string]Challenge{"dear": {Cost: 3}, "free": {}}),
			[]Instance{
				instance(1, "dear", from("a"), started), instance(2, "web", from("a")), instance(3, "web", from("a")),
				instance(4, "web", from("a")), instance(5, "free", from("a")), instance(6, "dear", from("b")), instance(7, "dear"), instance(8, "dear"),
			},
			[]string{"0002 starts", "0003 starts", "0004 SourceBudget", "0005 starts", "0006 starts", "0007 starts", "0008 starts"},
		},
		"what is left of a budget is not given to a younger one": {
			rules(Limits{SourceBudget: 3}, map[string]Challenge{"dear": {Cost: 2}, "free": {}}),
			[]Instance{instance(1, "dear", from("a"), started), instance(2, "dear", from("a")), instance(3, "web", from("a")), instance(4, "free", from("a"))},
			[]string{"0002 SourceBudget", "0003 SourceBudget", "0004 starts"},
		},
		"one that costs more than the budget holds up no other": {
			rules(Limits{SourceBudget: 3}, map[string]Challenge{"dear": {Cost: 4}}),
			[]Instance{instance(1, "dear", from("a")), instance(2, "web", from("a"))},
			[]string{"0001 AboveBudget", "0002 starts"},
		},
		"a Challenge that is gone costs nothing": {
			rules(Limits{SourceBudget: 1}, map[string]Challenge{"gone": {}}),
			[]Instance{instance(1, "gone", from("a"), started), instance(2, "web", from("a"))},
			[]string{"0002 starts"},
		},

		"a check waits while a player does, and counts once it is started": {
			one(Limits{All: 2}),
			[]Instance{instance(1, "web", ofCheck), instance(2, "web"), instance(3, "web", started), instance(4, "web")},
			[]string{"0002 starts", "0004 Full", "0001 Full"},
		},
		"a check waits though the player cannot use the slot": {
			rules(Limits{All: 2}, map[string]Challenge{"web": {MaxInstances: 1}}),
			[]Instance{instance(1, "pwn", ofCheck), instance(2, "web", started), instance(3, "web")},
			[]string{"0003 ChallengeFull", "0001 PlayersFirst"},
		},
		"a check starts when no player waits": {
			one(Limits{All: 2}),
			[]Instance{instance(1, "pwn", ofCheck), instance(2, "web", started)},
			[]string{"0001 starts"},
		},
		"a check does not wait for those who wait for their own instances": {
			one(Limits{SourceInstances: 1}),
			[]Instance{
				instance(1, "web", started, from("a")), instance(2, "web", from("a")),
				instance(3, "web", started, owner("o")), instance(4, "web", owner("o")), instance(5, "web", ofCheck),
			},
			[]string{"0002 SourceInstances", "0004 0003", "0005 starts"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(tc.all)
			decisions := Decide(tc.all, tc.rules)
			var got []string
			texts := reasons(decisions)
			for _, d := range decisions {
				got = append(got, d.Key.Name+" "+texts[d.Key.Name])
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got  %v\nwant %v", got, tc.want)
			}
			if !slices.Equal(before, tc.all) {
				t.Error("the instances were changed")
			}
		})
	}
}

func TestInstancesOfStrangersAreDisplaced(t *testing.T) {
	stranger := in("stranger")
	for name, tc := range map[string]struct {
		all  []Instance
		want []string
	}{
		"the platform's waits":           {[]Instance{instance(1, "web", owner("o"), stranger, started), instance(2, "web", owner("o"), trusted)}, []string{"0001"}},
		"it ends already":                {[]Instance{instance(1, "web", owner("o"), stranger, started, ending), instance(2, "web", owner("o"), trusted)}, nil},
		"the platform's cannot be built": {[]Instance{instance(1, "web", owner("o"), stranger, started), instance(2, "web", owner("o"), trusted, blocked)}, nil},
		"the platform's ends":            {[]Instance{instance(1, "web", owner("o"), stranger, started), instance(2, "web", owner("o"), trusted, ending)}, nil},
		"another owner":                  {[]Instance{instance(1, "web", stranger, started), instance(2, "web", owner("o"), trusted)}, nil},
		"two of the platform":            {[]Instance{instance(1, "web", owner("o"), trusted, started), instance(2, "web", owner("o"), trusted)}, nil},
		"two of strangers":               {[]Instance{instance(1, "web", owner("o"), stranger, started), instance(2, "web", owner("o"), stranger)}, nil},
	} {
		var got []string
		for _, i := range Displaced(tc.all) {
			got = append(got, i.Key.Name)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v end, want %v", name, got, tc.want)
		}
	}
}

// A replica may list the instances of an owner in any order: exactly one of them starts, and it is the same one.
func TestOneInstanceOfAnOwnerStarts(t *testing.T) {
	o := owner("o")
	all := []Instance{
		instance(0, "web", o, blocked), instance(2, "web", o, func(i *Instance) { i.UID = "c"; i.Created = noon }),
		instance(1, "web", o, func(i *Instance) { i.UID = "b"; i.Created = noon }), instance(3, "web", o),
		instance(4, "web", o, ending, func(i *Instance) { i.Created = noon.Add(-time.Hour) }), instance(5, "web", o),
	}
	for rotation := range all {
		order := append(slices.Clone(all[rotation:]), all[:rotation]...)
		for _, reversed := range []bool{false, true} {
			if reversed {
				slices.Reverse(order)
			}
			want := map[string]string{"0001": "starts", "0002": "0001", "0003": "0002", "0005": "0003"}
			if got := reasons(Decide(order, rules(Limits{}, nil))); !maps.Equal(got, want) {
				t.Errorf("rotation %d, reversed %v: %v, want %v", rotation, reversed, got, want)
			}
		}
	}
}

// What an instance says is written into its status: of hundreds that wait for few slots, only
// those may have something new to say that are about to start.
func TestAnEndChangesTheReasonsOfFew(t *testing.T) {
	const crowd, slots = 400, 40
	for name, r := range map[string]Rules{
		"all":                   rules(Limits{All: slots}, nil),
		"all and the Challenge": rules(Limits{All: slots}, map[string]Challenge{"web": {MaxInstances: slots / 4}}),
		"all and the namespace": rules(Limits{All: slots, Namespace: slots}, nil),
		"owners":                rules(Limits{}, nil),
	} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			var all []Instance
			for n := range crowd {
				i := instance(n, []string{"web", "pwn"}[random.IntN(2)])
				if name == "owners" {
					i.Owner = fmt.Sprint(n % slots)
				}
				all = append(all, i)
			}
			said := map[string]string{}
			changes := 0
			for len(all) > 0 {
				for _, d := range Decide(all, r) {
					at := slices.IndexFunc(all, func(i Instance) bool { return i.UID == d.UID })
					all[at].Started = d.Reason == Start
				}
				for key, text := range reasons(Decide(all, r)) {
					if said[key] != text {
						said[key] = text
						changes++
					}
				}
				at := random.IntN(len(all))
				for !all[at].Started {
					at = random.IntN(len(all))
				}
				all = slices.Delete(all, at, at+1)
			}
			if changes > 2*crowd {
				t.Errorf("%d changes of what %d instances say", changes, crowd)
			}
		})
	}
}

func BenchmarkDecide(b *testing.B) {
	var all []Instance
	for n := range 10000 {
		i := instance(n, fmt.Sprint(n%50))
		i.Started = n >= 100
		all = append(all, i)
	}
	r := rules(Limits{All: 9900}, nil)
	for b.Loop() {
		Decide(all, r)
	}
}
