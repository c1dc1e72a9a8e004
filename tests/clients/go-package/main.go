// The agent of the Go package: the orders of driver/ticket_agent.rs, over go-redis and over rueidis.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	redislock "redis-lock.invalid/clients/go"
	"redis-lock.invalid/clients/go/viagoredis"
	"redis-lock.invalid/clients/go/viarueidis"
)

var (
	locks      *redislock.Client
	disconnect func()   // closes the client below
	cancels    sync.Map // what cancels each acquire, by the order's ID
	holds      sync.Map // by key, owner and token
	gate       = make(chan struct{})
	logged     atomic.Value // the order that wants the log blocked
)

// blocking is a handler of the log that blocks where an order wants that.
type blocking struct{ slog.Handler }

func (blocking) Handle(context.Context, slog.Record) error {
	if id, isWanted := logged.Load().(string); isWanted {
		block(id)
	}
	return nil
}

func (blocking) Enabled(context.Context, slog.Level) bool { return true }

func block(id string) {
	fmt.Println(id + " blocked")
	<-gate
}

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
			text, err := answer(ctx, id, words)
			if errors.Is(err, context.Canceled) {
				text = "cancelled"
			} else if err != nil {
				text = "error " + kind(err) + " " + strings.ReplaceAll(err.Error(), "\n", " ")
			}
			fmt.Println(id + " " + text)
		}()
	}
}

// connect: with the fewest connections that each library can have.
func connect(addr, library string, isCluster bool) *redislock.Client {
	logger := redislock.WithLogger(slog.New(blocking{slog.DiscardHandler}))
	if library == "rueidis" {
		client := must(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, PipelineMultiplex: -1}))
		disconnect = client.Close
		return must(viarueidis.New(client, logger))
	}
	client := redis.NewUniversalClient(
		&redis.UniversalOptions{Addrs: []string{addr}, IsClusterMode: isCluster, PoolSize: 1})
	disconnect = func() { _ = client.Close() }
	return must(viagoredis.New(client, logger))
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// kind: the word of the table of errors.
func kind(err error) string {
	for word, sentinel := range map[string]error{
		"lost": redislock.ErrLost, "unheard": redislock.ErrNoAnswer, "closed": redislock.ErrClosed,
		"usage": redislock.ErrUsage, "no-semaphore": redislock.ErrNoSemaphore,
	} {
		if errors.Is(err, sentinel) {
			return word
		}
	}
	return "other"
}

func answer(ctx context.Context, id string, words []string) (string, error) {
	switch words[0] {
	case "acquire":
		return acquire(ctx, words, redislock.WithoutRenewal())
	case "keep":
		if len(words) > 5 {
			return acquire(ctx, words, redislock.WithOnLost(onLost(id, words[5])))
		}
		return acquire(ctx, words)
	case "permit":
		return permit(ctx, words)
	case "close":
		return "closed", locks.Close()
	case "disconnect":
		disconnect()
		return "disconnected", nil
	case "block-log":
		logged.Store(id)
		return "blocks", nil
	case "unblock":
		close(gate)
		return "unblocked", nil
	case "odd":
		return odd(ctx, words[1])
	}
	held, isKnown := holds.Load(strings.Join(words[1:4], " "))
	if !isKnown {
		return "0", nil // the token of another grant
	}
	hold := held.(*redislock.Hold)
	switch words[0] {
	case "lost":
		<-hold.Context().Done()
		return "lost", nil
	case "state":
		if hold.Context().Err() != nil {
			return "lost", nil
		}
		return "held", nil
	case "do":
		var command []any
		for _, word := range words[4:] {
			command = append(command, word)
		}
		reply, err := hold.Do(ctx, command...)
		return fmt.Sprintf("did %v", reply), err
	case "types":
		return types(ctx, hold), nil
	}
	var err error
	if words[0] == "renew" {
		err = hold.Renew(ctx, ms(words[4]))
	} else {
		err = hold.Unlock()
	}
	if errors.Is(err, redislock.ErrLost) {
		return "0", nil
	}
	return "1", err
}

func acquire(ctx context.Context, words []string, options ...redislock.LockOption) (string, error) {
	key, owner, wait, lease := words[1], words[2], ms(words[3]), ms(words[4])
	bound, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	options = append(options, redislock.WithOwner(owner), redislock.WithLease(lease))
	hold, err := locks.NewLock(key, options...).Lock(bound)
	if err == context.DeadlineExceeded { // and not with a failure
		// The end of a context does not say whether the server is there.
		asking, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if _, err = locks.NewElection(key).Leader(asking); err == nil || errors.Is(err, redislock.ErrNoLeader) {
			return "nil", nil
		}
	}
	return granted(words, hold, err)
}

