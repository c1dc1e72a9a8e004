package main

// A hold is a right to a key, in the state of every model of locks.
//
// Leases end by time, without an operation in the history. So each operation happens at a moment t, at the earliest
// the latest invocation of all operations before it in the order that the search tries, and at the latest its own
// completion. A lease that is granted at t ends in [t + lease, completion + lease]: the server counts from the moment
// at which it decides, which lies between the two. Both ends get a tolerance of one millisecond.
//
//   - The hold may have ended from earliest() on: by the lease, by an expected loss, by the end of the connection to
//     which it is bound, or by a request whose result is unknown.
//   - It has surely ended after latest. Not known (never) after a request without a result, while it is bound to a
//     connection, and when an expected loss lengthens leases. One that comes after the end may bring the hold back: a
//     clock that is set back before the server has noticed the end.
type hold struct {
	isHeld, isBound bool
	// Its session lease may end in a stall that no loss of the history marks.
	isBrief bool
	owner   uint64
	kind    string
	// 0: not known.
	token int64
	// When the last reply proved the hold, and the earliest end of the lease counted from then.
	since, leaseEnd int64
	doubt, latest   int64
	// From when on the lease may be longer than its owner knows.
	counted int64
	// The completion of the owner's last operation.
	last int64
	// The first invocation of a release by the owner that ends a hold.
	release int64
	// The expected losses of its key.
	losses *losses
}

func (h hold) earliest() int64 {
	return min(h.leaseEnd, h.losses.loses.next(h.since), max(h.doubt, h.since))
}

// gone is the earliest end of a hold of which the server says that it has ended.
func (h hold) gone() int64 {
	if h.isBound && h.isBrief {
		return h.since
	}
	return h.earliest()
}

// granted is the hold that this acquire, or the proof of a hold that began without a reply, makes at t.
func granted(o *op, t int64) hold {
	h := hold{isHeld: true, owner: o.Owner, kind: o.Kind, token: o.Token, losses: o.loss}
	h.doubt, h.release, h.last = o.doubt, o.release, o.last
	if o.Operation == "acquire" {
		return h.leased(o, t)
	}
	// A release, or a reading, tells nothing of the lease.
	h.since, h.leaseEnd, h.latest = t, t, never
	if o.Operation == "renew" {
		h.token = o.NamedToken
		return h.leased(o, t)
	}
	return h
}

// leased is the hold with the lease of this operation alone.
func (h hold) leased(o *op, t int64) hold {
	h.since, h.counted, h.leaseEnd, h.latest = t, t, t+o.lease-slack, o.Complete+o.lease+slack
	h.isBound = o.Operation == "acquire" && o.Tie == "session"
	if h.isBound {
		// The server renews it when a third of the lease is over.
		h.isBrief = o.lease/3*2 <= stall
		h.leaseEnd, h.latest = max(o.bondEnd, t), never
	}
	return h.unsure(o, t)
}

// unsure gives up the latest end where it is not known.
func (h hold) unsure(o *op, t int64) hold {
	if o.unsureSince <= o.Complete || o.loss.lengthens.meets(t, h.latest) || o.mayHoldUnknown() {
		h.latest = never
	}
	return h
}

// reentered is the hold after another acquire: its lease is extended and never shortened.
func (h hold) reentered(o *op, t int64) hold {
	next := h.leased(o, t)
	if o.Tie != "session" {
		if !h.isBound {
			next.leaseEnd = max(next.leaseEnd, h.leaseEnd)
		}
		next.latest, next.counted = max(next.latest, h.latest), h.counted
	}
	next.token = o.Token
	return next
}

// mayLive tells whether the hold may last at t, for an operation of its owner.
func (h hold) mayLive(o *op, t int64) bool {
	mayReturn := o.loss.lengthens.meets(h.counted, o.Complete)
	return h.isHeld && (t <= h.latest || o.unsureSince <= o.Complete || mayReturn)
}

func (h hold) fits(o *op) bool {
	return h.isHeld && h.owner == o.Owner && (o.NamedToken == 0 || h.token == 0 || h.token == o.NamedToken)
}
