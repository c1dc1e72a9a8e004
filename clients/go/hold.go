package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// moment is a moment by both clocks: the steady one stops while the machine sleeps, and the wall clock may be set back.
// The lease does neither. The larger of the two times that have passed is safe in both cases.
type moment struct{ steady, wall time.Time }

func newMoment() moment {
	now := time.Now()
	return moment{now, now.Round(0)}
}

func (m moment) elapsed() time.Duration {
	now := time.Now()
	return max(now.Sub(m.steady), now.Round(0).Sub(m.wall))
}

// Hold is what is held by one acquisition. It is renewed until [Hold.Unlock].
type Hold struct {
	client *Client
	terms  *terms
	owner  string
	tokens []int64
	// The context of the acquisition.
	values context.Context
	// Whether a request of the acquisition had no answer.
	isUnanswered bool
	begun        time.Time
	subject      *Subject

	// All below under the mutex of the client: the lease to renew for, and the renewals that have no answer yet.
	span    time.Duration
	unheard int
	// The renewals that the transport has not ended with yet, and what is closed when there is none.
	renewing int
	settled  chan struct{}
	// The confirmed lease, and a moment before its request was sent.
	lease time.Duration
	sent  moment
	// When the next renewal and the report of a loss are due, and the longest time of the hold is over.
	renewAt, lostAt, until time.Time
	// When the lease is over in the server at the latest, whatever has been answered.
	ends       time.Time
	isReleased bool
	lost       error
	// Whether the present lack of renewals was noted.
	isLate bool
	// Made when somebody asks for it.
	ctx *holdContext
}

func newHold(a *acquisition, tokens []int64, sent moment, lease time.Duration) *Hold {
	h := &Hold{client: a.client, terms: a.terms, owner: a.owner, tokens: tokens, isUnanswered: a.isUnanswered,
		begun: a.begun, subject: a.subject, span: a.terms.lease, ends: time.Now().Add(lease)}
	if a.terms.maxHold > 0 {
		h.until = sent.steady.Add(a.terms.maxHold)
	}
	h.confirm(lease, sent)
	return h
}

// begin makes it a hold of the caller.
func (h *Hold) begin(ctx context.Context) (*Hold, error) {
	h.values = ctx
	c := h.client
	c.mu.Lock()
	isOpen := c.open.Err() == nil
	if isOpen {
		h.subject.Granted = time.Now()
		c.answered(ctx, h.subject, h.begun, nil)
		c.holds[h] = struct{}{}
		c.planFor(h)
	}
	c.mu.Unlock()
	if !isOpen {
		h.abandon() // which Close does not see
		return nil, ErrClosed
	}
	return h, nil
}

// confirm notes a lease that the server has confirmed. The mutex is held, or nobody has the hold yet.
func (h *Hold) confirm(lease time.Duration, sent moment) {
	h.lease, h.sent, h.isLate = lease, sent, false
	h.renewAt = sent.steady.Add(lease / 3)
	// The server counts whole milliseconds, so the last one is not certain.
	h.lostAt = sent.steady.Add(lease - h.terms.marginOf(lease) - time.Millisecond)
	if !h.until.IsZero() && h.until.Before(h.lostAt) {
		h.lostAt = h.until
	}
	if h.terms.isFixed {
		h.renewAt = h.lostAt
	}
}

// nextLease is the lease of a renewal: no longer than the longest time of the hold.
func (h *Hold) nextLease() time.Duration {
	if h.until.IsZero() {
		return h.span
	}
	return min(h.span, time.Until(h.until)).Truncate(time.Millisecond)
}

// renewal tells whether a renewal is to be sent, and plans the next one for the case that it has no answer. The mutex
// is held.
func (h *Hold) renewal() bool {
	if h.terms.isFixed || h.nextLease() <= h.lease-h.sent.elapsed() {
		h.renewAt = h.lostAt
		return false
	}
	h.renewAt = time.Now().Add(h.lease / 3)
	return true
}

