package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// The bytes of a note.
	maxNote = 256
	// What clocks can still represent.
	longestLease = 100 * 365 * 24 * time.Hour
)

// Option is an option of all that is held.
type Option interface {
	LockOption
	SemaphoreOption
}

// LockOption is an option of [Client.NewLock].
type LockOption interface{ ofLock(*terms) }

// SemaphoreOption is an option of [Client.NewSemaphore].
type SemaphoreOption interface{ ofSemaphore(*terms) }

type (
	option          func(*terms)
	lockOption      func(*terms)
	semaphoreOption func(*terms)
)

func (o option) ofLock(t *terms)               { o(t) }
func (o option) ofSemaphore(t *terms)          { o(t) }
func (o lockOption) ofLock(t *terms)           { o(t) }
func (o semaphoreOption) ofSemaphore(t *terms) { o(t) }

// WithLease sets how long the server keeps what is held when no renewal comes (30 s): 2 ms to a hundred years, in whole
// milliseconds.
func WithLease(lease time.Duration) Option {
	return option(func(t *terms) { t.lease = lease.Truncate(time.Millisecond) })
}

// WithMargin sets how long before the end of the lease a loss is reported when no renewal is confirmed: the time to
// stop. A sixth of the lease by default, at most half of it.
func WithMargin(margin time.Duration) Option {
	return option(func(t *terms) { t.margin, t.hasMargin = margin, true })
}

// WithMaxHold bounds the time of a hold in spite of renewals, for a program that hangs. It is reported as a loss.
func WithMaxHold(limit time.Duration) Option {
	return option(func(t *terms) {
		t.maxHold = limit
		t.require(limit >= time.Millisecond, "the longest time of a hold is at least a millisecond")
	})
}

// WithoutRenewal makes the lease the longest time of a hold.
func WithoutRenewal() Option {
	return option(func(t *terms) { t.isFixed = true })
}

// WithOnLost sets a function that is called once in a goroutine of its own when a hold is lost, with the cause. Nothing
// waits for it.
func WithOnLost(function func(*Hold, error)) Option {
	return option(func(t *terms) { t.onLost = function })
}

// WithOwner names the owner, to acquire in one process and release in another. By default each acquisition has a fresh
// one. The server takes two requests of one owner for one: both hold the lock. A request without an answer may be
// granted late, and then lasts for its lease.
func WithOwner(owner string) Option {
	return option(func(t *terms) {
		t.owner = owner
		t.require(owner != "", "the name of an owner is not empty")
		t.require(!strings.HasPrefix(owner, "#"), "owners that begin with '#' are reserved")
	})
}

// WithReplicas has a grant count only when so many replicas have it (1 to 100), by WAIT after each grant; else it is
// given up, and the error is [ErrNotReplicated]. A fail-over to one of them then finds the lock held.
func WithReplicas(count int) Option {
	return option(func(t *terms) {
		t.replicas = count
		t.require(count >= 1 && count <= 100, "a grant is waited for on 1 to 100 replicas")
	})
}

// WithReplicasWithin sets how long the replicas of [WithReplicas] have (100 ms).
func WithReplicasWithin(limit time.Duration) Option {
	return option(func(t *terms) {
		t.replicasWithin = limit
		t.require(limit >= time.Millisecond && limit <= longestLease, "replicas have a millisecond at least")
	})
}

// WithQueue has an acquisition wait only if fewer than so many others wait (0 to 1000000; 0: it does not wait);
// else its error is [ErrQueueFull] at once. A free lock is granted in any case.
func WithQueue(requests int) Option {
	return option(func(t *terms) {
		t.queue = strconv.Itoa(requests)
		t.require(requests >= 0 && requests <= 1_000_000, "a queue has 0 to 1000000 requests")
	})
}

// WithNote sets a text beside the hold of an exclusive lock, at most 256 bytes, for those who look (LOCK.INFO).
func WithNote(note string) LockOption {
	return lockOption(func(t *terms) { t.note = note })
}

// WithPermits has an acquisition create a semaphore with so many permits when there is none.
func WithPermits(permits int) SemaphoreOption {
	return semaphoreOption(func(t *terms) {
		t.permits = permits
		t.require(permits > 0 && permits <= math.MaxInt32, "a semaphore is created with 1 to 2147483647 permits")
	})
}

// WithCount has an acquisition take so many permits in one step, all or none (1 to 64; 1 by default). They are one
// hold: renewed and released together. More than the semaphore has are waited for until [Semaphore.Set] raises their
// number.
func WithCount(permits int) SemaphoreOption {
	return semaphoreOption(func(t *terms) {
		t.count = permits
		t.require(permits >= 1 && permits <= 64, "an acquisition takes 1 to 64 permits")
	})
}