func onLost(id, what string) func(*redislock.Hold, error) {
	return func(*redislock.Hold, error) {
		if what == "block" {
			block(id)
			return
		}
		text := "closed"
		if err := locks.Close(); err != nil {
			text = err.Error()
		}
		fmt.Println(id + " " + text)
	}
}

// types: how go-redis writes values, whatever the library of the locks.
func types(ctx context.Context, hold *redislock.Hold) string {
	own := redis.NewClient(&redis.Options{Addr: net.JoinHostPort(os.Args[1], os.Args[2])})
	defer own.Close()
	number := 7
	var none *int
	values := map[string]any{
		"text": "a\u00e9", "bytes": []byte{0, 255}, "int": -12, "uint64": uint64(math.MaxUint64), "float": 0.1,
		"large": 1e30, "float32": float32(0.1), "bool": true, "null": nil, "pointer": &number, "none": none,
		"time": time.Unix(1, 5).UTC(), "span": time.Second, "list": []int{1}, "map": map[string]int{},
		"ip":        net.IPv4(1, 2, 3, 4),
		"marshaler": netip.MustParseAddr("1.2.3.4"), "rune": 'a', "complex": complex(1, 1), "named": name("a"),
	}
	answer := "types"
	for name, value := range values {
		own.Set(ctx, "own:"+name, value, 0)
		result := "ok"
		if _, err := hold.Do(ctx, "SET", "do:"+name, value); err != nil {
			result = kind(err)
		}
		answer += " " + name + "=" + result
	}
	return answer
}

type name string

func odd(ctx context.Context, what string) (string, error) {
	var hold *redislock.Hold
	holds.Range(func(_, held any) bool {
		hold = held.(*redislock.Hold)
		return false
	})
	lock := func(options ...redislock.LockOption) error {
		_, err := locks.NewLock("odd", options...).TryLock(ctx)
		return err
	}
	permit := func(options ...redislock.SemaphoreOption) error {
		_, err := locks.NewSemaphore("odd", options...).TryAcquire(ctx)
		return err
	}
	reader := func(options ...redislock.Option) error {
		_, err := locks.NewReadWriteLock("odd", options...).Read().TryLock(ctx)
		return err
	}
	const century = 100 * 365 * 24 * time.Hour
	long := strings.Repeat("o", 257)
	run, isKnown := map[string]func() error{
		"lease-zero":         func() error { return lock(redislock.WithLease(0)) },
		"lease-negative":     func() error { return lock(redislock.WithLease(-time.Second)) },
		"lease-short":        func() error { return lock(redislock.WithLease(1500 * time.Microsecond)) },
		"lease-huge":         func() error { return lock(redislock.WithLease(2 * century)) },
		"margin-negative":    func() error { return lock(redislock.WithMargin(-time.Second)) },
		"margin-large":       func() error { return lock(redislock.WithMargin(16 * time.Second)) },
		"hold-zero":          func() error { return lock(redislock.WithMaxHold(0)) },
		"note-long":          func() error { return lock(redislock.WithNote(long)) },
		"owner-empty":        func() error { return lock(redislock.WithOwner("")) },
		"owner-reserved":     func() error { return lock(redislock.WithOwner("#o")) },
		"owner-read":         func() error { return reader(redislock.WithOwner("mode")) },
		"permits-zero":       func() error { return permit(redislock.WithPermits(0)) },
		"permits-huge":       func() error { return permit(redislock.WithPermits(1 << 31)) },
		"permit-lease-zero":  func() error { return permit(redislock.WithLease(0), redislock.WithPermits(1)) },
		"permit-owner-empty": func() error { return permit(redislock.WithOwner(""), redislock.WithPermits(1)) },
		"renew-zero":         func() error { return hold.Renew(ctx, 0) },
		"renew-negative":     func() error { return hold.Renew(ctx, -time.Second) },
		"renew-huge":         func() error { return hold.Renew(ctx, 2*century) },
	}[what]
	if !isKnown {
		return "none", nil
	}
	return "done", run()
}

func permit(ctx context.Context, words []string) (string, error) {
	permits := locks.NewSemaphore(words[1], redislock.WithOwner(words[2]), redislock.WithLease(ms(words[4])))
	if words[3] == "0" {
		hold, err := permits.TryAcquire(ctx)
		return granted(words, hold, err)
	}
	bound, cancel := context.WithTimeout(ctx, ms(words[3]))
	defer cancel()
	hold, err := permits.Acquire(bound)
	return granted(words, hold, err)
}

func granted(words []string, hold *redislock.Hold, err error) (string, error) {
	if err != nil {
		return "", err
	}
	token := fmt.Sprint(hold.Token())
	holds.Store(strings.Join([]string{words[1], words[2], token}, " "), hold)
	return "token " + token, nil
}

func ms(text string) time.Duration {
	number, _ := strconv.Atoi(text)
	return time.Duration(number) * time.Millisecond
}
