package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// When a wait that cannot reach its server warns, and how often from then on.
const (
	warnsAfter = 3 * time.Second
	warnsEvery = 30 * time.Second
	// Subscriptions in a row that the server does not know.
	maxUnknown = 4
)

// acquisition is one acquisition. It has a fresh owner, and its requests the number 1 (SEQ), so each can be repeated.
//
// It asks once. If the lock is not free it subscribes to the channel of this client, and asks as a ticket (NOTIFY). A
// message proves nothing: it asks once more, without waiting. When a connection breaks it asks again, and subscribes
// when the server knows no subscriber; ONCE and the place that the server keeps do the rest. Given up, it is made
// final.
type acquisition struct {
	client *Client
	terms  *terms
	owner  string
	// Where it waits; the ticket from the first such request on.
	channel *channel
	ticket  *ticket
	place   place
	// Whether a request had no answer, and may be served late.
	isUnanswered bool
	// Whether the server has ever answered. Before that, a request that cannot be sent is an error.
	isAnswered bool
	// Whether the semaphore has been asked for.
	isAskedFor bool
	// Whether it has waited in the queue.
	hasWaited bool
	outage    outage
	begun     time.Time
	subject   *Subject
}

// place is what the server has of an acquisition.
type place int

const (
	// Nothing, but for requests without an answer.
	outside place = iota
	// A place in its queue, or it had one.
	queued
	// The same, and a message says that it is granted.
	announced
)

// outage is what has failed since the acquisition was last queued.
type outage struct {
	// The failures, the first one and the last warning.
	failures      int
	since, warned time.Time
	// The replies NOSUBSCRIBER.
	unknown int
}

// errQueued: the server has put the request into its queue.
var errQueued = errors.New("redislock: queued")

var errLate = errors.New("redislock: the reply came when most of the lease was over")

func (c *Client) acquire(ctx context.Context, terms *terms, waits bool) (hold *Hold, err error) {
	if err := c.enter(ctx, terms); err != nil {
		return nil, err
	}
	defer c.end()
	var bound context.Context = lenient{c.open, ctx}
	if ctx.Done() != nil {
		either, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.open, cancel)()
		bound = either
	}
	a := &acquisition{client: c, terms: terms}
	c.asked(ctx, a)
	defer func() { a.ended(ctx, err) }()
	a.renameOwner()
	if waits {
		a.channel, a.ticket = c.waits.join(bound, terms.keys[0])
	}
	hold, err = a.run(bound)
	if waits {
		c.waits.leave(a.channel, a.ticket)
	}
	if hold != nil {
		return hold.begin(ctx)
	}
	a.giveUp()
	switch ended := ctx.Err(); {
	case ended != nil && a.outage.failures > 0 && !errors.Is(err, ended):
		return nil, fmt.Errorf("%w, the last failure: %w", ended, err)
	case ended != nil:
		return nil, ended
	case c.open.Err() != nil:
		return nil, ErrClosed
	}
	return nil, err
}

// enter counts a call for these terms, which ends at end.
func (c *Client) enter(ctx context.Context, terms *terms) error {
	_, isBlocking := c.transport.(Blocking)
	if err := cmp.Or(terms.check(), require(terms.replicas == 0 || isBlocking,
		"this transport cannot wait for replicas"), ctx.Err()); err != nil {
		return err
	}
	if c.open.Err() != nil || !c.begin() {
		return ErrClosed
	}
	return nil
}