// pass has this time pass for a hold ([Attached]). It is renewed as it would be meanwhile; one that is not asks for the
// lease that it has left, which changes nothing. The reply tells a loss.
func (h *Hold) pass(by time.Duration) {
	c := h.client
	c.mu.Lock()
	if h.isReleased || h.lost != nil {
		c.mu.Unlock()
		return
	}
	if !h.until.IsZero() {
		h.until = h.until.Add(-by)
	}
	lease, sent := h.nextLease(), newMoment()
	if h.terms.isFixed {
		lease, sent = h.lease, moment{h.sent.steady.Add(-by), h.sent.wall.Add(-by)}
	}
	h.confirm(lease, sent)
	c.planFor(h)
	if h.isOver(time.Now()) {
		c.mu.Unlock()
		h.lose(h.reason())
		return
	}
	h.unheard++
	h.renewing++
	c.mu.Unlock()
	rest := lease - sent.elapsed() + time.Millisecond // which is cut off
	h.renewed(c.sendRenewals(c.running, h.terms.renew(h.owner, h.tokens, rest), h), lease, sent)
}

// noteLate tells the observer, once, that a renewal is due while the one before it is not confirmed. (Where none is to
// come, renewAt is the time of the loss.) The mutex is held.
func (h *Hold) noteLate() {
	if since := h.sent.elapsed(); !h.isLate && !h.renewAt.Equal(h.lostAt) && since >= h.lease*2/3 {
		h.isLate = true
		h.client.late(h.subject, since-h.lease/3)
	}
}

// request counts a renewal that is about to be sent. It returns its lease, and how much of that is certain when it is
// confirmed: a request without an answer may be served after it, and no lease is shorter than the first. The mutex is
// held.
func (h *Hold) request() (lease, certain time.Duration) {
	lease = h.nextLease()
	certain = lease
	if h.unheard > 0 || h.isUnanswered {
		certain = min(lease, h.terms.firstLease())
	}
	h.unheard++
	h.renewing++
	if ends := time.Now().Add(lease + h.client.patience); ends.After(h.ends) {
		h.ends = ends
	}
	return lease, certain
}

// sendRenewals sends the renewals of these holds. They are under way until the transport returns, perhaps after the
// context has ended.
func (c *Client) sendRenewals(ctx context.Context, commands []Command, holds ...*Hold) []Reply {
	return during(ctx, len(commands), func() []Reply {
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, h := range holds {
				if h.renewing--; h.renewing == 0 && h.settled != nil {
					close(h.settled)
					h.settled = nil
				}
			}
		}()
		return c.transport.Do(ctx, commands...)
	})
}

// awaitRenewals waits for those under way: one that is served after the hold is left would set its own lease again.
func (h *Hold) awaitRenewals(ctx context.Context) {
	h.client.mu.Lock()
	if h.renewing > 0 && h.settled == nil {
		h.settled = make(chan struct{})
	}
	settled := h.settled
	h.client.mu.Unlock()
	if settled != nil {
		select {
		case <-settled:
		case <-ctx.Done():
		}
	}
}

// renewed handles the replies to a renewal, with the lease that is certain by them. It returns the loss that they
// prove, or the error.
func (h *Hold) renewed(replies []Reply, lease time.Duration, sent moment) error {
	c := h.client
	var err, loss error
	isHeard := true
	for _, reply := range replies {
		switch proved := lossBy(reply); {
		case proved != nil:
			loss = proved
		case reply.Err != nil:
			err = reply.Err
			isHeard = isHeard && !mayBeServed(err)
		}
	}
	c.events.count(func(s *Statistics) {
		if loss == nil && err == nil {
			s.Renewals++
		} else {
			s.RenewalsFailed++
		}
	})
	c.mu.Lock()
	if isHeard {
		h.unheard--
	}
	switch {
	case h.isReleased || h.lost != nil || loss != nil:
	case err != nil:
		h.renewAt = time.Now().Add(max(h.lease/20, time.Millisecond))
		c.plan(h.renewAt)
	default:
		h.confirm(lease, sent)
		c.planFor(h)
	}
	c.mu.Unlock()
	if loss != nil {
		return h.lose(loss)
	}
	return err
}

