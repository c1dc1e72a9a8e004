// Package viagoredis makes locks on a client of go-redis.
package viagoredis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	redislock "redis-lock.invalid/clients/go"
	"redis-lock.invalid/clients/go/internal/closing"
)

// How often a subscription is probed. It is closed when a probe is not answered until the next but one.
const beat = 2 * time.Second

// New makes a client for locks on a client of go-redis, which stays the program's: a [redis.Client], also that of
// NewFailoverClient, or a [redis.ClusterClient]. All else is [redislock.ErrUsage]. A Ring does not say which of its
// servers has answered. A type of the program around a client does not say whether it is a cluster's, nor where its
// messages come from: give the client inside. What its hooks do (AddHook: traces, metrics) they do here, too.
func New(client redis.UniversalClient, options ...redislock.ClientOption) (*redislock.Client, error) {
	t := &transport{client: client, nodes: map[string]*node{}}
	t.single, _ = client.(*redis.Client)
	t.cluster, _ = client.(*redis.ClusterClient)
	if t.single == nil && t.cluster == nil {
		return nil, fmt.Errorf("%w: viagoredis.New takes a *redis.Client or a *redis.ClusterClient, not a %T: give the "+
			"client inside, with hooks (AddHook) for what is around it", redislock.ErrUsage, client)
	}
	return redislock.New(t, options...)
}

type transport struct {
	// The client, and one of these.
	client  redis.UniversalClient
	single  *redis.Client
	cluster *redis.ClusterClient
	closed  closing.Errors
	mu      sync.Mutex
	// The subscribed connections, by the addresses of their nodes.
	nodes map[string]*node
}

// request is a command that go-redis does not repeat by itself: what was sent twice and answered once may be served
// late, and the lock has to know.
type request struct{ *redis.Cmd }

func (request) NoRetry() bool { return true }

func (t *transport) IsCluster() bool { return t.cluster != nil }

// EndsWithin: on a connection that is free go-redis waits for the reply alone. One that has ended meanwhile, or that
// another goroutine takes, is followed by a new one, for which the functions of the program have no bound. A client of a
// cluster may do more.
func (t *transport) EndsWithin(limit time.Duration) bool {
	if t.single == nil {
		return false
	}
	options := t.single.Options()
	if options.OnConnect != nil || options.CredentialsProvider != nil || options.CredentialsProviderContext != nil ||
		options.StreamingCredentialsProvider != nil || options.Limiter != nil {
		return false
	}
	return options.ReadTimeout > 0 && options.ReadTimeout <= limit && t.single.PoolStats().IdleConns > 0
}

func (t *transport) Do(ctx context.Context, commands ...redislock.Command) []redislock.Reply {
	return t.do(ctx, t.client, commands)
}

// DoApart takes a connection of the pool, which has as much longer to answer.
func (t *transport) DoApart(
	ctx context.Context, key string, blocks time.Duration, commands ...redislock.Command,
) []redislock.Reply {
	node := t.single
	if t.cluster != nil {
		var err error
		if node, err = t.cluster.MasterForKey(ctx, key); err != nil {
			return slices.Repeat([]redislock.Reply{{Err: t.translated(err)}}, len(commands))
		}
	}
	if timeout := node.Options().ReadTimeout; timeout > 0 {
		node = node.WithTimeout(timeout + blocks)
	}
	conn := node.Conn()
	defer conn.Close()
	last := len(commands) - 1
	replies := t.do(ctx, conn, commands[:last])
	if !slices.ContainsFunc(replies, func(reply redislock.Reply) bool { return reply.Value != int64(1) }) {
		return append(replies, t.do(ctx, conn, commands[last:])...)
	}
	if t.cluster != nil {
		t.cluster.ReloadState(ctx)
	}
	return append(replies, redislock.Reply{})
}

// sender is a client of go-redis, or a connection.
type sender interface {
	Process(context.Context, redis.Cmder) error
	Pipeline() redis.Pipeliner
}

func (t *transport) do(ctx context.Context, client sender, commands []redislock.Command) []redislock.Reply {
	requests := make([]request, len(commands))
	for i, command := range commands {
		requests[i] = request{redis.NewCmd(ctx, command.Words...)}
		requests[i].SetFirstKeyPos(int8(command.Key))
	}
	if len(requests) == 1 {
		_ = client.Process(ctx, requests[0])
	} else {
		pipe := client.Pipeline()
		for _, request := range requests {
			_ = pipe.Process(ctx, request)
		}
		_, _ = pipe.Exec(ctx)
	}
	replies := make([]redislock.Reply, len(commands))
	for i, request := range requests {
		value, err := request.Result()
		replies[i] = redislock.Reply{Value: value, Err: t.translated(err)}
	}
	return replies
}