// resume makes a hold of what the owner of these terms has under this token.
func (c *Client) resume(ctx context.Context, terms *terms, token int64) (hold *Hold, err error) {
	if err := terms.requireOneKey(); err != nil {
		return nil, err
	}
	if err := c.enter(ctx, terms); err != nil {
		return nil, err
	}
	defer c.end()
	a := &acquisition{client: c, terms: terms, owner: terms.owner}
	c.asked(ctx, a)
	defer func() { a.ended(ctx, err) }()
	tokens, lease, sent := []int64{token}, terms.firstLease(), newMoment()
	reply, err := c.do(ctx, terms.renew(terms.owner, tokens, lease)[0])
	switch {
	case isOverwritten(err):
		return nil, fmt.Errorf("%w: %s: %w", ErrLost, terms, err)
	case err != nil:
		return nil, unanswered(err)
	case reply != int64(1):
		return nil, fmt.Errorf("%w: %s: it is not held under this token", ErrLost, terms)
	}
	return newHold(a, tokens, sent, lease).begin(ctx)
}

// ended notes the end of a call that has this error. A hold has noted its beginning itself.
func (a *acquisition) ended(ctx context.Context, err error) {
	if a.hasWaited {
		a.client.events.count(func(s *Statistics) { s.Waiting-- })
	}
	if err != nil {
		a.client.answered(ctx, a.subject, a.begun, err)
	}
}

func (a *acquisition) renameOwner() {
	if a.owner = a.terms.owner; a.owner == "" {
		a.owner = a.client.id + ":" + strconv.FormatUint(a.client.number.Add(1), 10)
	}
}

// run asks until the lock is granted, or the error is one of the caller's.
func (a *acquisition) run(ctx context.Context) (*Hold, error) {
	for {
		hold, err := a.inTurn(ctx)
		if errors.Is(err, errQueued) {
			err = a.wait(ctx)
		}
		if hold != nil && a.terms.replicas > 0 {
			return a.replicated(ctx, hold)
		}
		if hold != nil || err != nil {
			return hold, err
		}
	}
}

// replicated returns a hold that enough replicas have. It renews it, so that WAIT on this connection covers the grant,
// by whichever connection it came; a key that moves is asked for again. What they do not have is given up.
func (a *acquisition) replicated(ctx context.Context, hold *Hold) (*Hold, error) {
	c, t := a.client, a.terms
	bound, cancel := context.WithTimeout(ctx, c.patience+t.replicasWithin)
	defer cancel()
	lease := t.firstLease()
	wait := Command{[]any{"WAIT", strconv.Itoa(t.replicas), millis(t.replicasWithin)}, 0}
	commands := append(t.renew(a.owner, hold.tokens, lease), wait)
	var sent moment
	var replies []Reply
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		sent = newMoment()
		replies = during(bound, len(commands), func() []Reply {
			return c.transport.(Blocking).DoApart(bound, t.keys[0], t.replicasWithin, commands...)
		})
		if code := codeOf(replies[0].Err); code != "MOVED" && code != "ASK" || !sleep(bound, pause) {
			break
		}
	}
	last := len(replies) - 1
	wasHeld, err := released(replies[:last])
	had, isCount := replies[last].Value.(int64)
	switch {
	case isOverwritten(err) || err == nil && !wasHeld:
		err = fmt.Errorf("%w: %s: it was lost before replicas had it", ErrLost, t)
	case err == nil && codeOf(replies[last].Err) == "UNBLOCKED":
		// By a fail-over: the new primary may have the grant.
		err = fmt.Errorf("redislock: %s: the server has stopped to wait for replicas: %v", t, replies[last].Err)
	case err == nil && replies[last].Err != nil:
		err = replies[last].Err
	case err == nil && !isCount:
		err = badReply(replies[last].Value)
	case err == nil && had < int64(t.replicas):
		err = fmt.Errorf("%w: %d of %d replicas have the grant within %v", ErrNotReplicated, had, t.replicas,
			t.replicasWithin)
	case err == nil && sent.elapsed() >= lease-t.marginOf(lease):
		err = fmt.Errorf("%w: %s: its lease was over before replicas had it", ErrLost, t)
	}
	// Given up with all that it had.
	a.place, a.isUnanswered, hold.isUnanswered = outside, false, hold.isUnanswered || err != nil
	switch {
	case err == nil:
		hold.confirm(lease, sent)
		return hold, nil
	case mayBeServed(err) && !errors.Is(err, ErrNotReplicated):
		hold.abandon()
		return nil, unanswered(err)
	}
	_ = hold.end(0)
	return nil, err
}

