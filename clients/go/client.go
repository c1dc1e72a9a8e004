// Package redislock has distributed locks on a Redis or Valkey server with the redis-lock module, on the client library
// that the program has: New of package viagoredis takes a client of go-redis, that of viarueidis one of rueidis.
//
// The server queues the waiters and grants the lock in order, so no waiter polls. Every grant has a fencing token. A
// held lock is renewed; [Hold.Context] ends when it is lost, before another owner can have it.
package redislock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Command is a command of the server.
type Command struct {
	// Words are the name and the arguments, each a string.
	Words []any
	// Key is the place of the first key among them; 0: it has none.
	Key int
}

// Reply is the reply to a command: an int64, a string, a []any, a map, or nil; or an error, that of the server by
// [Refusal].
type Reply struct {
	Value any
	Err   error
}

// Transport is what this package needs of a client library. Packages viagoredis and viarueidis have it; its methods
// are called by many goroutines.
type Transport interface {
	// Do sends commands in one pipeline, to the nodes that serve their keys, and returns their replies in order. No
	// command is repeated after an error of the connection. After the end of the context nothing waits for it. The error
	// of a client that the program has closed is [ErrClosed].
	Do(ctx context.Context, commands ...Command) []Reply
	// Listen subscribes to a channel, in a cluster a shard channel at the node that serves it. It calls confirmed when
	// the server has confirmed that, and heard for each message; neither blocks. It returns when the context or the
	// subscription ends: what was subscribed is not subscribed again.
	Listen(ctx context.Context, channel string, confirmed func(), heard func(message string)) error
	// Node names what serves the key: commands of one name are sent together, those of several names apart, so that a
	// node that hangs delays only its own. Empty when it is not known.
	Node(ctx context.Context, key string) string
	// IsCluster tells whether keys are spread over nodes by their slots.
	IsCluster() bool
}

// Bounded is a [Transport] whose requests may end by themselves. Those that no caller can end run in the goroutines of
// their callers then: another goroutine for each costs as much as the request.
type Bounded interface {
	// EndsWithin tells whether a command that is sent now ends within this time, whatever the server does.
	EndsWithin(limit time.Duration) bool
}

// Blocking is a [Transport] that can wait for replicas ([WithReplicas]).
type Blocking interface {
	// DoApart sends commands over one connection, to the node that serves this key, and returns their replies in order.
	// The last one blocks that connection for this time at most: it follows when all others were answered 1, else its
	// reply is empty. No other request waits for it.
	DoApart(ctx context.Context, key string, blocks time.Duration, commands ...Command) []Reply
}

// Attached is a [Transport] to a server in this process, which has a clock of its own.
type Attached interface {
	// Attach is called by [New], with a function that has this time pass for the client, perhaps none: it renews what it
	// would have renewed meanwhile, and ends the waits whose bound is over. All losses are reported when it returns.
	Attach(pass func(by time.Duration))
}

// ClientOption is an option of [New].
type ClientOption func(*Client)

// WithLogger sets where warnings go: a loss that nothing listens to, a wait that cannot reach its server, a release
// that had no answer. The default is [slog.Default], as it is at that time.
func WithLogger(logger *slog.Logger) ClientOption {
	return func(c *Client) { c.logger = logger }
}

// WithResponseTimeout sets how long a release waits for the server (5 s).
func WithResponseTimeout(limit time.Duration) ClientOption {
	return func(c *Client) { c.patience = limit }
}

// Client makes locks. Share one in a process: all its waits have one subscription to each node, and one timer renews
// all that it holds.
type Client struct {
	transport Transport
	id        string
	logger    *slog.Logger
	patience  time.Duration
	// The waits end with the first, all else with the second.
	open, running   context.Context
	closing, ending context.CancelFunc
	waits           waits

	// The last number that an owner or a ticket has.
	number atomic.Uint64
	mu     sync.Mutex
	holds  map[*Hold]struct{}
	timer  *time.Timer
	events events
	// When the timer fires.
	planned time.Time
	// The calls and the goroutines that are under way, and what is closed when there is none.
	tasks int
	quiet chan struct{}
	// A turn to send a release in the background.
	releases chan struct{}
	// What ends the present releases when they have no answer.
	releasing context.Context
}