// lossBy is the loss that this reply to a renewal proves, or nil.
func lossBy(reply Reply) error {
	switch {
	case reply.Err == nil && reply.Value != int64(1):
		return errTaken
	case isOverwritten(reply.Err) || slices.Contains(lasting, codeOf(reply.Err)):
		return reply.Err
	}
	return nil
}

// isOver tells whether the time of a loss has come. The mutex is held.
func (h *Hold) isOver(now time.Time) bool {
	return !h.lostAt.After(now) || h.sent.elapsed() >= h.lostAt.Sub(h.sent.steady)
}

func (h *Hold) reason() error {
	if !h.until.IsZero() && !h.until.After(time.Now()) {
		return errors.New("the longest time of the hold is over")
	}
	return errors.New("no renewal was confirmed, and the lease ends soon")
}

// lose reports a loss, once, and returns it.
func (h *Hold) lose(reason error) error {
	c := h.client
	c.mu.Lock()
	delete(c.holds, h)
	loss := fmt.Errorf("%w: %s: %w", ErrLost, h.terms, reason)
	if h.isReleased || h.lost != nil {
		c.mu.Unlock()
		return loss
	}
	h.lost = loss
	ctx := h.ctx
	c.mu.Unlock()
	c.lost(h.subject, loss)
	if ctx != nil {
		ctx.cancel(loss)
	}
	if h.terms.onLost != nil {
		// Nothing waits for it: it may call Close.
		go h.terms.onLost(h, loss)
	}
	if ctx == nil && h.terms.onLost == nil {
		c.warn("a lock is lost, and nothing listens (Hold.Context)", h.terms.String(), loss)
	}
	return loss
}

// Token is the fencing token of the grant, of several locks that of the first: a resource that refuses a token lower
// than the highest so far is safe from a holder that is late.
func (h *Hold) Token() int64 { return h.tokens[0] }

// Owner is the name of the owner: that of [WithOwner], or a fresh one. It is a credential, for [Lock.Resume] elsewhere.
func (h *Hold) Owner() string { return h.owner }

// Count is how many permits it has ([WithCount]); 1 of a lock.
func (h *Hold) Count() int { return h.terms.count }

// Tokens has a token for each key.
func (h *Hold) Tokens() []int64 { return append([]int64(nil), h.tokens...) }

// holdContext is a context that ends with a hold. Whoever reads it compares the clocks: after the process, or its
// machine, stood still, the timer that reports a loss may not have run yet.
type holdContext struct {
	context.Context
	hold   *Hold
	cancel context.CancelCauseFunc
}

func (h *Hold) contextIn(ctx context.Context) *holdContext {
	inner, cancel := context.WithCancelCause(ctx)
	return &holdContext{inner, h, cancel}
}

// look ends the context if the hold is over.
func (c *holdContext) look() {
	if h := c.hold; c.Context.Err() == nil {
		h.look()
		if c != h.ctx && h.ctx.Context.Err() != nil {
			c.cancel(context.Cause(h.ctx.Context))
		}
	}
}

func (c *holdContext) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

func (c *holdContext) Err() error {
	c.look()
	return c.Context.Err()
}

// Value is also the way of [context.Cause].
func (c *holdContext) Value(key any) any {
	c.look()
	return c.Context.Value(key)
}

// look reports a loss whose time has come.
func (h *Hold) look() {
	h.client.mu.Lock()
	isOver := !h.isReleased && h.lost == nil && h.isOver(time.Now())
	h.client.mu.Unlock()
	if isOver {
		h.lose(h.reason())
	}
}

// Context ends when the hold is lost, before another owner can have it, or released. [context.Cause] says which: it is
// [ErrLost] or [ErrReleased]. Its values are those of the context of the acquisition. [Hold.With] is a context that
// ends with another one, too.
//
// A loss is noticed at the next renewal, a third of the lease later, or, when the server does not answer, a margin
// before the lease ends. The methods of this context compare the clocks, so they are right as soon as a process that
// stood still goes on; a context made from it follows when the timer has run.
func (h *Hold) Context() context.Context { return h.context() }

