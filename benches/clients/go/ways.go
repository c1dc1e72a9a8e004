package main

import (
	"context"
	"math"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	redislock "redis-lock.invalid/clients/go"
	"redis-lock.invalid/clients/go/viagoredis"
	"redis-lock.invalid/clients/go/viarueidis"
)

const (
	lease = 30 * time.Second
	// bsm/redislock does not wait by itself; its README shows this pause.
	bsmPause = 100 * time.Millisecond
)

// held is a lock as its holder has it; the token is 0 where the library has none.
type held struct {
	token   int64
	release func() error
}

// acquire waits for the lock, without an end.
type acquire func() (held, error)

// client is a client object of one library. It makes the lock of each contender.
type client struct {
	lock  func(name string) acquire
	close func()
}

var (
	ctx  = context.Background()
	ways = map[string]func(address string) client{
		"unlocked": unlocked, "lock": viaGoRedis, "lock-rueidis": viaRueidis,
		"redsync": ofRedsync, "bsm": ofBsm, "rueidislock": ofRueidislock,
	}
)

// unlocked is no lock at all: the updates that its contenders lose show that the check of the cells works.
func unlocked(string) client {
	lock := func() (held, error) {
		time.Sleep(time.Microsecond) // without it there are millions of waits to tell
		return held{0, func() error { return nil }}, nil
	}
	return client{func(string) acquire { return lock }, func() {}}
}

func viaGoRedis(address string) client {
	program := redis.NewClient(&redis.Options{Addr: address})
	return ofModule(must(viagoredis.New(program)), func() { _ = program.Close() })
}

func viaRueidis(address string) client {
	program := must(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}}))
	return ofModule(must(viarueidis.New(program)), program.Close)
}

func ofModule(locks *redislock.Client, closeProgram func()) client {
	return client{func(name string) acquire {
		lock := locks.NewLock(name, redislock.WithLease(lease))
		return func() (held, error) {
			hold, err := lock.Lock(ctx)
			if err != nil {
				return held{}, err
			}
			return held{hold.Token(), hold.Unlock}, nil
		}
	}, func() {
		_ = locks.Close()
		closeProgram()
	}}
}

func ofRedsync(address string) client {
	program := redis.NewClient(&redis.Options{Addr: address})
	locks := redsync.New(goredis.NewPool(program))
	return client{func(name string) acquire {
		mutex := locks.NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(math.MaxInt))
		release := func() error {
			_, err := mutex.Unlock()
			return err
		}
		return func() (held, error) { return held{0, release}, mutex.Lock() }
	}, func() { _ = program.Close() }}
}

func ofBsm(address string) client {
	program := redis.NewClient(&redis.Options{Addr: address})
	locks := bsm.New(program)
	options := &bsm.Options{RetryStrategy: bsm.LinearBackoff(bsmPause)}
	return client{func(name string) acquire {
		return func() (held, error) {
			// By default it gives up after the time of the lease.
			patient, cancel := context.WithTimeout(ctx, stopsWithin)
			defer cancel()
			lock, err := locks.Obtain(patient, name, lease, options)
			return held{0, func() error { return lock.Release(ctx) }}, err
		}
	}, func() { _ = program.Close() }}
}

func ofRueidislock(address string) client {
	// Its README has the majority and the tracking for one server of version 7.0.5 or newer. When a request takes longer
	// than TryNextAfter, by default 20 ms, its waits may sleep for ever.
	locks := must(rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{address}},
		KeyMajority:  1, NoLoopTracking: true, KeyValidity: lease, TryNextAfter: lease,
	}))
	return client{func(name string) acquire {
		return func() (held, error) {
			_, release, err := locks.WithContext(ctx, name)
			return held{0, func() error { release(); return nil }}, err
		}
	}, locks.Close}
}