// terms are what an acquisition asks for.
type terms struct {
	keys []string
	// READ, WRITE, or empty: exclusive.
	mode          string
	isPermit      bool
	owner         string
	lease, margin time.Duration
	hasMargin     bool
	maxHold       time.Duration
	isFixed       bool
	note          string
	permits       int
	// The permits that are taken in one step.
	count int
	// The most requests that may wait before this one, if there is a bound.
	queue string
	// The replicas that have to have a grant, and the time that they have.
	replicas       int
	replicasWithin time.Duration
	onLost         func(*Hold, error)
	// What is wrong with the options.
	wrong error
}

// newLock is the lock of these keys with these options, which are applied as those of its kind.
func newLock[O any](c *Client, keys []string, options []O, apply func(O, *terms)) *Lock {
	t := &terms{keys: keys, lease: 30 * time.Second, replicasWithin: 100 * time.Millisecond, count: 1}
	for _, option := range options {
		apply(option, t)
	}
	return &Lock{c, t}
}

// require is an error where something does not hold: the server would not say all of it.
func require(holds bool, text string) error {
	if holds {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrUsage, text)
}

// require notes what is wrong with an option by itself.
func (t *terms) require(holds bool, text string) { t.wrong = cmp.Or(t.wrong, require(holds, text)) }

// check returns what is wrong with the terms.
func (t *terms) check() error {
	return cmp.Or(t.wrong,
		requireLease(t.lease),
		require(t.mode == "" || t.owner != "mode" && !strings.HasSuffix(t.owner, ":write"),
			"the owner 'mode', or one that ends in ':write', cannot hold for reading or writing"),
		require(t.margin >= 0 && t.margin <= t.lease/2,
			"the margin is at most half of the lease, because before it the lock is renewed, and not negative"),
		require(len(t.keys) > 0, "a lock of several keys has one at least"),
		require(len(t.note) <= maxNote, "a note has at most 256 bytes"))
}

func (t *terms) requireOneKey() error {
	return require(len(t.keys) == 1, "this is for a lock of one key")
}

func requireLease(span time.Duration) error {
	return require(span >= 2*time.Millisecond && span <= longestLease, "a lease lasts two milliseconds to a hundred years")
}

func (t *terms) String() string { return strings.Join(t.keys, ", ") }

// marginOf is the margin of a lease that may be shorter than that of the terms.
func (t *terms) marginOf(lease time.Duration) time.Duration {
	if !t.hasMargin {
		return lease / 6
	}
	return min(t.margin, lease/2)
}

func (t *terms) firstLease() time.Duration {
	if t.maxHold > 0 {
		return max(min(t.lease, t.maxHold.Truncate(time.Millisecond)), time.Millisecond)
	}
	return t.lease
}

func millis(span time.Duration) string { return strconv.FormatInt(span.Milliseconds(), 10) }

// acquire is the request: the tokens, or nil. Sent twice, it is granted once.
func (t *terms) acquire(owner string) Command {
	// Room for all words of a lock that is waited for.
	words, key := append(make([]any, 0, 16), "LOCK.ACQUIRE", t.keys[0], owner), 1
	if t.isPermit {
		words[0] = "SEM.ACQUIRE"
	} else if len(t.keys) > 1 {
		words, key = append(words[:0], "LOCK.MACQUIRE", strconv.Itoa(len(t.keys))), 2
		for _, word := range append(slices.Clone(t.keys), owner) {
			words = append(words, word)
		}
	}
	words = append(words, t.inMode("PX", millis(t.firstLease()))...)
	if !t.isPermit {
		words = append(words, "ONCE")
	} else if t.permits > 0 {
		words = append(words, "LIMIT", strconv.Itoa(t.permits))
	}
	if t.count > 1 {
		words = append(words, "COUNT", strconv.Itoa(t.count))
	}
	if t.owner == "" {
		words = append(words, "SEQ", "1")
	}
	if t.note != "" {
		words = append(words, "NOTE", t.note)
	}
	return Command{words, key}
}

// inMode has the mode before these words.
func (t *terms) inMode(words ...any) []any {
	if t.mode == "" {
		return words
	}
	return append([]any{t.mode}, words...)
}

// each is a command for each key, with its token where the hold has one.
func (t *terms) each(verb any, owner string, tokens []int64, words ...any) []Command {
	commands := make([]Command, len(t.keys))
	for i, key := range t.keys {
		all := append(append(make([]any, 0, 8), verb, key, owner), words...)
		if t.isPermit {
			all[0] = strings.Replace(verb.(string), "LOCK", "SEM", 1)
		} else if tokens != nil {
			all = append(all, "TOKEN", strconv.FormatInt(tokens[i], 10))
		}
		commands[i] = Command{all, 1}
	}
	return commands
}

func (t *terms) renew(owner string, tokens []int64, lease time.Duration) []Command {
	return t.each("LOCK.RENEW", owner, tokens, t.inMode("PX", millis(max(lease, time.Millisecond)))...)
}

