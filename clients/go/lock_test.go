package redislock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	redislock "redis-lock.invalid/clients/go"
	"redis-lock.invalid/clients/go/viagoredis"
	"redis-lock.invalid/clients/go/viarueidis"
)

type acquirer = func(context.Context) (*redislock.Hold, error)

type acquired struct {
	hold *redislock.Hold
	err  error
}

// begin acquires in the background.
func begin(ctx context.Context, lock *redislock.Lock) <-chan acquired { return start(ctx, lock.Lock) }

func start(ctx context.Context, acquire acquirer) <-chan acquired {
	result := make(chan acquired, 1)
	go func() {
		hold, err := acquire(ctx)
		result <- acquired{hold, err}
	}()
	return result
}

// kinds are something of each kind that can be acquired, by its first key.
func kinds(client *redislock.Client, options ...redislock.Option) map[string]acquirer {
	permits := []redislock.SemaphoreOption{redislock.WithPermits(1)}
	for _, option := range options {
		permits = append(permits, option)
	}
	return map[string]acquirer{
		"x": client.NewMultiLock([]string{"x"}, options...).Lock,
		"m": client.NewMultiLock([]string{"m", "n"}, options...).Lock,
		"w": client.NewReadWriteLock("w", options...).Write().Lock,
		"p": client.NewSemaphore("p", permits...).Acquire,
	}
}

// queue begins as many acquires, each after the server has the wait before it.
func queue(s *server, lock *redislock.Lock, count int) (waits []<-chan acquired) {
	for i := range count {
		waits = append(waits, begin(background(), lock))
		s.awaitWaits(i + 1)
	}
	return waits
}

func got(t *testing.T, from <-chan acquired) acquired {
	t.Helper()
	select {
	case found := <-from:
		return found
	case <-time.After(patience):
		t.Fatal("timed out waiting for the end of an acquisition")
		return acquired{}
	}
}

func granted(t *testing.T, from <-chan acquired) *redislock.Hold {
	t.Helper()
	found := got(t, from)
	if found.err != nil {
		t.Fatal(found.err)
	}
	return found.hold
}

func unlock(t *testing.T, hold *redislock.Hold) {
	t.Helper()
	if err := hold.Unlock(); err != nil {
		t.Fatal(err)
	}
}

func TestALockIsHeldUntilItIsReleased(t *testing.T) {
	s := serve(t)
	onBoth(t, func(t *testing.T, via maker) {
		lock := via(t, s).NewLock(t.Name())
		hold := must[*redislock.Hold](t)(lock.Lock(background()))
		if _, err := lock.TryLock(background()); !errors.Is(err, redislock.ErrHeld) {
			t.Fatalf("a second one: %v", err)
		}
		if valid := hold.ValidFor(); valid <= 0 || valid > 30*time.Second || hold.Context().Err() != nil {
			t.Fatalf("valid for %v", valid)
		}
		unlock(t, hold)
		if cause := context.Cause(hold.Context()); !errors.Is(cause, redislock.ErrReleased) || hold.ValidFor() != 0 {
			t.Fatalf("after the release: %v", cause)
		}
		if err := hold.Unlock(); !errors.Is(err, redislock.ErrReleased) {
			t.Fatalf("a second release: %v", err)
		}
		next := must[*redislock.Hold](t)(lock.TryLock(background()))
		if next.Token() <= hold.Token() {
			t.Fatalf("tokens %d, %d", hold.Token(), next.Token())
		}
		unlock(t, next)
	})
}

func TestWaitsAreGrantedInOrder(t *testing.T) {
	onAll(t, func(t *testing.T, via maker) {
		s := serve(t)
		lock := via(t, s).NewLock("order")
		hold := must[*redislock.Hold](t)(lock.Lock(background()))
		waits := queue(s, lock, 20)
		last := hold.Token()
		for _, wait := range waits {
			unlock(t, hold)
			hold = granted(t, wait)
			if hold.Token() <= last {
				t.Fatalf("token %d after %d", hold.Token(), last)
			}
			last = hold.Token()
		}
		unlock(t, hold)
		s.awaitNothing()
	})
}

func TestACancelledWaitLeavesNothingAndHasTheErrorOfItsContext(t *testing.T) {
	onAll(t, func(t *testing.T, via maker) {
		s := serve(t)
		lock := via(t, s).NewLock("cancelled")
		hold := must[*redislock.Hold](t)(lock.Lock(background()))
		ctx, cancel := context.WithCancel(background())
		wait := begin(ctx, lock)
		s.awaitWaits(1)
		cancel()
		if found := got(t, wait); found.err != context.Canceled {
			t.Fatalf("cancelled: %v", found.err)
		}
		s.awaitWaits(0)
		ctx, cancel = context.WithTimeout(background(), 50*time.Millisecond)
		defer cancel()
		if _, err := lock.Lock(ctx); err != context.DeadlineExceeded {
			t.Fatalf("timed out: %v", err)
		}
		unlock(t, hold)
		s.awaitNothing()
	})
}

