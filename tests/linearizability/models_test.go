package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// Histories of a few operations, in milliseconds: for each model those that it must accept and those that it must not.
// A name that begins with a model is the only one that finds it.

func at(owner uint64, from, to int64) record {
	key := 0
	return record{Record: "operation", Key: &key, Kind: "exclusive", Owner: owner, Invoke: from * ms, Complete: to * ms}
}

func takes(owner uint64, from, to, lease, token int64) record {
	r := at(owner, from, to)
	r.Operation, r.Result, r.LeaseMs, r.Token = "acquire", "granted", lease, token
	return r
}

func does(operation string, owner uint64, from, to, value int64) record {
	r := at(owner, from, to)
	r.Operation, r.Result, r.Value, r.LeaseMs = operation, "number", value, 100
	return r
}

func gets(result string, r record) record {
	r.Result = result
	return r
}

func of(kind string, records ...record) []record {
	for i := range records {
		records[i].Kind, records[i].Permits = kind, 2
	}
	return records
}

func on(key int, tie string, r record) record {
	r.Key, r.Tie = &key, tie
	return r
}

func fault(from, to int64, change func(*record)) record {
	r := record{Record: "loss", From: from * ms, To: to * ms}
	change(&r)
	return r
}

func reads(at int64, holders ...[2]uint64) record {
	return record{Record: "reading", Invoke: at * ms, Complete: at*ms + 1, Holders: holders}
}

func loses(r *record)     { r.LosesHolds = true }
func restores(r *record)  { r.LosesHolds, r.RestoresHolds, r.LengthensLeases = true, true, true }
func lengthens(r *record) { r.LengthensLeases = true }

const release, renew = "release", "renew"

var all = []string{"mutex", "reentrant", "fenced"}