// inTurn asks when it is the turn of this wait. After a failure it pauses before others have theirs.
func (a *acquisition) inTurn(ctx context.Context) (*Hold, error) {
	if a.channel != nil && a.place != announced {
		select {
		case a.channel.turns <- struct{}{}:
			defer func() { <-a.channel.turns }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	hold, err := a.ask(ctx)
	if err == nil || errors.Is(err, errQueued) {
		return hold, err
	}
	if ctx.Err() != nil || !a.passes(err) {
		return nil, err
	}
	a.failed(err)
	if !sleep(ctx, jittered(a.pause(err))) {
		return nil, err
	}
	return nil, nil
}

// ask sends the request once. Neither a hold nor an error: it is to be sent again.
func (a *acquisition) ask(ctx context.Context) (*Hold, error) {
	command, isTicket := a.terms.acquire(a.owner), a.ticket != nil && a.place != announced
	var heard *subscription
	if isTicket {
		// In this order: the end of a subscription that is heard is a message.
		a.ticket.forget()
		heard = a.client.waits.live(a.channel)
		block := longestTicket
		if end, isBound := ctx.Deadline(); isBound {
			// One more, so that the server does not end the wait before its end.
			block = max(0, min(block, time.Until(end))) + time.Millisecond
		}
		command.Words = append(command.Words, "BLOCK", millis(block), "NOTIFY", a.channel.name,
			strconv.FormatUint(a.ticket.number, 10))
		if a.terms.queue != "" {
			command.Words = append(command.Words, "QUEUE", a.terms.queue)
		}
	}
	sent := newMoment()
	reply, err := a.client.do(ctx, command)
	if err != nil {
		return nil, a.refused(ctx, err, heard)
	}
	a.isAnswered = true
	if isTicket && reply == "QUEUED" {
		a.place = queued
		if !a.hasWaited {
			a.hasWaited = true
			a.client.events.count(func(s *Statistics) { s.Waits++; s.Waiting++ })
		}
		if err := a.mustExist(ctx); err != nil {
			return nil, err
		}
		if heard == nil {
			// The server has not noticed yet that the connection of a subscription has ended.
			return nil, a.listen(ctx, nil)
		}
		a.outage = outage{}
		return nil, errQueued
	}
	tokens, err := a.terms.granted(reply)
	wasAnnounced := a.place == announced
	a.place = min(a.place, queued)
	if tokens == nil && err == nil {
		err = a.mustExist(ctx)
	}
	switch {
	case errors.Is(err, ErrNoSemaphore):
		return nil, err
	case err != nil:
		a.isUnanswered = true
		return nil, err
	case tokens != nil:
		lease := a.terms.firstLease()
		if sent.elapsed() >= lease-a.terms.marginOf(lease) {
			// The hold may be over.
			a.isUnanswered = true
			a.startAnew()
			return nil, errLate
		}
		return newHold(a, tokens, sent, lease), nil
	case a.channel == nil:
		return nil, ErrHeld
	case wasAnnounced && len(a.terms.keys) > 1:
		// One of the keys was lost, and a wait is to hold none.
		a.startAnew()
	case isTicket:
		return nil, errors.New("redislock: the server takes no waits: is it a replica?")
	case a.ticket == nil:
		return nil, a.listen(ctx, nil)
	}
	return nil, nil
}

// mustExist is the error of a semaphore that nobody has created: the server has its requests wait until somebody does.
// It is asked for once, because a wait goes on when a semaphore is deleted and created again. (A user that may not ask
// waits, too.)
func (a *acquisition) mustExist(ctx context.Context) error {
	if !a.terms.isPermit || a.terms.permits > 0 || a.isAskedFor {
		return nil
	}
	a.isAskedFor = true
	reply, err := a.client.do(ctx, Command{[]any{"EXISTS", a.terms.keys[0]}, 1})
	if err != nil || reply != int64(0) {
		return nil
	}
	return fmt.Errorf("%w: %s: Set creates it, or WithPermits", ErrNoSemaphore, a.terms)
}

// listen subscribes; not where the server does not know of this subscription.
func (a *acquisition) listen(ctx context.Context, unknown *subscription) error {
	if a.ticket == nil {
		a.ticket = a.client.waits.open(ctx, a.channel)
	}
	return a.client.waits.subscribe(ctx, a.channel, unknown)
}

// refused handles a request that was refused, or had no answer.
func (a *acquisition) refused(ctx context.Context, err error, heard *subscription) error {
	code := codeOf(err)
	a.isAnswered = a.isAnswered || code != ""
	a.isUnanswered = a.isUnanswered || mayBeServed(err)
	switch {
	case code == "NOSUBSCRIBER":
		if a.outage.unknown++; a.outage.unknown%maxUnknown == 0 {
			err = errors.New("redislock: the server finds no subscriber of the channel of this wait: is a proxy between?")
			return errors.Join(err, a.listen(ctx, heard))
		}
		return a.listen(ctx, heard)
	case code == "LOCKDELAY" && a.channel != nil && a.ticket == nil:
		// A ticket waits.
		return a.listen(ctx, nil)
	}
	return err
}

// passes tells whether the wait goes on after this error.
func (a *acquisition) passes(err error) bool {
	code := codeOf(err)
	switch {
	case errors.Is(err, ErrHeld) || isHopeless(err):
		return false
	case code == "" && a.outage.failures == 0 && a.isUnanswered && !a.isAnswered && !isTimeout(err):
		// The connection may have broken since its last use.
		return true
	case code == "READONLY":
		return a.place != outside
	}
	return a.channel != nil && a.isAnswered && mayPass(err)
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// pause is longer after more failures, and where the server has no place for the wait.
func (a *acquisition) pause(err error) time.Duration {
	if codeOf(err) == "LOCKBUSY" {
		return 2 * longestPause
	}
	return min(firstPause<<min(a.outage.failures, 10), longestPause)
}

// failed notes a failure, and warns when they last.
func (a *acquisition) failed(err error) {
	a.place = min(a.place, queued)
	now := time.Now()
	if a.outage.failures++; a.outage.failures == 1 {
		a.outage.since = now
	}
	if now.Sub(a.outage.since) < warnsAfter || now.Sub(a.outage.warned) < warnsEvery {
		return
	}
	a.outage.warned = now
	a.client.warn("the wait goes on, but its server cannot be reached", a.terms.String(), err,
		"for", now.Sub(a.outage.since).Round(time.Second))
}

// wait waits in the queue for a reason to ask again.
func (a *acquisition) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-a.ticket.over:
		return context.DeadlineExceeded
	case <-time.After(jittered(longestTicket * 3 / 4)):
		// Spread, because many waits may have started at the same moment.
	case message := <-a.ticket.messages:
		word, rest, _ := strings.Cut(message, " ")
		switch {
		case word == "granted":
			a.place = announced
		case word == "failed":
			a.place = outside
			err := &ServerError{rest, "the wait was ended"}
			if !a.passes(err) {
				return err
			}
			sleep(ctx, jittered(a.pause(err)))
		}
	}
	return nil
}

// startAnew gives up what this owner has; the next request has another one.
func (a *acquisition) startAnew() {
	a.giveUp()
	a.renameOwner()
}

// giveUp ends what the server has of this acquisition, or may get yet. What a named owner has without an answer is left
// to its lease: another process may hold the lock under this name.
func (a *acquisition) giveUp() {
	if a.place != outside || a.isUnanswered && a.terms.owner == "" {
		until := time.Now().Add(max(a.terms.lease, a.client.patience))
		a.client.release(a.terms, a.terms.giveUp(a.owner, nil), until, false)
	}
	a.place, a.isUnanswered = outside, false
}
