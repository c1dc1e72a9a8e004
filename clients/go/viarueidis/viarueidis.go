// Package viarueidis makes locks on a client of rueidis.
package viarueidis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/rueidis"

	redislock "redis-lock.invalid/clients/go"
	"redis-lock.invalid/clients/go/internal/closing"
)

// New makes a client for locks on a client of rueidis, which stays the program's: close it after this one. Messages
// come on the connection of its requests (RESP3), as rueidis has it: the server's client-output-buffer-limit of class
// pubsub counts there.
func New(client rueidis.Client, options ...redislock.ClientOption) (*redislock.Client, error) {
	if client == nil {
		return nil, fmt.Errorf("%w: viarueidis.New takes a client", redislock.ErrUsage)
	}
	return redislock.New(&transport{client: client}, options...)
}

type transport struct {
	client rueidis.Client
	closed closing.Errors
}

func (t *transport) IsCluster() bool { return t.client.Mode() == rueidis.ClientModeCluster }

// Do: rueidis repeats commands that only read, and puts what many goroutines send into one pipeline by itself.
func (t *transport) Do(ctx context.Context, commands ...redislock.Command) []redislock.Reply {
	return t.do(ctx, t.client, commands)
}

// DoApart takes a connection of the pool for blocking commands.
func (t *transport) DoApart(
	ctx context.Context, _ string, _ time.Duration, commands ...redislock.Command,
) []redislock.Reply {
	client, release := t.client.Dedicate()
	defer release()
	last := len(commands) - 1
	replies := t.do(ctx, client, commands[:last])
	if slices.ContainsFunc(replies, func(reply redislock.Reply) bool { return reply.Value != int64(1) }) {
		return append(replies, redislock.Reply{})
	}
	return append(replies, t.do(ctx, client, commands[last:])...)
}

func (t *transport) do(ctx context.Context, client rueidis.CoreClient, commands []redislock.Command) []redislock.Reply {
	built := make([]rueidis.Completed, len(commands))
	for i, command := range commands {
		words, key := make([]string, len(command.Words)), command.Key
		for at, word := range command.Words {
			words[at] = word.(string)
		}
		if key == 0 {
			built[i] = client.B().Arbitrary(words...).Blocking()
			continue
		}
		// The other keys of a command are arguments here: rueidis panics where they are in another slot.
		built[i] = client.B().Arbitrary(words[:key]...).Keys(words[key]).Args(words[key+1:]...).Build()
	}
	var results []rueidis.RedisResult
	if len(built) == 1 {
		results = []rueidis.RedisResult{client.Do(ctx, built[0])}
	} else {
		results = client.DoMulti(ctx, built...)
	}
	replies := make([]redislock.Reply, len(commands))
	for i, result := range results {
		value, err := result.ToAny()
		replies[i] = redislock.Reply{Value: value, Err: t.translated(err)}
	}
	return replies
}

func (t *transport) translated(err error) error {
	if t.closed.AreFinal(errors.Is(err, rueidis.ErrClosing)) {
		return fmt.Errorf("%w: %w", redislock.ErrClosed, err)
	}
	if rueidis.IsRedisNil(err) {
		return nil
	}
	if refusal, isRefusal := rueidis.IsRedisErr(err); isRefusal {
		return redislock.Refusal(refusal.Error())
	}
	return err
}

// Node: each key by itself. The commands of many goroutines share a connection anyway.
func (t *transport) Node(_ context.Context, key string) string {
	if t.IsCluster() {
		return key
	}
	return ""
}

func (t *transport) Listen(ctx context.Context, channel string, confirmed func(), heard func(string)) error {
	subscribe := t.client.B().Subscribe().Channel(channel).Build()
	unsubscribe := t.client.B().Unsubscribe().Channel(channel).Build()
	if t.IsCluster() {
		subscribe = t.client.B().Ssubscribe().Channel(channel).Build()
		unsubscribe = t.client.B().Sunsubscribe().Channel(channel).Build()
	}
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ctx = rueidis.WithOnSubscriptionHook(ctx, func(event rueidis.PubSubSubscription) {
		if event.Kind == "subscribe" || event.Kind == "ssubscribe" {
			confirmed()
		}
	})
	ctx = rueidis.WithOnReceiveReturnHook(ctx, func(err error, of rueidis.CommandClient) error {
		if outer.Err() != nil {
			bound, cancel := context.WithTimeout(context.WithoutCancel(outer), time.Second)
			defer cancel()
			of.Do(bound, unsubscribe)
		}
		// Or rueidis would subscribe again in silence.
		cancel()
		return err
	})
	err := t.client.Receive(ctx, subscribe, func(message rueidis.PubSubMessage) { heard(message.Message) })
	if err == nil || errors.Is(err, context.Canceled) && outer.Err() == nil {
		err = errors.New("viarueidis: the subscription has ended")
	}
	return t.translated(err)
}