// New makes a client on a transport: programs call New of viagoredis or viarueidis.
func New(transport Transport, options ...ClientOption) (*Client, error) {
	c := &Client{
		transport: transport,
		id:        rand.Text(),
		patience:  5 * time.Second,
		holds:     map[*Hold]struct{}{},
		quiet:     make(chan struct{}),
		releases:  make(chan struct{}, maxInFlight),
	}
	c.open, c.closing = context.WithCancel(context.Background())
	c.running, c.ending = context.WithCancel(context.Background())
	c.releasing = c.running
	c.waits = waits{client: c, channels: map[int]*channel{}, tickets: map[uint64]*ticket{}}
	for _, option := range options {
		option(c)
	}
	if err := require(c.patience > 0, "the response timeout is longer than nothing"); err != nil {
		return nil, err
	}
	if attached, isAttached := transport.(Attached); isAttached {
		attached.Attach(c.pass)
	}
	return c, nil
}

// pass is the function of [Attached].
func (c *Client) pass(by time.Duration) {
	c.mu.Lock()
	holds := slices.Collect(maps.Keys(c.holds))
	for _, waiting := range c.waits.tickets {
		waiting.pass(by)
	}
	c.mu.Unlock()
	for _, hold := range holds {
		hold.pass(by)
	}
}

// begin counts a call; false after the end.
func (c *Client) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running.Err() != nil {
		return false
	}
	c.tasks++
	return true
}

func (c *Client) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tasks--; c.tasks == 0 && c.open.Err() != nil {
		close(c.quiet)
		c.quiet = make(chan struct{})
	}
}

// start runs a function in the background.
func (c *Client) start(task func()) {
	if c.begin() {
		go func() {
			defer c.end()
			task()
		}()
	}
}

func (c *Client) do(ctx context.Context, command Command) (any, error) {
	reply := c.send(ctx, command)[0]
	return reply.Value, reply.Err
}

// lenient is a context that this client alone ends, with the values of one that cannot end. A request may outlast it
// when it ends within the response timeout.
type lenient struct {
	context.Context
	values context.Context
}

func (l lenient) Value(key any) any { return l.values.Value(key) }

// whileReleasing is a context for a release. Those of a sixteenth of the time share it: each new timer that is the next
// one to fire wakes a thread.
func (c *Client) whileReleasing() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if end, isBound := c.releasing.Deadline(); !isBound || time.Until(end) < c.patience-c.patience/16 {
		ctx, cancel := context.WithTimeout(c.running, c.patience)
		_ = cancel // it ends by itself
		c.releasing = lenient{ctx, context.Background()}
	}
	return c.releasing
}

// send sends commands, and returns when the context ends: the client libraries do not while they connect, or write.
func (c *Client) send(ctx context.Context, commands ...Command) []Reply {
	bounded, isBounded := c.transport.(Bounded)
	_, isLenient := ctx.(lenient)
	if isLenient && isBounded && len(commands) == 1 && bounded.EndsWithin(c.patience) || ctx.Done() == nil {
		return c.transport.Do(ctx, commands...)
	}
	return during(ctx, len(commands), func() []Reply { return c.transport.Do(ctx, commands...) })
}

// during returns the replies to so many commands, or the error of the context when it ends.
func during(ctx context.Context, count int, do func() []Reply) []Reply {
	done := make(chan []Reply, 1)
	go func() { done <- do() }()
	select {
	case replies := <-done:
		return replies
	case <-ctx.Done():
		return slices.Repeat([]Reply{{Err: ctx.Err()}}, count)
	}
}

// warn writes to the log. The handler is the program's and may block, so nothing waits for it.
func (c *Client) warn(text, lock string, err error, more ...any) {
	go cmp.Or(c.logger, slog.Default()).Warn("redislock: "+text, append(more, "lock", lock, "error", err)...)
}

// Close ends the waits, releases what is held, and returns when all is done, after the response timeout and two seconds
// at the latest. The client of the program stays open. It may be called anywhere, also in a function of [WithOnLost].
func (c *Client) Close() error {
	c.closing()
	c.mu.Lock()
	holds := slices.Collect(maps.Keys(c.holds))
	c.mu.Unlock()
	for _, hold := range holds {
		hold.abandon()
	}
	c.waits.close()
	err := c.settle(c.patience)
	c.ending()
	return errors.Join(err, c.settle(2*time.Second))
}