var cases = map[string]struct {
	illegal []string
	records []record
}{
	"a hand-off": {nil, []record{
		takes(1, 0, 1, 100, 1), does(release, 1, 50, 51, 1), takes(2, 20, 52, 100, 2)}},
	"two holders":     {all, []record{takes(1, 0, 1, 100, 1), takes(2, 20, 50, 100, 2)}},
	"after the lease": {nil, []record{takes(1, 0, 1, 100, 1), takes(2, 20, 103, 100, 2)}},
	"a lease from a hand-off lasts from then": {all, []record{takes(1, 0, 1, 900, 1), takes(2, 10, 301, 100, 2),
		does(release, 1, 300, 302, 1), takes(3, 20, 350, 100, 3)}},
	"renewed after its end": {all, []record{takes(1, 0, 1, 10, 1), does(renew, 1, 30, 31, 1)}},
	"lengthened": {nil, []record{
		takes(1, 0, 1, 10, 1), does(renew, 1, 30, 31, 1), fault(5, 6, lengthens)}},
	"brought back by a clock that is set back": {nil, []record{
		takes(1, 0, 1, 10, 1), takes(1, 2, 3, 10, 1), fault(15, 16, lengthens), does(release, 1, 20, 21, 0),
		does(release, 1, 30, 31, 1)}},
	"lost before its end": {all, []record{takes(1, 0, 1, 100, 1), does(renew, 1, 30, 31, 0)}},
	"released before its end": {all, []record{
		takes(1, 0, 1, 100, 1), gets("nil", does(release, 1, 30, 31, 0))}},
	"an expected loss": {nil, []record{
		takes(1, 0, 1, 100, 1), takes(2, 20, 50, 100, 2), fault(30, 40, loses)}},
	"a loss that comes later": {all, []record{
		takes(1, 0, 1, 100, 1), takes(2, 20, 50, 100, 2), fault(51, 60, loses)}},
	"a release that is taken back": {nil, []record{
		takes(1, 0, 1, 100, 1), does(release, 1, 5, 6, 1), does(renew, 1, 30, 31, 1), fault(8, 9, restores)}},
	"a renewal without a hold": {all, []record{
		takes(1, 0, 1, 100, 1), does(release, 1, 5, 6, 1), does(renew, 1, 30, 31, 1)}},
	"an unknown release": {nil, []record{
		takes(1, 0, 1, 100, 1), gets("unknown", does(release, 1, 5, 6, 0)), takes(2, 20, 50, 100, 2)}},
	"an unknown release that follows": {all, []record{
		takes(1, 0, 1, 100, 1), gets("unknown", does(release, 1, 60, 61, 0)), takes(2, 20, 50, 100, 2)}},
	"an unknown acquire": {nil, []record{
		gets("unknown", takes(1, 0, 1, 100, 0)), does(release, 1, 5, 6, 1)}},
	"an unknown acquire beside a holder": {all, []record{
		takes(2, 0, 1, 100, 1), gets("unknown", takes(1, 5, 6, 100, 0)),
		does(release, 1, 8, 9, 1), does(release, 2, 20, 21, 1)}},
	"two holds, released in turn": {nil, []record{
		takes(1, 0, 1, 100, 1), takes(1, 2, 3, 100, 1), does(release, 1, 4, 5, 0), does(release, 1, 6, 7, 1)}},
	"one of one hold released": {[]string{"reentrant"}, []record{
		takes(1, 0, 1, 100, 1), does(release, 1, 4, 5, 0)}},
	"two holds, released by one": {[]string{"reentrant"}, []record{
		takes(1, 0, 1, 100, 1), takes(1, 2, 3, 100, 1), does(release, 1, 4, 5, 1)}},
	"a token that falls": {[]string{"fenced"}, []record{
		takes(1, 0, 1, 10, 2), takes(2, 20, 21, 10, 1)}},
	"a token that falls in a loss": {[]string{"fenced"}, []record{
		takes(1, 0, 1, 10, 2), takes(2, 20, 21, 10, 1), fault(5, 6, restores)}},
	"tokens of concurrent requests": {nil, []record{takes(1, 0, 60, 10, 2), takes(2, 20, 50, 10, 1)}},
	"readers together":              {nil, of("read", takes(1, 0, 1, 100, 1), takes(2, 10, 20, 100, 1))},
	"a phase's token after its end": {[]string{"read-write"},
		of("read", takes(1, 0, 1, 9, 1), takes(2, 20, 21, 100, 1))},
	"a phase that a reader without a reply may keep open": {nil,
		of("read", takes(1, 0, 1, 9, 1), gets("unknown", takes(3, 5, 6, 100, 0)), takes(2, 20, 21, 100, 1))},
	"a phase with a request for READ that comes after its end": {[]string{"read-write"},
		of("read", takes(1, 0, 1, 9, 1), takes(2, 20, 21, 100, 1), gets("unknown", takes(3, 25, 26, 100, 0)))},
	"a phase and a request for WRITE without a reply": {[]string{"read-write"}, append(
		of("read", takes(1, 0, 1, 9, 1), takes(2, 20, 21, 100, 1)), of("write", gets("unknown", takes(3, 5, 6, 100, 0)))...)},
	"a phase that is brought back": {nil, of("read", takes(1, 0, 1, 9, 1), does(release, 1, 2, 3, 1),
		takes(2, 20, 21, 100, 1), fault(5, 6, restores))},
	"a phase whose clock is set back": {nil, of("read", takes(1, 0, 1, 9, 1), takes(2, 20, 21, 100, 1),
		fault(15, 16, lengthens))},
	"a writer among readers": {[]string{"read-write"},
		append(of("read", takes(1, 0, 1, 100, 1)), of("write", takes(2, 10, 20, 100, 2))...)},
	"a reader that becomes a writer": {nil,
		append(of("read", takes(1, 0, 1, 100, 1)), of("write", takes(1, 10, 20, 100, 2))...)},
	"a writer's token again": {[]string{"read-write"},
		of("write", takes(1, 0, 1, 9, 1), takes(2, 20, 21, 100, 1))},
	"two permits": {nil,
		of("permit", takes(1, 0, 1, 100, 1), takes(2, 2, 3, 100, 2), does(release, 1, 4, 5, 1), takes(3, 6, 7, 100, 3))},
	"a permit too many": {[]string{"semaphore"},
		of("permit", takes(1, 0, 1, 100, 1), takes(2, 2, 3, 100, 2), takes(3, 6, 7, 100, 3))},
	"several keys": {nil, []record{on(0, "many", takes(1, 0, 50, 100, 1)), on(1, "many", takes(1, 0, 50, 100, 2)),
		reads(20), reads(30, [2]uint64{0, 1}, [2]uint64{1, 1})}},
	"one of several keys": {[]string{"several"}, []record{on(0, "many", takes(1, 0, 50, 100, 1)),
		on(1, "many", takes(1, 0, 50, 100, 2)), reads(20, [2]uint64{1, 1})}},
	"several keys that were never free together": {[]string{"several"}, []record{
		on(0, "many", takes(1, 20, 60, 5, 2)), on(1, "many", takes(1, 20, 60, 5, 1)), on(0, "", takes(2, 0, 1, 900, 1)),
		on(0, "", does(release, 2, 40, 41, 1)), on(1, "", takes(3, 35, 36, 900, 2))}},
}