// With is the context with an end at that of [Hold.Context], too: for work of a request under the lock. Its cause is
// that of what ended first. Call the function when the work is done, as that of [context.WithCancel].
func (h *Hold) With(ctx context.Context) (context.Context, context.CancelFunc) {
	own, both := h.context(), h.contextIn(ctx)
	stop := context.AfterFunc(own.Context, func() { both.cancel(context.Cause(own.Context)) })
	return both, func() {
		stop()
		both.cancel(context.Canceled)
	}
}

// context has the values of the context of the acquisition, and not its end.
func (h *Hold) context() *holdContext {
	h.client.mu.Lock()
	defer h.client.mu.Unlock()
	if h.ctx == nil {
		h.ctx = h.contextIn(context.WithoutCancel(h.values))
		if h.lost != nil {
			h.ctx.cancel(h.lost)
		} else if h.isReleased {
			h.ctx.cancel(ErrReleased)
		}
	}
	return h.ctx
}

// ValidFor is how long the lock is certainly still held. It reads the clocks, so it is right after this process, or its
// machine, stood still, too.
func (h *Hold) ValidFor() time.Duration {
	h.client.mu.Lock()
	defer h.client.mu.Unlock()
	if h.isReleased || h.lost != nil {
		return 0
	}
	return max(0, h.lease-time.Millisecond-h.sent.elapsed())
}

// Do runs a command of the server if the lock is still held, in one step of it (LOCK.IF): a holder that is late gets
// [ErrLost], and changes nothing. The command has a key, in a cluster in the slot of the lock, or it is PUBLISH. The
// reply is an int64, a string, a []any, a map, or nil. After [ErrNoAnswer] it may have run; it is not repeated. Of
// several locks the first is the one that is looked at.
//
// Arguments are written as go-redis writes them (a time.Duration as nanoseconds, true as 1, nil as an empty string, an
// encoding.BinaryMarshaler by its method); [ErrUsage] where it has no rule.
func (h *Hold) Do(ctx context.Context, command ...any) (any, error) {
	words := []any{"LOCK.IF", h.terms.keys[0], strconv.FormatInt(h.tokens[0], 10)}
	if err := require(!h.terms.isPermit, "a permit fences nothing, because several are valid at a time"); err != nil {
		return nil, err
	}
	for _, argument := range command {
		word, err := wordOf(argument)
		if err != nil {
			return nil, err
		}
		words = append(words, word)
	}
	reply, err := h.client.do(ctx, Command{words, 1})
	switch code := codeOf(err); {
	case code == "FENCED" && h.terms.mode != "READ":
		h.lose(err)
	case code == "FENCED" || isOverwritten(err):
		// Readers may get another token while they hold the lock, and the type may be that of the command's own key:
		// the server is asked.
		if lost := h.renew(ctx); errors.Is(lost, ErrLost) {
			return nil, lost
		}
	}
	return reply, unanswered(err)
}

// Renew renews the lease at once, for this time (see [WithLease]) if it is longer than the lease so far; later renewals
// have it, too. It is needed only with [WithoutRenewal]. [ErrLost] means that the lock is not held any more. After a
// request of this hold without an answer, a longer lease counts as [WithLease]: that request may be served yet.
func (h *Hold) Renew(ctx context.Context, lease time.Duration) error {
	if err := requireLease(lease); err != nil {
		return err
	}
	h.client.mu.Lock()
	h.span = max(h.span, lease.Truncate(time.Millisecond))
	h.client.mu.Unlock()
	return h.renew(ctx)
}

// SetNote replaces the text beside the hold of an exclusive lock ([WithNote]). It renews the lease as well.
func (h *Hold) SetNote(ctx context.Context, note string) error {
	if err := require(!h.terms.isPermit && h.terms.mode == "" && len(note) <= maxNote,
		"notes of at most 256 bytes are beside exclusive locks"); err != nil {
		return err
	}
	return h.renew(ctx, "NOTE", note)
}