func (t *transport) translated(err error) error {
	refusal, isRefusal := errors.AsType[redis.Error](err)
	isClosed := errors.Is(err, redis.ErrClosed)
	switch areFinal := t.closed.AreFinal(isClosed); {
	case areFinal || isClosed && t.cluster == nil:
		return fmt.Errorf("%w: %w", redislock.ErrClosed, err)
	case errors.Is(err, redis.Nil):
		return nil
	case isRefusal:
		return redislock.Refusal(refusal.Error())
	}
	return err
}

func (t *transport) Node(ctx context.Context, key string) string {
	if t.cluster != nil {
		if node, err := t.cluster.MasterForKey(ctx, key); err == nil {
			return node.Options().Addr
		}
	}
	return ""
}

// node is a subscribed connection. It ends at the first error: go-redis would connect again in silence, and messages
// would be lost.
type node struct {
	transport *transport
	name      string
	pubsub    *redis.PubSub
	// By the channel, under the mutex of the transport.
	listeners map[string]*listener
	isHeard   bool
	ended     chan struct{}
}

type listener struct {
	confirmed func()
	heard     func(string)
	ended     chan error
}

func (t *transport) Listen(ctx context.Context, channel string, confirmed func(), heard func(string)) error {
	of := t.single
	if t.cluster != nil {
		var err error
		if of, err = t.cluster.MasterForKey(ctx, channel); err != nil {
			return err
		}
	}
	name := of.Options().Addr
	own := &listener{confirmed, heard, make(chan error, 1)}
	t.mu.Lock()
	at := t.nodes[name]
	if at == nil {
		at = &node{t, name, of.Subscribe(context.Background()), map[string]*listener{}, true, make(chan struct{})}
		t.nodes[name] = at
		go at.listen()
		go at.probe()
	}
	at.listeners[channel] = own
	t.mu.Unlock()
	// go-redis connects here, for as long as it takes.
	go func() {
		if err := at.subscribe(ctx, channel); err != nil {
			at.end(err)
		}
	}()
	select {
	case err := <-own.ended:
		return t.translated(err)
	case <-ctx.Done():
		at.leave(channel)
		return ctx.Err()
	}
}

func (n *node) subscribe(ctx context.Context, channels ...string) error {
	if n.transport.cluster != nil {
		return n.pubsub.SSubscribe(ctx, channels...)
	}
	return n.pubsub.Subscribe(ctx, channels...)
}

// leave ends a subscription, and the connection with the last one. (Until then the server sends what nothing reads.)
func (n *node) leave(channel string) {
	n.transport.mu.Lock()
	delete(n.listeners, channel)
	isLast := len(n.listeners) == 0
	n.transport.mu.Unlock()
	if isLast {
		n.end(context.Canceled)
	}
}

// end closes the connection; all that listen here learn why.
func (n *node) end(err error) {
	n.transport.mu.Lock()
	if n.transport.nodes[n.name] == n {
		delete(n.transport.nodes, n.name)
		close(n.ended)
		go n.pubsub.Close() // waits where go-redis is just connecting
	}
	for channel, listener := range n.listeners {
		delete(n.listeners, channel)
		listener.ended <- err
	}
	n.transport.mu.Unlock()
	if n.transport.cluster != nil {
		n.transport.cluster.ReloadState(context.Background())
	}
}

// listen handles what comes on the connection.
func (n *node) listen() {
	for {
		event, err := n.pubsub.Receive(context.Background())
		if err != nil {
			n.end(err)
			return
		}
		n.transport.mu.Lock()
		n.isHeard = true
		var at *listener
		switch event := event.(type) {
		case *redis.Message:
			at = n.listeners[event.Channel]
		case *redis.Subscription:
			if at = n.listeners[event.Channel]; at != nil && event.Kind == "sunsubscribe" {
				// The slot is another node's now.
				delete(n.listeners, event.Channel)
				at.ended <- errors.New("viagoredis: the slot has moved")
				n.transport.cluster.ReloadState(context.Background())
				at = nil
			}
		}
		n.transport.mu.Unlock()
		if message, isMessage := event.(*redis.Message); at != nil && isMessage {
			at.heard(message.Payload)
		} else if at != nil {
			at.confirmed()
		}
	}
}

// probe subscribes again from time to time, which changes nothing and needs no further permission.
func (n *node) probe() {
	for ticker := time.NewTicker(beat); ; {
		select {
		case <-n.ended:
			ticker.Stop()
			return
		case <-ticker.C:
		}
		n.transport.mu.Lock()
		wasHeard := n.isHeard
		n.isHeard = false
		channels := slices.Collect(maps.Keys(n.listeners))
		n.transport.mu.Unlock()
		if !wasHeard {
			n.end(errors.New("viagoredis: the subscription is silent"))
		} else if len(channels) > 0 {
			go n.subscribe(context.Background(), channels[0])
		}
	}
}
