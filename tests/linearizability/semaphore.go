package main

import (
	"slices"

	"github.com/anishathalye/porcupine"
)

// Semaphore of n permits.
//
// State: the moment of the last operation, and the permits that are held, one for each owner, each with the bounds of
// its end (hold.go).
//
// Step, for an operation that happens at t, the earliest moment that fits:
//
//   - acquire, granted, of an owner without a permit: fewer than n permits have an earliest end after t; else t is put
//     off to the earliest end that leaves n - 1.
//   - acquire, granted, of an owner with a permit: its lease is extended. After a restart its token may be another one.
//   - No two owners are granted one token. (It names the grant, and does not fence: it may be below an earlier one.)
//   - renew and release: as in mutex.go.
//
// Leases, expected losses and ambiguity: as in mutex.go.
//
// Not seen: what mutex.go does not see; that of several permits which may have ended more have to have ended than have
// (each is judged alone, so that the search need not try which ones did).
type semaphoreState struct {
	now int64
	// Sorted by owner; never changed in place.
	permits []hold
}

func semaphoreModel() porcupine.Model { return modelOf(semaphoreState{}, semaphoreState.equals) }

func (s semaphoreState) hash() uint64 { return hashOfAll(s.permits, s.now) }

func (s semaphoreState) equals(other semaphoreState) bool {
	return s.now == other.now && slices.Equal(s.permits, other.permits)
}

func (s semaphoreState) moment() int64 { return s.now }

func (s semaphoreState) step(o *op) (semaphoreState, bool) {
	t := max(s.now, o.Invoke)
	var own, next hold
	var others []hold
	for _, h := range s.permits {
		if h.owner == o.Owner {
			own = h
		} else {
			others = append(others, h)
		}
	}
	isAlive := own.mayLive(o, t)
	switch {
	case o.Operation == "acquire" && o.isShared:
		return s, false
	case o.Operation == "acquire" && isAlive:
		next = own.reentered(o, t)
	case o.Result == "nil" || o.Operation == "renew" && o.Value == 0:
		if own.isHeld {
			t = max(t, own.gone())
		}
	case isAlive && o.Operation == "renew":
		next = own.leased(o, t)
	case isAlive:
	case o.Operation == "acquire" || !own.isHeld && o.mayHoldUnknown():
		t = oneLeft(others, t, o)
		if o.Operation != "release" {
			next = granted(o, t)
		}
	default:
		return s, false
	}
	if t > o.Complete {
		return s, false
	}
	return semaphoreState{t, withHold(others, next, t)}, true
}

// oneLeft is the earliest moment since t at which a permit may be left.
func oneLeft(others []hold, t int64, o *op) int64 {
	var ends []int64
	for _, h := range others {
		if end := h.earliest(); end > t {
			ends = append(ends, end)
		}
	}
	slices.Sort(ends)
	if excess := len(ends) - o.Permits; excess >= 0 && o.Permits > 0 {
		return ends[excess]
	}
	return t
}
