package main

import (
	"math"

	"github.com/anishathalye/porcupine"
)

// Reentrant mutex.
//
// State: that of the mutex with a lease (mutex.go), and the bounds of the hold count.
//
// Step: that of the mutex, and
//
//   - acquire, granted: the count of a new hold is one. A re-entry adds one, unless it is sent with ONCE.
//   - release, 0: the count was two or more, and is one less. A release with ALL never replies 0.
//   - release, 1: the count was one, or the release is sent with ALL.
//
// Leases and expected losses: as in mutex.go. After a fault that may restore an earlier state the count may be any.
//
// Ambiguity: as in mutex.go. Since the first request without a known result the count of its owner may be any, because
// that request may have added one or taken one away at any time.
//
// Not seen: what mutex.go does not see.
type reentrantState struct {
	mutex    mutexState
	min, max int64
}

func reentrantModel() porcupine.Model { return modelOf(reentrantState{}, nil) }

func (s reentrantState) hash() uint64 { return hashOf(s.mutex.hold, s.mutex.now+s.min) }

func (s reentrantState) moment() int64 { return s.mutex.now }

func (s reentrantState) step(o *op) (reentrantState, bool) {
	before := s.mutex.hold
	mutex, ok := s.mutex.step(o)
	if !ok {
		return s, false
	}
	next := reentrantState{mutex, s.min, s.max}
	if o.unsureSince <= o.Complete || o.loss.restores.meets(min(before.since, o.Invoke), o.Complete) || !before.isHeld {
		next.min, next.max = 1, math.MaxInt32
	}
	isSame := before.isHeld && before.owner == o.Owner
	switch {
	case !mutex.hold.isHeld:
		if isSame && o.Operation == "release" && o.Result == "number" && !o.All && next.min > 1 {
			return s, false
		}
		next.min, next.max = 0, 0
	case o.Operation == "acquire":
		if !o.isReentry(before, mutex.now) {
			next.min, next.max = 1, 1
			if o.mayHoldUnknown() {
				next.max = math.MaxInt32
			}
		} else if !o.Once {
			next.min, next.max = next.min+1, next.max+1
		}
	case o.Operation == "release" && o.Result == "number":
		if o.All || next.max < 2 {
			return s, false
		}
		next.min, next.max = max(next.min-1, 1), next.max-1
	}
	if o.unsureSince <= o.Complete && next.mutex.hold.isHeld && next.mutex.hold.owner == o.Owner {
		next.min, next.max = 1, math.MaxInt32
	}
	return next, true
}
