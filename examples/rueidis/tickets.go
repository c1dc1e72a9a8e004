// Locks of the redis-lock module for rueidis, with waits by ticket.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

var start = time.Now() // acquisitions are numbered by the microseconds since then, of a clock that only rises

type Tickets struct {
	client  rueidis.Client
	channel string
	open    sync.Map // of each wait by its tag: a chan string for its messages
}

// NewTickets subscribes once. In a cluster, shard is the hash tag of the keys, "{invoices}", else empty.
func NewTickets(client rueidis.Client, shard string) *Tickets {
	t := &Tickets{client: client, channel: "lock:" + shard + rand.Text()}
	go t.listen(shard != "")
	return t
}

// Acquire returns the fencing token, or 0 when it was not granted in time.
func (t *Tickets) Acquire(ctx context.Context, key, owner string, wait, lease time.Duration) (int64, error) {
	until, number := time.Now().Add(wait), start.Add(time.Since(start)).UnixMicro()
	giveUp := func(reason error) (int64, error) { // withdraws the ticket, and what is still to be served grants nothing
		err := t.do(context.WithoutCancel(ctx), "LOCK.RELEASE", key, owner, "FINAL", number).NonRedisError()
		return 0, cmp.Or(ctx.Err(), reason, err)
	}
	tag, messages := rand.Text(), make(chan string, 9)
	t.open.Store(tag, messages) // before the request: the message may be quicker than the reply
	defer t.open.Delete(tag)
	for {
		left := max(0, time.Until(until))
		reply := t.do(ctx, "LOCK.ACQUIRE", key, owner, "PX", lease.Milliseconds(),
			"BLOCK", left.Milliseconds()+1, "NOTIFY", t.channel, tag, "ONCE", "SEQ", number)
		if token, err := reply.ToInt64(); err == nil {
			return token, nil
		}
		pause, err, isLost := left+time.Second, reply.Error(), reply.NonRedisError() != nil
		if isLost {
			pause = 50 * time.Millisecond // then again: ONCE makes that safe
		} else if err != nil && !strings.HasPrefix(err.Error(), "NOSUBSCRIBER") { // else the next subscription asks
			return giveUp(err)
		}
		select {
		case message := <-messages:
			if words := strings.Fields(message); words[0] == "timeout" {
				return giveUp(nil)
			} else if words[0] == "failed" {
				return giveUp(errors.New(words[1]))
			} else if words[0] == "granted" {
				token, _ := strconv.ParseInt(words[1], 10, 64)
				if held, _ := t.Renew(ctx, key, owner, token, lease); held {
					return token, nil
				}
			}
		case <-time.After(pause):
			if !isLost || left == 0 {
				return giveUp(err)
			}
		case <-ctx.Done():
			return giveUp(ctx.Err())
		}
	}
}

// Renew returns false when the lock is lost: stop working.
func (t *Tickets) Renew(ctx context.Context, key, owner string, token int64, lease time.Duration) (bool, error) {
	return isOne(t.do(ctx, "LOCK.RENEW", key, owner, "PX", lease.Milliseconds(), "TOKEN", token))
}

// Release returns false when the lock was not held any more. It can be deferred: it does not end with the context.
func (t *Tickets) Release(ctx context.Context, key, owner string, token int64) (bool, error) {
	return isOne(t.do(context.WithoutCancel(ctx), "LOCK.RELEASE", key, owner, "ALL", "TOKEN", token))
}

func isOne(reply rueidis.RedisResult) (bool, error) {
	number, _ := reply.ToInt64()
	return number == 1, reply.NonRedisError()
}

func (t *Tickets) do(ctx context.Context, name, key string, words ...any) rueidis.RedisResult {
	limited, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	command := t.client.B().Arbitrary(name).Keys(key)
	for _, word := range words {
		command = command.Args(fmt.Sprint(word))
	}
	return t.client.Do(limited, command.Build())
}

func (t *Tickets) listen(isSharded bool) {
	ctx := rueidis.WithOnSubscriptionHook(context.Background(), func(confirmed rueidis.PubSubSubscription) {
		t.open.Range(func(_, messages any) bool { // messages may have been lost: all ask again
			if len(messages.(chan string)) == 0 {
				messages.(chan string) <- "again"
			}
			return true
		})
	})
	for ; ; time.Sleep(50 * time.Millisecond) {
		subscribe := t.client.B().Subscribe().Channel(t.channel).Build()
		if isSharded { // ends when the slot moves
			t.do(ctx, "EXISTS", t.channel) // a command by which the client learns where to
			subscribe = t.client.B().Ssubscribe().Channel(t.channel).Build()
		}
		t.client.Receive(ctx, subscribe, func(message rueidis.PubSubMessage) {
			tag := message.Message[strings.LastIndex(message.Message, " ")+1:]
			if messages, isOpen := t.open.Load(tag); isOpen {
				messages.(chan string) <- message.Message
			}
		})
	}
}
