package main

import (
	"slices"

	"github.com/anishathalye/porcupine"
)

// Read-write lock.
//
// State: the moment of the last operation, the highest token so far, and the holds, one for each owner and kind (READ,
// WRITE), each with the bounds of its end (hold.go).
//
// Step, for an operation that happens at t, the earliest moment that fits:
//
//   - acquire WRITE, granted: t is put off to the earliest ends of all holds of other owners. The token of a new hold
//     is above every token so far. (The owner may be a reader itself: an upgrade.)
//   - acquire READ, granted: t is put off to the earliest end of another owner's WRITE. Its token is above every token
//     so far, or it is the highest one and some hold of that phase is left, or may be: that of an owner whose request
//     for READ has no known result and was sent before the known holds of the phase had surely ended, or one that an
//     expected loss has brought back. The owner may have WRITE (a downgrade).
//   - renew and release: as in mutex.go, for the hold of that owner and kind. After a release of READ with the reply 0
//     the lease of the rest is not known: the longest one may have been released.
//
// Leases, expected losses and ambiguity: as in mutex.go. Each hold has a lease of its own; but the two holds of a writer
// that reads end at the later of their ends (the lease of both is the TTL of the key).
//
// Not seen: what mutex.go does not see; hold counts; the token that a renewal or release of READ names (it may be any
// token that the phase has had).
type readWriteState struct {
	now, highest int64
	// By when the holds under the highest token that are no longer in the state had ended.
	ended int64
	// Sorted by owner and kind; never changed in place.
	holds []hold
}

func readWriteModel() porcupine.Model { return modelOf(readWriteState{}, readWriteState.equals) }

func (s readWriteState) hash() uint64 { return hashOfAll(s.holds, s.now+s.highest) }

func (s readWriteState) equals(other readWriteState) bool {
	isSame := s.now == other.now && s.highest == other.highest && s.ended == other.ended
	return isSame && slices.Equal(s.holds, other.holds)
}

func (s readWriteState) moment() int64 { return s.now }

func (s readWriteState) step(o *op) (readWriteState, bool) {
	t := max(s.now, o.Invoke)
	mine := slices.IndexFunc(s.holds, func(h hold) bool { return h.owner == o.Owner && h.kind == o.Kind })
	own := hold{}
	if mine >= 0 {
		own = s.holds[mine]
	}
	isGrant := false
	var next hold
	switch {
	case o.Operation == "acquire":
		isSame := own.isHeld && (o.Kind == "read" || own.token == o.Token || own.token == 0)
		if isSame && own.mayLive(o, t) {
			next = own.reentered(o, t)
			if o.Kind == "read" && own.token != o.Token {
				next.leaseEnd = t + o.lease - slack
			}
			break
		}
		isGrant = true
	case o.Result == "nil" || o.Operation == "renew" && o.Value == 0:
		if own.isHeld && (o.NamedToken == 0 || own.token == o.NamedToken) {
			t = max(t, own.gone())
			break
		}
		next = own
	case own.isHeld && !own.mayLive(o, t):
		return s, false
	case own.isHeld && o.Operation == "renew":
		next = own.leased(o, t)
	case own.isHeld && o.Value == 0:
		next = own
		next.since = t
		if o.Kind == "read" {
			next.leaseEnd = t
		}
	case own.isHeld:
	case o.mayHoldUnknown():
		isGrant = true
	default:
		return s, false
	}
	others, t := s.others(o, mine, isGrant, t)
	if isGrant && own.isHeld {
		t = max(t, own.earliest())
	}
	if t > o.Complete {
		return s, false
	}
	highest, ok := s.raised(o, own, t)
	if !ok {
		return s, false
	}
	if isGrant && (o.Operation != "release" || o.Value == 0) {
		next = granted(o, t)
	}
	if o.Result != "nil" && o.Operation != "release" {
		next = shareLease(others, next, t)
	}
	after := readWriteState{t, highest, s.ended, withHold(others, next, t)}
	if highest > s.highest {
		after.ended = 0
		return after, true
	}
	for _, h := range s.holds {
		isSame := func(other hold) bool { return other.owner == h.owner && other.kind == h.kind }
		if !slices.ContainsFunc(after.holds, isSame) {
			after.ended = max(after.ended, min(h.latest, o.Complete))
		}
	}
	return after, true
}

// shareLease gives both holds of the owner the later of their latest ends. The others are changed in place.
func shareLease(others []hold, next hold, t int64) hold {
	for i, h := range others {
		if h.owner == next.owner && h.latest >= t {
			next.latest = max(next.latest, h.latest)
			others[i].latest = next.latest
		}
	}
	return next
}

// others is the holds that stay beside that of this place, and the earliest end of those that a grant excludes.
func (s readWriteState) others(o *op, mine int, isGrant bool, t int64) ([]hold, int64) {
	var others []hold
	for i, h := range s.holds {
		switch {
		case i == mine:
		case isGrant && h.owner != o.Owner && (h.kind != "read" || o.Kind != "read"):
			t = max(t, h.earliest())
		default:
			others = append(others, h)
		}
	}
	return others, t
}

// raised is the highest token after the operation, and whether its token may follow.
func (s readWriteState) raised(o *op, own hold, t int64) (int64, bool) {
	if o.Operation != "acquire" || o.Token == own.token {
		return s.highest, true
	}
	ended := s.ended
	for _, h := range s.holds {
		ended = max(ended, h.latest)
	}
	mayReturn := o.loss.lengthens.meets(o.phase, o.Complete)
	isLeft := slices.ContainsFunc(s.holds, func(h hold) bool { return h.latest >= t })
	isLeft = isLeft || o.mayBeRead <= min(t, ended) || mayReturn
	isOfPhase := o.Kind == "read" && o.Token == s.highest && isLeft
	return max(s.highest, o.Token), isOfPhase || o.isNext(s.highest)
}

// withHold adds a hold, if it is one, and drops those that matter no more: they may have ended, and their owners ask
// nothing more.
func withHold(holds []hold, next hold, t int64) []hold {
	if next.isHeld {
		holds = append(holds, next)
	}
	holds = slices.DeleteFunc(holds, func(h hold) bool { return h.last < t && h.latest < t })
	slices.SortFunc(holds, func(a, b hold) int {
		if a.owner != b.owner {
			return int(int64(a.owner) - int64(b.owner))
		}
		return len(a.kind) - len(b.kind)
	})
	return holds
}
