package main

import "github.com/anishathalye/porcupine"

// Fenced mutex: tokens.
//
// State: that of the mutex with a lease (mutex.go), and the highest token so far.
//
// Step: that of the mutex, and
//
//   - acquire, granted, of a new hold: its token is above every token so far, and no token of the history lies between
//     (a grant under that one could not follow). So the search hardly ever turns back.
//   - acquire, granted, of an owner that holds: the token of the hold.
//   - a request that names a token takes effect only under that token (this is in mutex.go).
//
// Leases, expected losses and ambiguity: as in mutex.go. No expected loss excuses a token that falls: neither a lost
// write nor a clock that was set back does.
//
// Not seen: what mutex.go does not see.
type fencedState struct {
	mutex   mutexState
	highest int64
}

func fencedModel() porcupine.Model { return modelOf(fencedState{}, nil) }

func (s fencedState) hash() uint64 { return hashOf(s.mutex.hold, s.mutex.now+s.highest) }

func (s fencedState) moment() int64 { return s.mutex.now }

func (s fencedState) step(o *op) (fencedState, bool) {
	before := s.mutex.hold
	mutex, ok := s.mutex.step(o)
	if !ok || o.Operation != "acquire" {
		return fencedState{mutex, s.highest}, ok
	}
	if !o.isReentry(before, mutex.now) && !o.isNext(s.highest) {
		return s, false
	}
	return fencedState{mutex, max(s.highest, o.Token)}, true
}

// isReentry tells whether this acquire, granted at t, extends that hold.
func (o *op) isReentry(before hold, t int64) bool {
	return before.owner == o.Owner && before.token == o.Token && before.mayLive(o, t)
}
