// The agent of the Go package: the orders of driver/ticket_agent.rs, over go-redis and over rueidis.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	redislock "redis-lock.invalid/clients/go"
	"redis-lock.invalid/clients/go/viagoredis"
	"redis-lock.invalid/clients/go/viarueidis"
)

var (
	locks   *redislock.Client
	cancels sync.Map // what cancels each acquire, by the order's ID
	holds   sync.Map // by key, owner and token
)

func main() {
	locks = connect(net.JoinHostPort(os.Args[1], os.Args[2]), os.Args[3], len(os.Args) > 4)
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		id, order, _ := strings.Cut(lines.Text(), " ")
		words := strings.Split(order, " ")
		if words[0] == "cancel" {
			cancel, _ := cancels.Load(words[1])
			cancel.(context.CancelFunc)()
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancels.Store(id, cancel)
		go func() {
			text, err := answer(ctx, words)
			if errors.Is(err, context.Canceled) {
				text = "cancelled"
			} else if err != nil {
				text = "error " + strings.ReplaceAll(err.Error(), "\n", " ")
			}
			fmt.Println(id + " " + text)
		}()
	}
}

// connect: with the fewest connections that each library can have.
func connect(addr, library string, isCluster bool) *redislock.Client {
	quiet := redislock.WithLogger(slog.New(slog.DiscardHandler))
	if library == "rueidis" {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, PipelineMultiplex: -1})
		if err != nil {
			panic(err)
		}
		return viarueidis.New(client, quiet)
	}
	return viagoredis.New(redis.NewUniversalClient(
		&redis.UniversalOptions{Addrs: []string{addr}, IsClusterMode: isCluster, PoolSize: 1}), quiet)
}

func answer(ctx context.Context, words []string) (string, error) {
	if words[0] == "acquire" {
		return acquire(ctx, words[1], words[2], ms(words[3]), ms(words[4]))
	}
	held, isKnown := holds.Load(strings.Join(words[1:4], " "))
	if !isKnown {
		return "0", nil // the token of another grant
	}
	var err error
	if hold := held.(*redislock.Hold); words[0] == "renew" {
		err = hold.Renew(ctx, ms(words[4]))
	} else {
		err = hold.Unlock()
	}
	if errors.Is(err, redislock.ErrLost) {
		return "0", nil
	}
	return "1", err
}

func acquire(ctx context.Context, key, owner string, wait, lease time.Duration) (string, error) {
	bound, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	lock := locks.NewLock(key, redislock.WithOwner(owner), redislock.WithLease(lease), redislock.WithoutRenewal())
	hold, err := lock.Lock(bound)
	if errors.Is(err, context.DeadlineExceeded) {
		// The end of a context does not say whether the server is there.
		asking, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if _, err = locks.NewElection(key).Leader(asking); err == nil || errors.Is(err, redislock.ErrNoLeader) {
			return "nil", nil
		}
	}
	if err != nil {
		return "", err
	}
	token := fmt.Sprint(hold.Token())
	holds.Store(strings.Join([]string{key, owner, token}, " "), hold)
	return "token " + token, nil
}

func ms(text string) time.Duration {
	number, _ := strconv.Atoi(text)
	return time.Duration(number) * time.Millisecond
}
