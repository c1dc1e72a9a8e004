package main

import (
	"math/rand"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// Operations without a known result are no entries of the search (mutex.go). Here they are, as the tool wants it: they
// complete at the end of the history, and each may have had its effect or none. What that admits, the mutex admits.
func TestUnknownOperationsAreAdmittedAsTheToolDoes(t *testing.T) {
	admitted := 0
	for seed := range int64(20_000) {
		records := randomHistory(rand.New(rand.NewSource(seed)))
		if !isLiteral(newHistory(records)) {
			continue
		}
		admitted++
		locks, _, _, _ := newHistory(records).split()
		for _, part := range locks {
			if search(mutexModel(), part, time.Minute) != porcupine.Ok {
				for _, r := range records {
					from, to := r.Invoke/ms, r.Complete/ms
					t.Logf("%d..%d: %s of %d: %s %d (%d)", from, to, r.Operation, r.Owner, r.Result, r.Value, r.LeaseMs)
				}
				t.Fatalf("seed %d: refused", seed)
			}
		}
	}
	if admitted < 1000 || admitted > 19_000 {
		t.Errorf("%d of the histories are linearizable: the comparison says little", admitted)
	}
}

// Up to seven operations of two owners, every third of them without a known result.
func randomHistory(random *rand.Rand) []record {
	var records []record
	clock := [3]int64{}
	for range 3 + random.Intn(5) {
		owner := uint64(1 + random.Intn(2))
		from := clock[owner] + int64(random.Intn(30))
		to := from + 1 + int64(random.Intn(20))
		clock[owner] = to + 1
		var r record
		switch random.Intn(4) {
		case 0, 1:
			r = takes(owner, from, to, int64(10+random.Intn(60)), int64(owner))
		case 2:
			r = does("renew", owner, from, to, int64(random.Intn(2)))
		default:
			r = does("release", owner, from, to, 1)
			if random.Intn(3) == 0 {
				r.Result = "nil"
			}
		}
		if random.Intn(3) == 0 {
			r.Result = "unknown"
		}
		records = append(records, r)
	}
	return records
}

func isLiteral(h *history) bool {
	var operations []porcupine.Operation
	for _, o := range h.ops[0] {
		o.unsureSince, o.silentSince, o.doubt, o.firstGrant = never, never, never, never
		if o.Result == "unknown" {
			o.Complete = 1_000_000 * ms
		}
		operations = append(operations, porcupine.Operation{Input: o, Call: o.Invoke, Return: o.Complete})
	}
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{mutexState{}} },
		Step: func(state, input, _ any) []any {
			s, o := state.(mutexState), *input.(*op)
			if o.Result != "unknown" {
				if next, ok := s.step(&o); ok {
					return []any{next}
				}
				return nil
			}
			states := []any{s}
			o.Result, o.Value = "number", 1
			if o.Operation == "acquire" {
				o.Result, o.Token = "granted", int64(o.Owner)
			}
			if next, ok := s.step(&o); ok {
				states = append(states, next)
			}
			return states
		},
	}
	return porcupine.CheckOperations(model.ToModel(), operations)
}