func TestModelsAcceptAndRefuse(t *testing.T) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			v := judge(newHistory(c.records), time.Minute)
			if len(v.undecided) > 0 {
				t.Fatalf("not decided: %v", v.undecided)
			}
			if c.illegal == nil && len(v.illegal) > 0 || !slices.Equal(c.illegal, intersection(v.illegal, c.illegal)) {
				t.Errorf("not linearizable: %v, want %v", v.illegal, c.illegal)
			}
			if len(c.illegal) == 1 && len(v.illegal) != 1 {
				t.Errorf("found by %v, not by %v alone", v.illegal, c.illegal)
			}
		})
	}
}

func TestEachOwnerOfSeveralKeysIsJudgedAloneToo(t *testing.T) {
	for name, isLegal := range map[string]bool{"several keys": true, "one of several keys": false} {
		for _, part := range newHistory(cases[name].records).byOwner() {
			p := severalProblem(part)
			if result := search(p.model, p.part, time.Minute); (result == porcupine.Ok) != isLegal {
				t.Errorf("%s: %v", name, result)
			}
		}
	}
}

func TestARefusalIsExplained(t *testing.T) {
	h := newHistory([]record{takes(1, 0, 1, 100, 1), takes(2, 20, 50, 100, 2), fault(51, 60, loses)})
	v := judge(h, time.Minute)
	if len(v.refusals) != len(all) {
		t.Fatalf("%d refusals", len(v.refusals))
	}
	var text strings.Builder
	v.refusals[0].print(h, &text)
	want := `: mutex leaves 1 of 2 operations out, first this (key, times in us):
  0: 20000..50000 process 0 owner 2 acquire exclusive lease 100: granted 2
before it:
  0: 0..1000 process 0 owner 1 acquire exclusive lease 100: granted 1
`
	if text.String() != want {
		t.Errorf("%s, want %s", text.String(), want)
	}
}

func intersection(names, with []string) []string {
	var both []string
	for _, name := range with {
		if slices.Contains(names, name) {
			both = append(both, name)
		}
	}
	return both
}

// Operations on a latch: counts and results.

func sets(condition string, from, to, count int64) record {
	r := does("set", 1, from, to, count)
	r.Count, r.Condition = count, condition
	return r
}

func counts(from, to, left int64) record {
	r := does("down", 2, from, to, left)
	r.Count = 1
	return r
}

func waits(from, to, open int64) record { return does("wait", 3, from, to, open) }

func deletes(from, to, existed int64) record { return does("delete", 1, from, to, existed) }