// settle waits until nothing is under way.
func (c *Client) settle(limit time.Duration) error {
	end := time.After(limit)
	for {
		c.mu.Lock()
		tasks, quiet := c.tasks, c.quiet
		c.mu.Unlock()
		if tasks == 0 {
			return nil
		}
		select {
		case <-quiet:
		case <-end:
			return fmt.Errorf("redislock: %d requests are unanswered", tasks)
		}
	}
}

// plan has the timer fire at this time at the latest. The mutex is held.
func (c *Client) plan(at time.Time) {
	if c.timer == nil {
		c.timer = time.AfterFunc(time.Until(at), c.tick)
	} else if at.Before(c.planned) || c.planned.IsZero() {
		c.timer.Reset(time.Until(at))
	} else {
		return
	}
	c.planned = at
}

func (c *Client) planFor(hold *Hold) {
	c.plan(hold.renewAt)
	c.plan(hold.lostAt)
}

// tick reports the losses whose time has come, and renews what is due, together with what will be soon.
func (c *Client) tick() {
	now := time.Now()
	var lost, due []*Hold
	c.mu.Lock()
	c.planned = time.Time{}
	isDue := false
	for hold := range c.holds {
		isDue = isDue || !hold.renewAt.After(now)
	}
	for hold := range c.holds {
		if hold.isOver(now) {
			lost = append(lost, hold)
			continue
		}
		if isDue {
			hold.noteLate()
			if !hold.renewAt.After(now.Add(hold.lease/10)) && hold.renewal() {
				due = append(due, hold)
			}
		}
		c.planFor(hold)
	}
	c.mu.Unlock()
	for _, hold := range lost {
		hold.lose(hold.reason())
	}
	if len(due) > 0 {
		c.start(func() { c.renew(due) })
	}
}

// renew renews these holds, each node's in pipelines of its own.
func (c *Client) renew(due []*Hold) {
	nodes := map[string][]*Hold{}
	for _, hold := range due {
		node := c.transport.Node(c.running, hold.terms.keys[0])
		nodes[node] = append(nodes[node], hold)
	}
	for _, holds := range nodes {
		for len(holds) > 0 {
			part := holds[:min(len(holds), maxPipeline)]
			holds = holds[len(part):]
			c.start(func() { c.renewTogether(part) })
		}
	}
}

func (c *Client) renewTogether(holds []*Hold) {
	var commands []Command
	certain := make([]time.Duration, len(holds))
	limit := c.patience
	sent := newMoment()
	c.mu.Lock()
	for i, hold := range holds {
		var lease time.Duration
		lease, certain[i] = hold.request()
		commands = append(commands, hold.terms.renew(hold.owner, hold.tokens, lease)...)
		limit = min(limit, hold.lease/6)
	}
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.running, max(limit, time.Millisecond))
	defer cancel()
	replies := c.sendRenewals(ctx, commands, holds...)
	for i, hold := range holds {
		hold.renewed(replies[:len(hold.tokens)], certain[i], sent)
		replies = replies[len(hold.tokens):]
	}
}

// release sends a release in the background, until it is answered or until the end. The result comes on the channel.
func (c *Client) release(terms *terms, commands []Command, until time.Time, ofHold bool) <-chan error {
	result := make(chan error, 1)
	c.start(func() {
		var err error
		for pause := firstPause; ; pause = min(2*pause, longestPause) {
			select {
			case c.releases <- struct{}{}:
			case <-c.running.Done():
				result <- ErrClosed
				return
			}
			_, err = released(c.send(c.running, commands...))
			<-c.releases
			if err == nil || !mayPass(err) || time.Now().Add(pause).After(until) || !sleep(c.running, jittered(pause)) {
				break
			}
		}
		result <- err
		isAnswered := err == nil || isOverwritten(err)
		c.events.count(func(s *Statistics) {
			if !isAnswered {
				s.ReleasesFailed++
			} else if ofHold {
				s.Releases++
			}
		})
		if !isAnswered {
			c.warn("not released: what is held ends with its lease", terms.String(), err)
		}
	})
	return result
}

// released tells whether all were held, by the replies to the end of a hold, or the first error among them.
func released(replies []Reply) (wasHeld bool, err error) {
	wasHeld = true
	for _, reply := range replies {
		if reply.Err != nil {
			return false, reply.Err
		}
		wasHeld = wasHeld && reply.Value == int64(1)
	}
	return wasHeld, nil
}
