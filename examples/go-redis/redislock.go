// Locks of the redis-lock module for go-redis.
package main

import (
	"cmp"
	"context"
	"errors"
	"github.com/redis/go-redis/v9"
	"time"
)

var start = time.Now()                                     // acquisitions are numbered by a clock that only rises
type Locks struct{ waiting, others redis.UniversalClient } // `waiting` with MaxRetries: -1

// Acquire returns the fencing token, or redis.Nil when it was not granted in time. It waits in slices of 2 s.
func (l Locks) Acquire(ctx context.Context, key, owner string, wait, lease time.Duration) (token int64, err error) {
	until, number, isLost := time.Now().Add(wait), start.Add(time.Since(start)).UnixMicro(), false
	for more := true; more; more = time.Now().Before(until) && ctx.Err() == nil {
		block := max(1, min(2*time.Second, time.Until(until)).Milliseconds())
		words := []any{"LOCK.ACQUIRE", key, owner, "PX", lease.Milliseconds(), "BLOCK", block, "ONCE", "SEQ", number}
		token, err = l.waiting.Do(ctx, words...).Int64()
		if err == nil || err != redis.Nil && errors.As(err, new(redis.Error)) {
			return token, err
		} else if isLost = isLost || err != redis.Nil; err != redis.Nil {
			time.Sleep(50 * time.Millisecond) // then again: ONCE makes that safe
		}
	}
	if isLost || ctx.Err() != nil { // given up: what is still to be served grants nothing
		l.waiting.Do(context.WithoutCancel(ctx), "LOCK.RELEASE", key, owner, "FINAL", number)
	}
	return 0, cmp.Or(ctx.Err(), err)
}
func (l Locks) Renew(ctx context.Context, key, owner string, token int64, lease time.Duration) (int64, error) {
	return l.others.Do(ctx, "LOCK.RENEW", key, owner, "PX", lease.Milliseconds(), "TOKEN", token).Int64() // 0: lost, stop
}
func (l Locks) Release(ctx context.Context, key, owner string, token int64) (int64, error) { // redis.Nil: not held
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second) // so that it can be deferred
	defer cancel()
	return l.others.Do(ctx, "LOCK.RELEASE", key, owner, "ALL", "TOKEN", token).Int64()
}