func TestAReleaseDoesNotUseTheContextOfTheAcquisition(t *testing.T) {
	s := serve(t)
	onBoth(t, func(t *testing.T, via maker) {
		type name struct{}
		ctx, cancel := context.WithCancel(context.WithValue(background(), name{}, "value"))
		hold := must[*redislock.Hold](t)(via(t, s).NewLock(t.Name()).Lock(ctx))
		cancel()
		if hold.Context().Err() != nil || hold.Context().Value(name{}) != "value" {
			t.Fatal("the hold ended with the context of its acquisition, or has not its values")
		}
		unlock(t, hold)
	})
}

func TestAHoldIsRenewedAndEndsAtItsLongestTime(t *testing.T) {
	s := serve(t)
	onBoth(t, func(t *testing.T, via maker) {
		client := via(t, s)
		short := client.NewLock(t.Name()+"1", redislock.WithLease(6*time.Second))
		renewed := must[*redislock.Hold](t)(short.Lock(background()))
		lock := client.NewLock(t.Name()+"2", redislock.WithLease(500*time.Millisecond),
			redislock.WithMaxHold(800*time.Millisecond))
		hold := must[*redislock.Hold](t)(lock.Lock(background()))
		awaitLoss(t, hold)
		fixed := client.NewLock(t.Name()+"3", redislock.WithLease(300*time.Millisecond), redislock.WithoutRenewal())
		awaitLoss(t, must[*redislock.Hold](t)(fixed.Lock(background())))
		token := renewed.Token()
		s.awaitRenewals("renewals", 1)
		if reply, err := renewed.Do(background(), "SET", t.Name()+"4", token); err != nil || reply != "OK" {
			t.Fatalf("%v %v", reply, err)
		}
		unlock(t, renewed)
	})
}

func TestALeaseIsLengthened(t *testing.T) {
	onBoth(t, func(t *testing.T, via maker) {
		s := serve(t)
		lock := via(t, s).NewLock("long", redislock.WithLease(time.Minute), redislock.WithoutRenewal())
		hold := must[*redislock.Hold](t)(lock.Lock(background()))
		if err := hold.Renew(background(), 10*time.Minute); err != nil || hold.ValidFor() < 5*time.Minute {
			t.Fatalf("%v, valid for %v", err, hold.ValidFor())
		}
		unlock(t, hold)
		if err := hold.Renew(background(), time.Minute); !errors.Is(err, redislock.ErrLost) {
			t.Fatal(err)
		}
		hold = must[*redislock.Hold](t)(lock.Lock(background()))
		s.signal(syscall.SIGSTOP)
		ctx, cancel := context.WithTimeout(background(), 100*time.Millisecond)
		defer cancel()
		err := hold.Renew(ctx, time.Minute)
		s.signal(syscall.SIGCONT)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if err := hold.Renew(background(), 10*time.Minute); err != nil || hold.ValidFor() > time.Minute {
			t.Fatalf("a request may be served late: %v, valid for %v", err, hold.ValidFor())
		}
		unlock(t, hold)
	})
}

// A request that a server meets after its acquisition was given up grants nothing.
func TestALateRequestGrantsNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, via maker) {
		s := serve(t)
		client := via(t, s)
		unlock(t, must[*redislock.Hold](t)(client.NewLock("late").Lock(background())))
		s.signal(syscall.SIGSTOP)
		ctx, cancel := context.WithTimeout(background(), 100*time.Millisecond)
		defer cancel()
		_, tried := client.NewLock("late").TryLock(ctx)
		_, waited := client.NewLock("late").Lock(ctx)
		s.signal(syscall.SIGCONT)
		if !errors.Is(tried, context.DeadlineExceeded) || !errors.Is(waited, context.DeadlineExceeded) {
			t.Fatalf("%v, %v", tried, waited)
		}
		until(t, "the given up acquisition is final", func() bool { return s.figure("finals") != "0" })
		s.awaitNothing()
	})
}

// A context that cannot end leaves the bound of a request to the client of the program.
func TestARequestWithoutAnEndOfItsOwnGrantsNothingLate(t *testing.T) {
	s := serve(t)
	program := redis.NewClient(&redis.Options{Addr: s.address(), ReadTimeout: 200 * time.Millisecond})
	client := must[*redislock.Client](t)(viagoredis.New(program, quiet))
	closed(t, client, func() { program.Close() })
	lock := client.NewLock("late")
	if hold, err := lock.Lock(background()); err == nil { // on a busy machine it may end before
		hold.Unlock()
	}
	s.signal(syscall.SIGSTOP)
	_, err := lock.TryLock(background())
	s.signal(syscall.SIGCONT)
	var timeout interface{ Timeout() bool }
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatal(err)
	}
	until(t, "the given up acquisition is final", func() bool { return s.figure("finals") != "0" })
	s.awaitNothing()
}

