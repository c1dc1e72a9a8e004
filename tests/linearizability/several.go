package main

import (
	"slices"
	"sort"

	"github.com/anishathalye/porcupine"
)

// Several keys at once.
//
// State: the moment of the last operation, and for every key of exclusive locks the hold and the highest token, as in
// mutex.go and fenced.go.
//
// Step, for an operation that happens at t, the earliest moment that fits:
//
//   - an operation on one key: as in fenced.go.
//   - acquire of several keys, granted: the step of fenced.go at each of its keys, all of them at one moment. So the
//     request has all of its keys or none of them at every moment. A request of which only a part is granted is wrong.
//   - reading: the holders of all keys at one moment. A hold that the reading does not show has ended: t is put off to
//     its earliest end. An owner that holds without a reply may be shown if it may hold unknown (mutex.go).
//
// Partition: none. Operations on several keys connect them, so these keys of a history are searched together. A search
// that reaches its limit is repeated for each owner of a request for several keys alone, as if there were no others:
// what it says of that owner is still all of its keys or none.
//
// Leases, expected losses and ambiguity: as in mutex.go. A renewal or release of several keys may have an effect on
// some of them: it is one operation for each key. If the server replies a number between none and all, the result is
// unknown at every key.
//
// Not seen: what mutex.go does not see; a part of a request that is refused or whose result is unknown, at keys that no
// reading shows.
type severalState struct {
	now int64
	// By the places of the keys in the history; never changed in place.
	holds   []hold
	highest []int64
	// The readings that are done: the first ones, since one process reads.
	read int
}

// A joint operation: of one request for several keys, of one key, or a reading of all.
type joint struct {
	ops     []*op
	reading *record
	// The owners that may be shown at a key without being in the state.
	unknown map[uint64]bool
	keys    []int
	// All readings of the history.
	readings []*joint
	// The owner that the reading shows at each place, if any, and the highest token that it was granted there.
	shown  []uint64
	tokens []int64
	// A part of the request was granted and a part was not.
	isPartial bool
}

func severalProblem(h *history) problem {
	isOther := func(o *op) bool { return o.Kind != "exclusive" }
	keys := make([]int, 0, len(h.ops))
	for key, ops := range h.ops {
		if !slices.ContainsFunc(ops, isOther) {
			keys = append(keys, key)
		}
	}
	sort.Ints(keys)
	initial := severalState{holds: make([]hold, len(keys)), highest: make([]int64, len(keys))}
	return problem{modelOf(initial, severalState.equals), jointOperations(h, keys)}
}

// byOwner is what the history says of each owner of a request for several keys, if there were no others.
func (h *history) byOwner() []*history {
	of, isOne := map[uint64][]record{}, map[uint64]bool{}
	var losses []record
	for _, r := range h.records {
		switch r.Record {
		case "operation":
			of[r.Owner] = append(of[r.Owner], r)
			isOne[r.Owner] = isOne[r.Owner] || r.Tie == "many"
		case "loss":
			losses = append(losses, r)
		}
	}
	var parts []*history
	for owner, ops := range of {
		if !isOne[owner] {
			continue
		}
		from, to := ops[0].Invoke, ops[0].Complete
		for _, r := range ops {
			from, to = min(from, r.Invoke), max(to, r.Complete)
		}
		records := slices.Concat(losses, ops)
		for _, r := range h.readings {
			its := *r
			its.Holders = nil
			for _, held := range r.Holders {
				if held[1] == owner {
					its.Holders = append(its.Holders, held)
				}
			}
			if its.Holders != nil || r.Complete >= from && r.Invoke <= to {
				records = append(records, its)
			}
		}
		parts = append(parts, newHistory(records))
	}
	return parts
}

func jointOperations(h *history, keys []int) []porcupine.Operation {
	type request struct {
		owner uint64
		sent  int64
	}
	var operations []porcupine.Operation
	requests, refused := map[request]*joint{}, map[request]bool{}
	unknown, known := map[uint64]bool{}, map[uint64]bool{}
	add := func(j *joint, from, to int64) {
		operations = append(operations, porcupine.Operation{Input: j, Call: from, Return: to})
	}
	for _, key := range keys {
		for _, o := range h.ops[key] {
			known[o.Owner] = true
			isPart := o.Operation == "acquire" && o.Tie == "many"
			if o.isMoot() {
				if isPart && o.Result != "unknown" {
					refused[request{o.Owner, o.Invoke}] = true
				}
				unknown[o.Owner] = unknown[o.Owner] || o.Result == "unknown" || !isPart
				continue
			}
			if j := requests[request{o.Owner, o.Invoke}]; isPart && j != nil {
				j.ops = append(j.ops, o)
				continue
			}
			j := &joint{ops: []*op{o}, keys: keys}
			if isPart {
				requests[request{o.Owner, o.Invoke}] = j
			}
			add(j, o.Invoke, o.Complete)
		}
	}
	for request, j := range requests {
		j.isPartial = refused[request]
	}
	readings := jointReadings(h, keys, unknown, known)
	for _, j := range readings {
		add(j, j.reading.Invoke, j.reading.Complete)
	}
	for _, operation := range operations {
		operation.Input.(*joint).readings = readings
	}
	return operations
}

