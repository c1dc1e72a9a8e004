package main

import (
	"slices"

	"github.com/anishathalye/porcupine"
)

// Latch.
//
// State: the count. The latch is open at 0. A key of a history is one generation of a latch, which begins open.
//
// Step:
//
//   - set, n: the count is n. With nx only if it was 0, with xx only if it was not; else nil.
//   - delete: the count is 0; 1 if it was not, else 0.
//   - down, by n: n less, never below 0; the value is what is left.
//   - wait: 1 if the count is 0, else 0. The place of a wait that ends with 0 is the moment at which it began: what
//     happens until its limit, or until it is unblocked, is not seen.
//
// Leases: none; a latch has neither owner nor lease.
//
// Expected losses: one of all keys is an operation of the time of the fault that happens or not: a deletion opens the
// latch; an earlier state that returns has any count up to the highest of the history: it may be that of another
// generation. A wait while a primary and a replica change places is left out: the replica may have replied, with an
// earlier count.
//
// Ambiguity: an unknown set, delete or down completes at the end of the history, and has happened at its place or not
// at all. The search tries both: this is the model for which nothing is precomputed.
//
// Not seen: lost wake-ups: a wait that is never answered, late, or with 0 although the latch is open by then.
func latchModel() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{int64(0)} },
		Step: func(state, input, _ any) []any {
			count, o := state.(int64), input.(*op)
			next, result := o.latch(count)
			switch {
			case o.Operation == "loss" || o.Result == "unknown":
				if !slices.Contains(next, any(count)) {
					next = append(next, count)
				}
				return next
			case result == o.Result && (result == "nil" || o.Value == valueOf(o, next, count)):
				return next
			default:
				return nil
			}
		},
	}
	return model.ToModel()
}

// latch is what the operation makes of a count, and its result.
func (o *op) latch(count int64) ([]any, string) {
	switch o.Operation {
	case "set":
		if o.Condition == "nx" && count > 0 || o.Condition == "xx" && count == 0 {
			return []any{count}, "nil"
		}
		return []any{o.Count}, "number"
	case "delete":
		return []any{int64(0)}, "number"
	case "down":
		return []any{max(count-o.Count, 0)}, "number"
	case "loss":
		var counts []any
		for left := int64(0); left <= o.Count; left++ {
			counts = append(counts, left)
		}
		return counts, ""
	default:
		return []any{count}, "number"
	}
}

// valueOf is the number that the operation replies, when it makes next of a count.
func valueOf(o *op, next []any, count int64) int64 {
	switch o.Operation {
	case "delete":
		return min(count, 1)
	case "wait":
		return 1 - min(count, 1)
	default:
		return next[0].(int64)
	}
}

// latches is the operations on one latch as the search takes them, with the losses of their time.
func latches(ops []*op, highest int64) []porcupine.Operation {
	var part []porcupine.Operation
	// The generation begins with the request that says that it is open. A replica may have replied to that one, too.
	first, last := int64(never), int64(0)
	for _, o := range ops {
		first, last = min(first, o.Invoke), max(last, o.Complete)
		isUnknown := o.Result == "unknown"
		isForeign := o.Operation == "wait" && (isUnknown || o.loss.moves.meets(o.Invoke, o.Complete))
		if o.Result == "error" || isForeign {
			continue
		}
		operation := porcupine.Operation{Input: o, Call: o.Invoke, Return: o.Complete}
		if isUnknown {
			operation.Return = never
		}
		part = append(part, operation)
	}
	if len(part) == 0 {
		return nil
	}
	lose := func(w windows, highest int64) {
		for _, each := range w {
			if each.to >= first && each.from <= last {
				loss := &op{record: record{Operation: "loss", Count: highest}}
				part = append(part, porcupine.Operation{Input: loss, Call: each.from, Return: each.to})
			}
		}
	}
	lose(ops[0].loss.takes, 0)
	lose(ops[0].loss.restores, highest)
	return part
}

// highestCount is the highest count that was set at any latch.
func (h *history) highestCount() int64 {
	highest := int64(0)
	for _, ops := range h.ops {
		for _, o := range ops {
			if o.Operation == "set" {
				highest = max(highest, o.Count)
			}
		}
	}
	return highest
}