func TestAReleaseWithoutAnAnswerGoesOn(t *testing.T) {
	onBoth(t, func(t *testing.T, via maker) {
		s := serve(t)
		client := via(t, s, redislock.WithResponseTimeout(200*time.Millisecond))
		hold := must[*redislock.Hold](t)(client.NewLock("silent").Lock(background()))
		s.signal(syscall.SIGSTOP)
		err := hold.Unlock()
		s.signal(syscall.SIGCONT)
		if !errors.Is(err, redislock.ErrNoAnswer) || errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		s.awaitNothing()
	})
}

func TestAFirstRequestThatCannotBeSentIsAnError(t *testing.T) {
	s := serve(t)
	onBoth(t, func(t *testing.T, via maker) {
		client := via(t, s)
		gone := serve(t)
		ofGone := via(t, gone)
		gone.kill()
		if _, err := ofGone.NewLock("a").Lock(background()); err == nil {
			t.Fatal("granted by a server that is gone")
		}
		if _, err := client.NewLock("a", redislock.WithLease(time.Microsecond)).Lock(background()); err == nil {
			t.Fatal("a lease of a microsecond")
		}
		s.do("SET", t.Name(), "foreign")
		var refusal *redislock.ServerError
		if _, err := client.NewLock(t.Name()).Lock(background()); !errors.As(err, &refusal) || refusal.Code != "WRONGTYPE" {
			t.Fatal(err)
		}
	})
}

func TestAServerWithoutTheModuleIsSaidToBeOne(t *testing.T) {
	s := serve(t, "plain")
	onBoth(t, func(t *testing.T, via maker) {
		_, err := via(t, s).NewLock("secret").Lock(background())
		if !errors.Is(err, redislock.ErrNotLoaded) {
			t.Fatal(err)
		}
		want := "redislock: ERR unknown command 'LOCK.ACQUIRE': load the redis-lock module there (or a newer one), with " +
			"loadmodule /usr/lib/redis/modules/libredis_lock.so in its configuration, or with MODULE LOAD; a service that " +
			"loads no modules cannot be used"
		if err.Error() != want {
			t.Fatal(err)
		}
	})
}

func TestAWaitOutlivesItsServer(t *testing.T) {
	onBoth(t, func(t *testing.T, via maker) {
		s := serve(t)
		out := &logs{}
		client := via(t, s, out.option())
		lock := client.NewLock("restart", redislock.WithLease(time.Second))
		hold := must[*redislock.Hold](t)(lock.Lock(background()))
		wait := begin(background(), lock)
		s.awaitWaits(1)
		s.kill()
		awaitLoss(t, hold)
		until(t, "a warning", func() bool { return out.has("the wait goes on") })
		s.start()
		unlock(t, granted(t, wait))
	})
}

// Connections of subscriptions that end are no end of the waits, and cost no wait its grant.
func TestWaitsGoOnWhenTheirConnectionsEnd(t *testing.T) {
	onBoth(t, func(t *testing.T, via maker) {
		s := serve(t)
		lock := via(t, s).NewLock("broken")
		hold := must[*redislock.Hold](t)(lock.Lock(background()))
		waits := queue(s, lock, 5)
		s.do("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")
		s.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		hold.Unlock()
		ended := make(chan acquired, len(waits))
		for _, wait := range waits {
			go func() { ended <- <-wait }()
		}
		for range waits {
			unlock(t, granted(t, ended))
		}
		s.awaitNothing()
	})
}

func TestTenThousandWaitsHaveFewConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("ten thousand waits")
	}
	onBoth(t, func(t *testing.T, via maker) {
		s := serve(t)
		client := via(t, s)
		hold := must[*redislock.Hold](t)(client.NewLock("first").Lock(background()))
		const count = 10_000
		ctx, cancel := context.WithCancel(background())
		var ended sync.WaitGroup
		var mu sync.Mutex
		var order []int64
		for range count {
			ended.Go(func() {
				hold, err := client.NewLock("first").Lock(ctx)
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				order = append(order, hold.Token())
				mu.Unlock()
				hold.Unlock()
			})
		}
		s.awaitWaits(count)
		list := s.do("CLIENT", "LIST", "TYPE", "pubsub").(string)
		if lines := len(splitLines(list)); lines != 1 {
			t.Fatalf("%d subscribed connections", lines)
		}
		unlock(t, hold)
		until(t, "some are granted", func() bool { mu.Lock(); defer mu.Unlock(); return len(order) >= 200 })
		cancel()
		ended.Wait()
		for i := range len(order) - 1 {
			if order[i] >= order[i+1] {
				t.Fatalf("token %d before %d", order[i], order[i+1])
			}
		}
		s.awaitNothing()
	})
}