// renew renews the lease, with these words in the request.
func (h *Hold) renew(ctx context.Context, words ...any) error {
	c := h.client
	c.mu.Lock()
	lease, certain := h.request()
	c.mu.Unlock()
	commands := h.terms.renew(h.owner, h.tokens, lease)
	for i := range commands {
		commands[i].Words = append(commands[i].Words, words...)
	}
	sent := newMoment()
	return unanswered(h.renewed(c.sendRenewals(ctx, commands, h), certain, sent))
}

// Unlock releases the lock, whatever has become of the context of the acquisition. [ErrLost] means that it was lost
// before, [ErrNoAnswer] that the release had no answer within the response timeout: it goes on in the background until
// it is answered or the lease is over. Any other error is a refusal of the server, or says that the release could not
// be sent; where that may pass it goes on, too.
func (h *Hold) Unlock() error { return h.end(0) }

// Leave leaves the lock held for this time from now on, instead of releasing it, and is not renewed: for work that is
// not to be done again too soon, or for another process that goes on with it ([Lock.Resume]). It returns as
// [Hold.Unlock] does. Without an answer it is repeated until the lease so far is over, and may last longer by that.
func (h *Hold) Leave(rest time.Duration) error {
	if err := require(rest > 0 && rest <= longestLease, "a lock is left for more than nothing"); err != nil {
		return err
	}
	return h.end(rest)
}

// abandon releases in the background.
func (h *Hold) abandon() { _, _ = h.finish(h.client.running, 0, true) }

// ending is what leaves the hold for this rest, or without one releases it.
func (h *Hold) ending(rest time.Duration, isFinal bool) []Command {
	switch {
	case rest > 0:
		return h.terms.renew(h.owner, h.tokens, rest)
	case isFinal:
		return h.terms.giveUp(h.owner, h.tokens)
	}
	return h.terms.release(h.owner, h.tokens)
}

// end releases the hold, or leaves it for this rest, and returns after the response timeout.
func (h *Hold) end(rest time.Duration) error {
	c := h.client
	begun := time.Now()
	wait, err := h.finish(c.whileReleasing(), rest, false)
	if wait != nil {
		select {
		case err = <-wait:
		case <-time.After(c.patience - time.Since(begun)):
		case <-c.running.Done():
		}
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		// The bound is not the caller's.
		return fmt.Errorf("%w: the release goes on: %s", ErrNoAnswer, h.terms)
	}
	return unanswered(err)
}

// finish ends the hold. A result that is still to come does so on the channel.
func (h *Hold) finish(ctx context.Context, rest time.Duration, inBackground bool) (wait <-chan error, err error) {
	c := h.client
	c.mu.Lock()
	lost, wasReleased, ends, own := h.lost, h.isReleased, h.ends, h.ctx
	h.isReleased = true
	delete(c.holds, h)
	c.mu.Unlock()
	if wasReleased {
		return nil, ErrReleased
	}
	if own != nil {
		own.cancel(ErrReleased)
	}
	if held := time.Since(h.subject.Granted); !h.subject.Granted.IsZero() {
		defer func() { c.ended(h.subject, held, lost, err) }()
	}
	if rest > 0 {
		h.awaitRenewals(ctx)
	}
	commands := h.ending(rest, h.isUnanswered)
	if inBackground || lost != nil {
		c.release(h.terms, commands, ends, true)
		return nil, lost
	}
	wasHeld, err := released(c.send(ctx, commands...))
	if err == nil || isOverwritten(err) {
		c.events.count(func(s *Statistics) { s.Releases++ })
	}
	switch {
	case isOverwritten(err):
		return nil, fmt.Errorf("%w: %s: %w", ErrLost, h.terms, err)
	case err != nil && mayPass(err):
		// The first one may be served late: a repeated one is final.
		return c.release(h.terms, h.ending(rest, true), ends, true), err
	case err == nil && !wasHeld && (rest > 0 || !h.isUnanswered):
		return nil, fmt.Errorf("%w: %s: at its release: %w", ErrLost, h.terms, errTaken)
	}
	return nil, err
}
