package main

import "github.com/anishathalye/porcupine"

// Mutex with a lease.
//
// State: the moment of the last operation, and the hold, if there is one (hold.go: owner, token, the bounds of its
// end).
//
// Step, for an operation that happens at t, the earliest moment that fits; t is not after its completion:
//
//   - acquire, granted: the key is free, or t is put off to the earliest end of the present hold. If the owner holds
//     under the same token already, it re-enters: the lease is extended.
//   - renew, 1: the owner holds, and not surely no longer. The lease is counted anew.
//   - release, 0 or 1: the same; after a 1 the key is free.
//   - renew, 0, and release, nil: the owner does not hold, or not under the token that the request names; if it does,
//     t is put off to the earliest end of its hold.
//
// Leases: as hold.go says. The hold of a parked request begins after every operation before it, so its lease is
// counted from the release that made way, which is later than the invocation of its request.
//
// Expected losses: from the beginning of a fault that loses holds (README.md) any hold of that time may have ended.
// After one that may restore an earlier state (asynchronous replication, writes not yet on disk) the holds of that
// state may be there again, so an owner that was once granted may renew and release.
//
// Ambiguity: an operation without a known result may have happened at any time from its invocation to the end of the
// history, or not at all. Such an operation is no entry of the search. Instead the owner's other operations know it:
// since the invocation of an unknown release the hold may have ended, since that of an unknown renewal its lease may
// be the shorter or the longer one, and since that of an unknown acquire the owner may hold without a reply. This
// admits all orders that a completion at the end of the history admits (unknown_test.go compares the two), and the
// search does not try 2^n of them. An unknown acquire of an owner that asks nothing more only takes the key away from
// others, so leaving it out admits no fewer orders.
//
// Not seen: a refused acquire (nil) while the key is free, the order of waiters, lost wake-ups, replies that are late.
type mutexState struct {
	now  int64
	hold hold
}

func mutexModel() porcupine.Model { return modelOf(mutexState{}, nil) }

func (s mutexState) hash() uint64 { return hashOf(s.hold, s.now) }

func (s mutexState) moment() int64 { return s.now }

func (s mutexState) step(o *op) (mutexState, bool) {
	t := max(s.now, o.Invoke)
	for {
		h, need, ok := s.hold.at(o, t)
		if !ok || need > o.Complete {
			return s, false
		}
		if need <= t {
			return mutexState{t, h}, t <= o.Complete
		}
		t = need
	}
}

// at is the hold after the operation at t, and the earliest moment since t at which that is possible.
func (h hold) at(o *op, t int64) (hold, int64, bool) {
	free := t
	if h.isHeld {
		free = max(t, h.earliest())
	}
	isAlive := h.fits(o) && h.mayLive(o, t)
	switch {
	case o.Operation == "acquire":
		if isAlive && (h.token == o.Token || h.token == 0) {
			return h.reentered(o, t), t, true
		}
		return granted(o, free), free, true
	case o.Result == "nil" || o.Operation == "renew" && o.Value == 0:
		if h.fits(o) {
			return hold{}, max(t, h.gone()), true
		}
		return h, t, true
	case !isAlive && (!o.mayHoldUnknown() || h.fits(o)):
		return h, t, false
	case o.Operation == "renew":
		if isAlive {
			return h.leased(o, t), t, true
		}
		return granted(o, free), free, true
	case o.Value == 0:
		if isAlive {
			h.since = t
			return h, t, true
		}
		return granted(o, free), free, true
	default:
		if isAlive {
			return hold{}, t, true
		}
		return hold{}, free, true
	}
}
