package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Observer has functions that learn what a client does, for metrics and traces; one that is nil does not. They are
// called one after another, in the order of the events, and no lock waits for them. What they panic with is a warning.
type Observer struct {
	// Asked: an acquisition begins. The context is the caller's.
	Asked func(ctx context.Context, lock *Subject)
	// Answered: it has ended, and how long that took. Without a grant there is the error that the caller gets.
	Answered func(ctx context.Context, lock *Subject, granted bool, waited time.Duration, err error)
	// Released: a hold was released or left, whether or not the server has answered, and the time since its grant. Not
	// one that was lost.
	Released func(lock *Subject, held time.Duration)
	// Lost: a hold was lost before its release, which may be what finds it. [LossReason] has the reason in one word.
	Lost func(lock *Subject, reason error)
	// Late: no renewal is confirmed a third of the lease after one was due, and for how long it has been due.
	Late func(lock *Subject, by time.Duration)
}

// Subject is one acquisition of a lock, and the hold that comes of it: its events have the same pointer.
type Subject struct {
	// Name is that of the lock, of several the names with commas between.
	Name string
	// Kind is "exclusive", "read", "write" or "semaphore".
	Kind string
	// Granted is when it was granted; zero before.
	Granted time.Time
}

// WithObserver sets what learns what the client does.
func WithObserver(observer Observer) ClientOption {
	return func(c *Client) { c.events.observer = observer }
}

func (t *terms) subject() *Subject {
	kind := "exclusive"
	switch {
	case t.isPermit:
		kind = "semaphore"
	case t.mode == "READ":
		kind = "read"
	case t.mode == "WRITE":
		kind = "write"
	}
	return &Subject{Name: t.String(), Kind: kind}
}

// Statistics are what a client has done since it was made, and what it holds and waits for now.
type Statistics struct {
	// Acquisitions that were granted; that ended without the lock, because another owner held it or waited for it; and
	// that ended with an error. (Cancelled ones are not counted.)
	Acquisitions, AcquisitionsRefused, AcquisitionsFailed int64
	// Waits are acquisitions that waited in the server's queue.
	Waits int64
	// Renewals that the server confirmed, and attempts that it did not.
	Renewals, RenewalsFailed int64
	// Losses that were reported, also by a release.
	Losses int64
	// Releases that the server answered, and those, also of waits, that were given up.
	Releases, ReleasesFailed int64
	// Connections are the subscriptions for the messages that end waits.
	Connections int64
	// Holds, a gauge, are those that are not released, also lost ones; Waiting are the waits in the server's queue.
	Holds, Waiting int64
}

// Counters are the numbers that only grow, by the names that all client packages have.
func (s Statistics) Counters() map[string]int64 {
	return map[string]int64{
		"acquisitions": s.Acquisitions, "acquisitions_refused": s.AcquisitionsRefused,
		"acquisitions_failed": s.AcquisitionsFailed, "waits": s.Waits, "renewals": s.Renewals,
		"renewals_failed": s.RenewalsFailed, "losses": s.Losses, "releases": s.Releases,
		"releases_failed": s.ReleasesFailed, "connections": s.Connections,
	}
}

// Gauges are the present numbers, by the names that all client packages have.
func (s Statistics) Gauges() map[string]int64 {
	return map[string]int64{"holds": s.Holds, "waiting": s.Waiting}
}

// events has what a client counts, and what its observer is still to learn.
type events struct {
	observer Observer
	mu       sync.Mutex
	counts   Statistics
	queue    []func()
	isBusy   bool
}

// The most events that an observer may be behind; later ones are left out.
const maxBehind = 100_000

// Statistics counts what this client does.
func (c *Client) Statistics() Statistics {
	c.events.mu.Lock()
	defer c.events.mu.Unlock()
	return c.events.counts
}

func (e *events) count(change func(*Statistics)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.counts)
}

// tell has the observer learn of an event.
func (c *Client) tell(event func()) {
	e := &c.events
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.queue) < maxBehind {
		e.queue = append(e.queue, event)
	}
	if !e.isBusy {
		e.isBusy = true
		go c.deliver()
	}
}

// deliver has the observer learn of all events so far.
func (c *Client) deliver() {
	e := &c.events
	for {
		e.mu.Lock()
		queue := e.queue
		e.queue = nil
		e.isBusy = len(queue) > 0
		e.mu.Unlock()
		if len(queue) == 0 {
			return
		}
		for _, event := range queue {
			c.learn(event)
		}
	}
}

func (c *Client) learn(event func()) {
	defer func() {
		if panicked := recover(); panicked != nil {
			c.warn("an observer has panicked", "", fmt.Errorf("%v", panicked))
		}
	}()
	event()
}

// asked notes that an acquisition begins.
func (c *Client) asked(ctx context.Context, a *acquisition) {
	a.begun, a.subject = time.Now(), a.terms.subject()
	if asked := c.events.observer.Asked; asked != nil {
		subject := a.subject
		c.tell(func() { asked(ctx, subject) })
	}
}

// answered notes how it has ended: with a hold, or this error.
func (c *Client) answered(ctx context.Context, subject *Subject, begun time.Time, err error) {
	c.events.count(func(s *Statistics) {
		switch {
		case err == nil:
			s.Acquisitions++
			s.Holds++
		case errors.Is(err, ErrHeld) || err == context.DeadlineExceeded:
			s.AcquisitionsRefused++
		case !errors.Is(err, context.Canceled):
			s.AcquisitionsFailed++
		}
	})
	if answered := c.events.observer.Answered; answered != nil {
		waited := time.Since(begun)
		c.tell(func() { answered(ctx, subject, err == nil, waited, err) })
	}
}

// ended notes that the program, or the end of the client, has released or left a hold, after this time and with this
// error; it may have been lost before.
func (c *Client) ended(subject *Subject, held time.Duration, lost, err error) {
	c.events.count(func(s *Statistics) { s.Holds-- })
	switch released := c.events.observer.Released; {
	case lost != nil: // and told
	case errors.Is(err, ErrLost):
		c.lost(subject, err)
	case released != nil:
		c.tell(func() { released(subject, held) })
	}
}

func (c *Client) lost(subject *Subject, reason error) {
	c.events.count(func(s *Statistics) { s.Losses++ })
	if lost := c.events.observer.Lost; lost != nil {
		c.tell(func() { lost(subject, reason) })
	}
}

func (c *Client) late(subject *Subject, by time.Duration) {
	if late := c.events.observer.Late; late != nil {
		c.tell(func() { late(subject, by) })
	}
}