func TestLatch(t *testing.T) {
	closes := func(count int64) record { return sets("", 0, 1, count) }
	unknown := gets("unknown", counts(4, 5, 0))
	takes := func(r *record) { r.Fault = "Taken" }
	moves := func(r *record) { r.Fault = "Handover" }
	restores := func(r *record) { r.Fault, r.RestoresHolds = "Failover", true }
	for name, c := range map[string]struct {
		isLegal bool
		records []record
	}{
		"counted down":         {true, []record{closes(1), counts(2, 3, 0), waits(1, 4, 1)}},
		"open too early":       {false, []record{closes(2), counts(2, 3, 1), waits(2, 4, 1)}},
		"counted twice":        {false, []record{closes(2), counts(2, 3, 0)}},
		"not counted":          {false, []record{closes(3), counts(2, 3, 2), counts(4, 5, 2)}},
		"closed without a set": {false, []record{closes(1), counts(2, 3, 0), waits(4, 5, 0)}},
		"began before it was open": {true, []record{
			closes(1), counts(2, 3, 0), waits(2, 5, 0)}},
		"perhaps counted down": {true, []record{closes(1), unknown, waits(6, 7, 1)}},
		"perhaps counted later": {true, []record{
			closes(1), unknown, waits(6, 7, 0), waits(8, 9, 1)}},
		"perhaps not counted":        {true, []record{closes(1), unknown, counts(6, 7, 0)}},
		"set again":                  {true, []record{closes(1), sets("xx", 2, 3, 2), counts(4, 5, 1)}},
		"set again though open":      {false, []record{sets("xx", 2, 3, 2)}},
		"set anew though closed":     {false, []record{closes(1), sets("nx", 2, 3, 2)}},
		"refused, as it is closed":   {true, []record{closes(1), gets("nil", sets("nx", 2, 3, 2)), counts(4, 5, 0)}},
		"refused though it is open":  {false, []record{gets("nil", sets("nx", 2, 3, 2))}},
		"refused though it is there": {false, []record{closes(1), gets("nil", sets("xx", 2, 3, 2))}},
		"deleted":                    {true, []record{closes(3), deletes(2, 3, 1), waits(2, 4, 1), deletes(5, 6, 0)}},
		"deleted twice":              {false, []record{closes(3), deletes(2, 3, 1), deletes(5, 6, 1)}},
		"flushed":                    {true, []record{closes(3), fault(2, 3, takes), waits(2, 4, 1)}},
		"flushed later":              {false, []record{closes(3), fault(5, 6, takes), waits(2, 4, 1)}},
		"restored": {true, []record{
			closes(3), counts(2, 3, 2), fault(4, 5, restores), counts(6, 7, 2), counts(8, 9, 1)}},
		"restored above what was set": {false, []record{
			closes(3), counts(2, 3, 2), fault(4, 5, restores), counts(6, 7, 3)}},
		"a replica's reply": {true, []record{closes(1), counts(2, 3, 0), fault(4, 6, moves), waits(5, 8, 0)}},
		"closed by an earlier state before its first request": {true, []record{
			waits(1, 4, 1), fault(3, 6, restores), gets("nil", sets("nx", 8, 9, 2)), counts(10, 11, 1)}},
		"after the handover":   {false, []record{closes(1), counts(2, 3, 0), fault(4, 6, moves), waits(7, 8, 0)}},
		"lost in the handover": {false, []record{closes(3), counts(2, 3, 2), fault(4, 6, moves), counts(7, 8, 2)}},
	} {
		t.Run(name, func(t *testing.T) {
			records := of("latch", c.records...)
			v := judge(newHistory(records), time.Minute)
			if isLegal := len(v.illegal) == 0; isLegal != c.isLegal || !slices.Equal(v.models, []string{"latch"}) {
				t.Errorf("linearizable: %v, by %v", isLegal, v.models)
			}
		})
	}
}