// release ends a hold; without tokens also a wait.
func (t *terms) release(owner string, tokens []int64) []Command {
	if t.isPermit {
		return t.each("LOCK.RELEASE", owner, tokens)
	}
	return t.each("LOCK.RELEASE", owner, tokens, t.inMode("ALL")...)
}

// giveUp ends a hold, withdraws the wait, and of a fresh owner makes its requests final: one that the server meets
// later grants nothing.
func (t *terms) giveUp(owner string, tokens []int64) []Command {
	if t.owner != "" {
		return t.release(owner, tokens)
	}
	return t.each("LOCK.RELEASE", owner, nil, "FINAL", "1")
}

// granted returns the tokens of a reply to an acquire; nil when it was not granted.
func (t *terms) granted(reply any) ([]int64, error) {
	if reply == nil {
		return nil, nil
	}
	list, isList := reply.([]any)
	if !isList {
		list = []any{reply}
	}
	tokens := make([]int64, len(list))
	for i, value := range list {
		token, isNumber := value.(int64)
		if !isNumber {
			return nil, badReply(value)
		}
		tokens[i] = token
	}
	if len(tokens) != len(t.keys) {
		return nil, badReply(reply)
	}
	return tokens, nil
}

// Lock is a lock, or several locks. It has no state: many goroutines may use one, and each
// call of Lock is an acquisition of its own. It is not re-entrant.
type Lock struct {
	client *Client
	terms  *terms
}

// NewLock is the exclusive lock of this name, the key in the server.
func (c *Client) NewLock(name string, options ...LockOption) *Lock {
	return newLock(c, []string{name}, options, LockOption.ofLock)
}

// NewMultiLock is the lock of all these names together: all or none are acquired, in one step of the server, and a
// wait holds none of them. In a cluster they are in one slot. It is lost when one of them is.
func (c *Client) NewMultiLock(names []string, options ...Option) *Lock {
	return newLock(c, slices.Clone(names), options, Option.ofLock)
}

// ReadWriteLock has a lock for readers, which many hold at a time, and one for a writer.
type ReadWriteLock struct{ read, write *Lock }

// NewReadWriteLock is the read-write lock of this name.
func (c *Client) NewReadWriteLock(name string, options ...Option) *ReadWriteLock {
	of := func(mode string) *Lock {
		lock := newLock(c, []string{name}, options, Option.ofLock)
		lock.terms.mode = mode
		return lock
	}
	return &ReadWriteLock{of("READ"), of("WRITE")}
}

// Read is the lock of the readers.
func (l *ReadWriteLock) Read() *Lock { return l.read }

// Write is the lock of the writer.
func (l *ReadWriteLock) Write() *Lock { return l.write }

// Semaphore has permits. Token of a hold is no fencing token here, because several permits are valid at a time.
type Semaphore struct{ lock *Lock }

// NewSemaphore is the semaphore of this name. Until it is created, by Set or by an acquisition [WithPermits], an
// acquisition is [ErrNoSemaphore].
func (c *Client) NewSemaphore(name string, options ...SemaphoreOption) *Semaphore {
	lock := newLock(c, []string{name}, options, SemaphoreOption.ofSemaphore)
	lock.terms.isPermit = true
	return &Semaphore{lock}
}

// Set sets the number of permits. Permits that are held stay held.
func (s *Semaphore) Set(ctx context.Context, permits int) error {
	if err := require(permits >= 0 && permits <= math.MaxInt32, "a semaphore has 0 to 2147483647 permits"); err != nil {
		return err
	}
	words := []any{"SEM.SET", s.lock.terms.keys[0], strconv.Itoa(permits)}
	_, err := s.lock.client.do(ctx, Command{words, 1})
	return unanswered(err)
}

// Acquire takes a permit, and waits for one as [Lock.Lock] does.
func (s *Semaphore) Acquire(ctx context.Context) (*Hold, error) { return s.lock.Lock(ctx) }

// Run runs a function with a permit, as [Lock.Run] does under a lock.
func (s *Semaphore) Run(ctx context.Context, work func(context.Context, *Hold) error) error {
	return s.lock.Run(ctx, work)
}

// Resume takes over a permit as [Lock.Resume] does a lock. The server does not compare the token of a permit.
func (s *Semaphore) Resume(ctx context.Context, owner string, token int64) (*Hold, error) {
	return s.lock.Resume(ctx, owner, token)
}

// TryAcquire takes a permit if one is free; [ErrHeld] if not.
func (s *Semaphore) TryAcquire(ctx context.Context) (*Hold, error) { return s.lock.TryLock(ctx) }

