// The agent of redsync: reads orders, writes answers, as driver/strings.rs lists them.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

const key = "string-lock"

var (
	address = os.Args[1] + ":" + os.Args[2]
	locks   = redsync.New(goredis.NewPool(redis.NewClient(&redis.Options{Addr: address})))
)

func newMutex() *redsync.Mutex {
	lease, _ := strconv.Atoi(os.Args[4])
	return locks.NewMutex(key, redsync.WithExpiry(time.Duration(lease)*time.Millisecond))
}

// lock tries on after the library has given up: by default it does so after 32 tries.
func lock(mutex *redsync.Mutex) {
	for mutex.Lock() != nil {
	}
}

func increment(plain *redis.Client) error {
	ctx := context.Background()
	count, err := plain.Get(ctx, "counter").Int()
	if err != nil && err != redis.Nil {
		return err
	}
	return plain.Set(ctx, "counter", count+1, 0).Err()
}

func contend(threads, rounds int) string {
	var begun, released, refused, unsure atomic.Int64
	var workers sync.WaitGroup
	for range threads {
		workers.Go(func() {
			plain := redis.NewClient(&redis.Options{Addr: address, MaxRetries: -1, PoolSize: 1})
			for begun.Add(1) <= int64(rounds) {
				mutex := newMutex()
				lock(mutex)
				if increment(plain) != nil {
					unsure.Add(1)
				}
				if ok, _ := mutex.Unlock(); ok {
					released.Add(1)
				} else {
					refused.Add(1)
				}
			}
		})
	}
	workers.Wait()
	return fmt.Sprint("contended ", released.Load(), " ", refused.Load(), " ", unsure.Load())
}

func main() {
	held := newMutex()
	fmt.Println("ready")
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		var order string
		var threads, rounds int
		fmt.Sscan(orders.Text(), &order, &threads, &rounds)
		switch order {
		case "key":
			fmt.Println(key)
		case "lock":
			lock(held)
			fmt.Println("locked")
		case "unlock":
			before := time.Now().UnixMicro()
			if ok, err := held.Unlock(); ok {
				fmt.Println("unlocked", before)
			} else {
				fmt.Println("refused", err)
			}
		default:
			fmt.Println(contend(threads, rounds))
		}
	}
}
