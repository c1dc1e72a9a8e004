// The agent of the Go package: the orders of driver/ticket_agent.rs, over go-redis, over rueidis, and over the double.
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
	"redis-lock.invalid/clients/go/locktest"
	"redis-lock.invalid/clients/go/viagoredis"
	"redis-lock.invalid/clients/go/viarueidis"
)

var (
	locks      *redislock.Client
	double     *locktest.Server // nil: there is a server
	disconnect func()           // closes the client below
	cancels    sync.Map         // what cancels each acquire, by the order's ID
	holds      sync.Map         // by key, owner and token
	gate       = make(chan struct{})
	logged     atomic.Value // the order that wants the log blocked
	told       events
)

// events are what the observer was told of each key.
type events struct {
	mu    sync.Mutex
	words map[string]string
}

func (e *events) add(of *redislock.Subject, word string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := strings.ReplaceAll(of.Name, ", ", ",")
	e.words[key] += " " + word
}

func (e *events) of(key string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return "events" + e.words[key]
}

func (e *events) observer() redislock.Observer {
	e.words = map[string]string{}
	return redislock.Observer{
		Asked: func(_ context.Context, lock *redislock.Subject) { e.add(lock, "asked") },
		Answered: func(_ context.Context, lock *redislock.Subject, granted bool, _ time.Duration, err error) {
			switch {
			case granted:
				e.add(lock, "granted")
			case errors.Is(err, redislock.ErrHeld), err == context.DeadlineExceeded, errors.Is(err, context.Canceled):
				e.add(lock, "refused")
			default:
				e.add(lock, "failed")
			}
		},
		Released: func(lock *redislock.Subject, _ time.Duration) { e.add(lock, "released") },
		Lost:     func(lock *redislock.Subject, _ error) { e.add(lock, "lost") },
		Late:     func(lock *redislock.Subject, _ time.Duration) { e.add(lock, "late") },
	}
}

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
	observer := redislock.WithObserver(told.observer())
	switch library {
	case "double":
		double = locktest.New()
		return must(redislock.New(double, logger, observer))
	case "rueidis":
		client := must(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, PipelineMultiplex: -1}))
		disconnect = client.Close
		return must(viarueidis.New(client, logger, observer))
	}
	client := redis.NewUniversalClient(
		&redis.UniversalOptions{Addrs: []string{addr}, IsClusterMode: isCluster, PoolSize: 1})
	disconnect = func() { _ = client.Close() }
	return must(viagoredis.New(client, logger, observer))
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
		"queue-full": redislock.ErrQueueFull, "not-replicated": redislock.ErrNotReplicated,
	} {
		if errors.Is(err, sentinel) {
			return word
		}
	}
	return "other"
}

