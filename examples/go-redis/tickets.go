// Locks of the redis-lock module for go-redis, with waits by ticket.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

type Tickets struct {
	Locks   // its Renew and Release
	channel string
	open    sync.Map // of each wait by its tag: a chan string for its messages
}

// NewTickets subscribes once. In a cluster, shard is the hash tag of the keys, "{invoices}", else empty.
func NewTickets(client redis.UniversalClient, shard string) *Tickets {
	t := &Tickets{Locks: Locks{client, client}, channel: "lock:" + shard + rand.Text()}
	subscribe := client.Subscribe
	if shard != "" {
		subscribe = client.SSubscribe
	}
	go t.listen(subscribe)
	return t
}

// Acquire returns the fencing token, or redis.Nil when it was not granted in time.
func (t *Tickets) Acquire(ctx context.Context, key, owner string, wait, lease time.Duration) (int64, error) {
	until, number := time.Now().Add(wait), start.Add(time.Since(start)).UnixMicro()
	giveUp := func(reason error) (int64, error) { // withdraws the ticket, and what is still to be served grants nothing
		err := t.others.Do(context.WithoutCancel(ctx), "LOCK.RELEASE", key, owner, "FINAL", number).Err()
		if reason == redis.Nil && err != nil {
			reason = err
		}
		return 0, cmp.Or(ctx.Err(), reason)
	}
	tag, messages := rand.Text(), make(chan string, 9)
	t.open.Store(tag, messages) // before the request: the message may be quicker than the reply
	defer t.open.Delete(tag)
	for {
		left := max(0, time.Until(until))
		reply, err := t.waiting.Do(ctx, "LOCK.ACQUIRE", key, owner, "PX", lease.Milliseconds(),
			"BLOCK", left.Milliseconds()+1, "NOTIFY", t.channel, tag, "ONCE", "SEQ", number).Result()
		if token, isToken := reply.(int64); isToken {
			return token, nil
		}
		pause, isLost := left+time.Second, err != nil && !errors.As(err, new(redis.Error))
		if isLost {
			pause = 50 * time.Millisecond // then again: ONCE makes that safe
		} else if err != nil && !redis.HasErrorPrefix(err, "NOSUBSCRIBER") { // else the next subscription asks
			return giveUp(err)
		}
		select {
		case message := <-messages:
			if words := strings.Fields(message); words[0] == "timeout" {
				return giveUp(redis.Nil)
			} else if words[0] == "failed" {
				return giveUp(errors.New(words[1]))
			} else if words[0] == "granted" {
				token, _ := strconv.ParseInt(words[1], 10, 64)
				if held, _ := t.Renew(ctx, key, owner, token, lease); held == 1 {
					return token, nil
				}
			}
		case <-time.After(pause):
			if !isLost || left == 0 {
				return giveUp(cmp.Or(err, error(redis.Nil)))
			}
		case <-ctx.Done():
			return giveUp(ctx.Err())
		}
	}
}

func (t *Tickets) listen(subscribe func(context.Context, ...string) *redis.PubSub) {
	for ctx := context.Background(); ; time.Sleep(50 * time.Millisecond) {
		if strings.Contains(t.channel, "{") {
			t.others.Exists(ctx, t.channel) // a command by which the client learns where the slot has moved to
		}
		subscription := subscribe(ctx, t.channel)
		for event, err := subscription.Receive(ctx); err == nil; event, err = subscription.Receive(ctx) {
			switch event := event.(type) {
			case *redis.Message:
				tag := event.Payload[strings.LastIndex(event.Payload, " ")+1:]
				if messages, isOpen := t.open.Load(tag); isOpen {
					messages.(chan string) <- event.Payload
				}
			case *redis.Subscription:
				if event.Kind == "sunsubscribe" { // the slot has moved
					subscription.Close()
				}
				t.open.Range(func(_, messages any) bool { // messages may have been lost: all ask again
					if len(messages.(chan string)) == 0 {
						messages.(chan string) <- "again"
					}
					return true
				})
			}
		}
		subscription.Close()
	}
}