// Lock acquires the lock, and waits in the queue of the server until it is granted or the context ends: then the wait
// is withdrawn, and the error is that of the context. A wait goes on when the connection breaks, and when the server
// starts again or fails over; it warns in the log after 3 s without an answer, and then every 30 s. But a first request
// that cannot be sent is an error at once, and so is a refusal: a [ServerError].
func (l *Lock) Lock(ctx context.Context) (*Hold, error) {
	return l.client.acquire(ctx, l.terms, true)
}

// TryLock acquires the lock if it is free; [ErrHeld] if not.
func (l *Lock) TryLock(ctx context.Context) (*Hold, error) {
	return l.client.acquire(ctx, l.terms, false)
}

// Resume takes over what another process has acquired, by its [Hold.Owner] and [Hold.Token]: the lease is set anew to
// that of this lock, and renewed from now on. [ErrLost] when it is not held any more; nothing is changed then. After
// [ErrNoAnswer] the lease may have been set. Not for several keys.
func (l *Lock) Resume(ctx context.Context, owner string, token int64) (*Hold, error) {
	terms := *l.terms
	WithOwner(owner).ofLock(&terms)
	return l.client.resume(ctx, &terms, token)
}

// Run acquires the lock as Lock does, runs the function, and releases the lock. The context of the function ends with
// that of the caller, and at a loss ([Hold.With]). Its error is returned, joined with that of the release: [ErrLost]
// where the lock was lost meanwhile, whatever the function says.
func (l *Lock) Run(ctx context.Context, work func(context.Context, *Hold) error) (err error) {
	hold, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	bound, cancel := hold.With(ctx)
	defer cancel()
	defer func() {
		if released := hold.Unlock(); released != nil && !errors.Is(released, ErrReleased) {
			err = errors.Join(err, released)
		}
	}()
	return work(bound, hold)
}

// Locker is this lock as a [sync.Locker]. Lock panics when the lock cannot be acquired, and Unlock when it was lost,
// as that of etcd's NewLocker does: the interface has no errors. Goroutines that share a locker exclude each other in
// the process.
func (l *Lock) Locker() sync.Locker { return &locker{lock: l} }

type locker struct {
	lock  *Lock
	local sync.Mutex
	hold  *Hold
}

func (l *locker) Lock() {
	l.local.Lock()
	hold, err := l.lock.Lock(context.Background())
	if err != nil {
		l.local.Unlock()
		panic(err)
	}
	l.hold = hold
}

func (l *locker) Unlock() {
	hold := l.hold
	if hold == nil {
		panic("redislock: unlock of a lock that is not locked")
	}
	l.hold = nil
	l.local.Unlock()
	switch err := hold.Unlock(); {
	case errors.Is(err, ErrLost):
		panic(err)
	case err != nil:
		l.lock.client.warn("the release goes on", l.lock.terms.String(), err)
	}
}

// Election is an election on a key: the leader is the holder of a lock, until it resigns, ends or loses its lease. Then
// the candidate that has waited longest is.
type Election struct {
	lock *Lock
}

// Leader is what is known of a leader.
type Leader struct {
	// Note is what it says of itself: its address, for example.
	Note string
	// Token is the fencing token of its leadership.
	Token int64
}

// NewElection is the election of this name, the key in the server.
func (c *Client) NewElection(name string, options ...Option) *Election {
	return &Election{newLock(c, []string{name}, options, Option.ofLock)}
}

// Campaign waits until the election has no leader, as [Lock.Lock] waits, and becomes the leader. [Election.Leader] and
// LOCK.INFO show the note, at most 256 bytes. [Hold.SetNote] replaces it, and [Hold.Unlock] resigns.
func (e *Election) Campaign(ctx context.Context, note string) (*Hold, error) {
	candidate := *e.lock.terms
	candidate.note = note
	return e.lock.client.acquire(ctx, &candidate, true)
}

// Leader is the present leader; [ErrNoLeader] when there is none.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	info, err := e.lock.Info(ctx)
	if err != nil {
		return Leader{}, err
	}
	if len(info.Holders) == 0 {
		return Leader{}, ErrNoLeader
	}
	return Leader{info.Holders[0].Note, info.Holders[0].Token}, nil
}

// Observe has the present leader, and then each other one, or the same with another note; [ErrNoLeader] while there is
// none, and other errors when the server cannot be asked. It asks after every third of the lease, so a shorter
// leadership may be left out. It ends with the context, with the range statement, and after an error that does not
// pass, as when the user may not run LOCK.INFO:
//
//	for leader, err := range election.Observe(ctx) {
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		var last string
		for {
			leader, err := e.Leader(ctx)
			if ctx.Err() != nil {
				return
			}
			if state := fmt.Sprint(leader, err); state != last {
				if last = state; !yield(leader, err) || !mayPass(err) {
					return
				}
			}
			if !sleep(ctx, e.lock.terms.lease/3) {
				return
			}
		}
	}
}