func splitLines(text string) (lines []string) {
	for _, line := range []byte(text) {
		if line == '\n' {
			lines = append(lines, "")
		}
	}
	return lines
}

func TestAServerThatTakesNoWaitsIsAnError(t *testing.T) {
	s := serve(t)
	s.do("ACL", "SETUSER", "default", "resetchannels")
	onBoth(t, func(t *testing.T, via maker) {
		lock := via(t, s).NewLock(t.Name())
		hold := must[*redislock.Hold](t)(lock.Lock(background()))
		var refusal *redislock.ServerError
		if _, err := lock.Lock(background()); !errors.As(err, &refusal) || refusal.Code != "NOPERM" {
			t.Fatal(err)
		}
		unlock(t, hold)
	})
}

func TestAReleaseLastsNoLongerThanTheResponseTimeout(t *testing.T) {
	s := serve(t)
	// Each request of the client of the program ends before; the release goes on.
	program := redis.NewClient(&redis.Options{Addr: s.address(), ReadTimeout: 2 * time.Second, MaxRetries: -1})
	client := must[*redislock.Client](t)(viagoredis.New(program, quiet, redislock.WithResponseTimeout(5*time.Second)))
	closed(t, client, func() { program.Close() })
	hold := must[*redislock.Hold](t)(client.NewLock("silent").Lock(background()))
	s.signal(syscall.SIGSTOP)
	begun := time.Now()
	err := hold.Unlock()
	passed := time.Since(begun)
	s.signal(syscall.SIGCONT)
	if !errors.Is(err, redislock.ErrNoAnswer) || errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if passed > 6500*time.Millisecond {
		t.Fatalf("it took %v", passed)
	}
	s.awaitNothing()
}

func TestAReplicaRefusesAFirstRequestAndAWaitOutlivesIt(t *testing.T) {
	onBoth(t, func(t *testing.T, via maker) {
		s := serve(t)
		lock := via(t, s).NewLock("demoted")
		hold := must[*redislock.Hold](t)(lock.Lock(background()))
		wait := begin(background(), lock)
		s.awaitWaits(1)
		s.do("REPLICAOF", "127.0.0.1", 1)
		var refusal *redislock.ServerError
		if _, err := lock.Lock(background()); !errors.As(err, &refusal) || refusal.Code != "READONLY" {
			t.Fatal(err)
		}
		s.do("REPLICAOF", "NO", "ONE")
		s.awaitWaits(1)
		unlock(t, hold)
		unlock(t, granted(t, wait))
		s.awaitNothing()
	})
}

func TestAWaitLastsThroughTheStartupDelay(t *testing.T) {
	onBoth(t, func(t *testing.T, via maker) {
		s := serve(t, "--lock.startup-delay", "2000")
		lock := via(t, s).NewLock("delayed")
		var refusal *redislock.ServerError
		if _, err := lock.TryLock(background()); !errors.As(err, &refusal) || refusal.Code != "LOCKDELAY" {
			t.Fatal(err)
		}
		unlock(t, granted(t, begin(background(), lock)))
		s.awaitNothing()
	})
}

// wrapped is a client as programs wrap it.
type wrapped struct{ redis.UniversalClient }

func TestAClientOfGoRedisThatIsNeitherAServersNorAClustersIsRefused(t *testing.T) {
	single := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}})
	var none *redis.Client
	for _, client := range []redis.UniversalClient{wrapped{single}, &wrapped{cluster}, ring, none, nil} {
		_, err := viagoredis.New(client)
		if !errors.Is(err, redislock.ErrUsage) || !strings.Contains(err.Error(), "AddHook") {
			t.Fatalf("%T: %v", client, err)
		}
	}
	for _, client := range []redis.UniversalClient{single, cluster, ring} {
		client.Close()
	}
}

// isHandedOn asserts that a wait for a lock that is held is granted at its release.
func isHandedOn(t *testing.T, s *server, lock *redislock.Lock) {
	t.Helper()
	hold := must[*redislock.Hold](t)(lock.Lock(background()))
	wait := begin(background(), lock)
	s.awaitWaits(1)
	unlock(t, hold)
	unlock(t, granted(t, wait))
}

// wrappedRueidis is a client of rueidis as programs wrap it.
type wrappedRueidis struct{ rueidis.Client }

func TestAWrappedClientOfRueidisIsOne(t *testing.T) {
	s := serve(t)
	inner, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.address()}, ForceSingleClient: true})
	if err != nil {
		t.Fatal(err)
	}
	client := closed(t, must[*redislock.Client](t)(viarueidis.New(wrappedRueidis{inner}, quiet)), inner.Close)
	isHandedOn(t, s, client.NewLock("wrapped"))
}