// jointReadings is the readings by time. An owner without operations at any key is none of the history's.
func jointReadings(h *history, keys []int, unknown, known map[uint64]bool) []*joint {
	var readings []*joint
	for _, r := range h.readings {
		j := &joint{reading: r, unknown: map[uint64]bool{}, keys: keys}
		j.shown, j.tokens = make([]uint64, len(keys)), make([]int64, len(keys))
		for _, held := range r.Holders {
			place, isKnown := slices.BinarySearch(keys, int(held[0]))
			if !isKnown {
				continue
			}
			j.shown[place], j.unknown[held[1]] = held[1], unknown[held[1]] || !known[held[1]]
			for _, o := range h.ops[keys[place]] {
				if o.Owner == held[1] && o.Operation == "acquire" && o.Result == "granted" {
					j.tokens[place] = max(j.tokens[place], o.Token)
				}
				j.unknown[held[1]] = j.unknown[held[1]] || o.Owner == held[1] && o.mayHoldUnknown()
			}
		}
		readings = append(readings, j)
	}
	sort.SliceStable(readings, func(a, b int) bool { return readings[a].reading.Invoke < readings[b].reading.Invoke })
	return readings
}

func (s severalState) moment() int64 { return s.now }

func (s severalState) hash() uint64 { return hashOfAll(s.holds, s.now) }

func (s severalState) equals(other severalState) bool {
	return s.now == other.now && slices.Equal(s.holds, other.holds) && slices.Equal(s.highest, other.highest)
}

func (s severalState) step(j *joint) (severalState, bool) {
	if j.reading != nil {
		return s.look(j)
	}
	if j.isPartial {
		return s, false
	}
	t := s.now
	for _, o := range j.ops {
		t = max(t, o.Invoke)
	}
	for {
		next, highest, latest := slices.Clone(s.holds), slices.Clone(s.highest), t
		for _, o := range j.ops {
			place, _ := slices.BinarySearch(j.keys, o.key)
			h, need, ok := s.holds[place].at(o, t)
			if !ok || need > o.Complete || t > o.Complete {
				return s, false
			}
			next[place], latest = h, max(latest, need)
			if o.Operation == "acquire" {
				if !o.isReentry(s.holds[place], t) && !o.isNext(highest[place]) {
					return s, false
				}
				highest[place] = max(highest[place], o.Token)
			}
		}
		if latest <= t {
			after := severalState{t, next, highest, s.read}
			return after, after.mayRead(j)
		}
		t = latest
	}
}

func (s severalState) look(j *joint) (severalState, bool) {
	if j != j.readings[s.read] {
		return s, false
	}
	t, next := max(s.now, j.reading.Invoke), slices.Clone(s.holds)
	for place, h := range s.holds {
		shown := j.shown[place]
		if h.isHeld && h.owner == shown {
			continue
		}
		if h.isHeld {
			t = max(t, h.earliest())
			next[place] = hold{}
		}
		if shown != 0 && !j.unknown[shown] {
			return s, false
		}
	}
	after := severalState{t, next, s.highest, s.read + 1}
	return after, t <= j.reading.Complete && after.mayRead(j)
}

// mayRead tells whether the next reading is still possible: the search ends early where it is not.
func (s severalState) mayRead(j *joint) bool {
	if s.read == len(j.readings) {
		return true
	}
	next := j.readings[s.read]
	for place, h := range s.holds {
		shown := next.shown[place]
		if h.isHeld && h.owner == shown {
			continue
		}
		if h.isHeld && min(h.earliest(), h.release) > next.reading.Complete {
			return false
		}
		if shown != 0 && !next.unknown[shown] && next.tokens[place] <= s.highest[place] {
			return false
		}
	}
	return true
}