func answer(ctx context.Context, id string, words []string) (string, error) {
	switch words[0] {
	case "acquire", "keep", "permit":
		return acquire(ctx, id, words)
	case "resume":
		return resume(ctx, id, words)
	case "info":
		return info(ctx, words[1])
	case "info-permits":
		info, err := locks.NewSemaphore(words[1]).Info(ctx)
		if err != nil || info == (redislock.SemaphoreInfo{}) {
			return "info nil", err
		}
		return fmt.Sprintf("info %d %d %d %d", info.Permits, info.Free, info.Held, info.Waiters), nil
	case "events":
		return told.of(words[1]), nil
	case "advance":
		double.Advance(ms(words[1]))
		return "advanced", nil
	case "break":
		double.Lose(words[1])
		return "broken", nil
	case "has-replicas":
		count, err := strconv.Atoi(words[1])
		double.SetReplicas(count)
		return "has", err
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
	switch words[0] {
	case "renew":
		err = hold.Renew(ctx, ms(words[4]))
	case "leave":
		err = hold.Leave(ms(words[4]))
	default:
		err = hold.Unlock()
	}
	if errors.Is(err, redislock.ErrLost) || errors.Is(err, redislock.ErrReleased) {
		return "0", nil
	}
	return "1", err
}

// asker is what is asked for: a lock, or a semaphore.
type asker struct {
	wait, try func(context.Context) (*redislock.Hold, error)
	resume    func(context.Context, string, int64) (*redislock.Hold, error)
	info      func(context.Context) error
}

// asked reads the key, the owner, the lease and the options of an order.
func asked(id, order, key, owner, lease string, words []string) asker {
	options := map[string]string{}
	common := []redislock.Option{redislock.WithOwner(owner), redislock.WithLease(ms(lease))}
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		number, _ := strconv.Atoi(value)
		switch options[name] = value; name {
		case "on-lost":
			common = append(common, redislock.WithOnLost(onLost(id, value)))
		case "queue":
			common = append(common, redislock.WithQueue(number))
		case "replicas":
			common = append(common, redislock.WithReplicas(number))
		case "within":
			common = append(common, redislock.WithReplicasWithin(ms(value)))
		}
	}
	if order == "acquire" {
		common = append(common, redislock.WithoutRenewal())
	}
	if order == "permit" || options["permits"] != "" {
		permits := semaphoreOptions(common)
		if limit, err := strconv.Atoi(options["limit"]); err == nil {
			permits = append(permits, redislock.WithPermits(limit))
		}
		if count, err := strconv.Atoi(options["count"]); err == nil {
			permits = append(permits, redislock.WithCount(count))
		}
		jobs := locks.NewSemaphore(key, permits...)
		return asker{jobs.Acquire, jobs.TryAcquire, jobs.Resume, func(ctx context.Context) error {
			_, err := jobs.Info(ctx)
			return err
		}}
	}
	lock := locks.NewMultiLock(strings.Split(key, ","), common...)
	switch {
	case options["mode"] == "read":
		lock = locks.NewReadWriteLock(key, common...).Read()
	case options["mode"] == "write":
		lock = locks.NewReadWriteLock(key, common...).Write()
	case options["note"] != "":
		lock = locks.NewLock(key, append(lockOptions(common), redislock.WithNote(options["note"]))...)
	}
	return asker{lock.Lock, lock.TryLock, lock.Resume, func(ctx context.Context) error {
		_, err := locks.NewLock(strings.Split(key, ",")[0]).Info(ctx)
		return err
	}}
}

func lockOptions(options []redislock.Option) (all []redislock.LockOption) {
	for _, option := range options {
		all = append(all, option)
	}
	return all
}

func semaphoreOptions(options []redislock.Option) (all []redislock.SemaphoreOption) {
	for _, option := range options {
		all = append(all, option)
	}
	return all
}

func acquire(ctx context.Context, id string, words []string) (string, error) {
	order, key, owner, wait := words[0], words[1], words[2], ms(words[3])
	asks := asked(id, order, key, owner, words[4], words[5:])
	if order == "permit" && wait == 0 {
		hold, err := asks.try(ctx)
		return granted(key, owner, hold, err)
	}
	bound, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	hold, err := asks.wait(bound)
	if err == context.DeadlineExceeded { // and not with a failure
		// The end of a context does not say whether the server is there.
		asking, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if err = asks.info(asking); err == nil {
			return "nil", nil
		}
	}
	return granted(key, owner, hold, err)
}

func resume(ctx context.Context, id string, words []string) (string, error) {
	key, owner := words[1], words[2]
	token, err := strconv.ParseInt(words[3], 10, 64)
	if err != nil {
		return "", err
	}
	hold, err := asked(id, words[0], key, owner, words[4], words[5:]).resume(ctx, owner, token)
	return granted(key, owner, hold, err)
}

func info(ctx context.Context, key string) (string, error) {
	info, err := locks.NewLock(key).Info(ctx)
	if err != nil || info.Mode == "" {
		return "info nil", err
	}
	text := fmt.Sprintf("info %s %d", info.Mode, info.Waiters)
	for _, holder := range info.Holders {
		text += fmt.Sprintf(" %s/%d/%s", holder.Owner, holder.Token, holder.Note)
	}
	return text, nil
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

func granted(key, owner string, hold *redislock.Hold, err error) (string, error) {
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
