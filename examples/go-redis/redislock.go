// Locks of the redis-lock module for go-redis.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

type Locks struct{ waiting, others redis.UniversalClient }

func NewLocks(addr string) Locks { // without MaxRetries -1, what is not answered within 5 s is sent four times
	waiting := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	return Locks{waiting, redis.NewClient(&redis.Options{Addr: addr})}
}

// Acquire returns the fencing token, or redis.Nil when it was not granted in time. It waits in slices of 2 s.
func (l Locks) Acquire(ctx context.Context, key, owner string, wait, lease time.Duration) (int64, error) {
	for until := time.Now().Add(wait); ; {
		block := max(1, min(2*time.Second, time.Until(until)).Milliseconds())
		token, err := l.waiting.Do(ctx, "LOCK.ACQUIRE", key, owner, "PX", lease.Milliseconds(), "BLOCK", block, "ONCE").Int64()
		isAnswer := err != redis.Nil && (err == nil || errors.As(err, new(redis.Error)))
		if isAnswer || ctx.Err() != nil || time.Now().After(until) {
			return token, err
		} else if err != redis.Nil {
			time.Sleep(50 * time.Millisecond) // then again: ONCE makes that safe
		}
	}
}

func (l Locks) Renew(ctx context.Context, key, owner string, token int64, lease time.Duration) (int64, error) {
	return l.others.Do(ctx, "LOCK.RENEW", key, owner, "PX", lease.Milliseconds(), "TOKEN", token).Int64() // 0: lost, stop
}

func (l Locks) Release(ctx context.Context, key, owner string, token int64) (int64, error) {
	return l.others.Do(ctx, "LOCK.RELEASE", key, owner, "ALL", "TOKEN", token).Int64() // redis.Nil: not held any more
}
