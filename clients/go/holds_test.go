package redislock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	redislock "redis-lock.invalid/clients/go"
	"redis-lock.invalid/clients/go/locktest"
)

func TestWhoHoldsALockIsKnown(t *testing.T) {
	onBoth(t, func(t *testing.T, via maker) {
		s := serve(t)
		client := via(t, s)
		lock := client.NewLock("known", redislock.WithNote("host 7"), redislock.WithLease(time.Minute))
		info := must[redislock.LockInfo](t)
		if free := info(lock.Info(background())); len(free.Holders) != 0 || free.Waiters != 0 || free.Mode != "" {
			t.Fatalf("a free lock: %+v", free)
		}
		hold := must[*redislock.Hold](t)(lock.Lock(background()))
		wait := queue(s, lock, 1)[0]
		held := info(lock.Info(background()))
		if held.Mode != "exclusive" || held.Waiters != 1 || held.LongestWait < 0 || len(held.Holders) != 1 {
			t.Fatalf("%+v", held)
		}
		holder := held.Holders[0]
		if holder.Owner != hold.Owner() || holder.Note != "host 7" || holder.Token != hold.Token() ||
			holder.Holds != 1 || holder.Held < 0 || holder.Remaining <= 0 || holder.Remaining > time.Minute {
			t.Fatalf("%+v", holder)
		}
		unlock(t, hold)
		unlock(t, granted(t, wait))

		readers := client.NewReadWriteLock("known").Read()
		one, two := must[*redislock.Hold](t)(readers.Lock(background())), must[*redislock.Hold](t)(readers.Lock(background()))
		if read := info(readers.Info(background())); read.Mode != "read" || len(read.Holders) != 2 {
			t.Fatalf("%+v", read)
		}
		unlock(t, one)
		unlock(t, two)

		s.do("HSET", "redisson", "uuid:1", 1)
		if taken := info(client.NewLock("redisson").Info(background())); len(taken.Holders) != 1 ||
			taken.Holders[0].Held >= 0 || taken.Holders[0].Token != 0 || taken.Holders[0].Remaining >= 0 {
			t.Fatalf("a lock of Redisson: %+v", taken)
		}
		s.do("SET", "text", "x")
		_, err := client.NewLock("text").Info(background())
		var refused *redislock.ServerError
		if !errors.As(err, &refused) || refused.Code != "WRONGTYPE" {
			t.Fatal(err)
		}
		if _, err := client.NewMultiLock([]string{"a", "b"}).Info(background()); !errors.Is(err, redislock.ErrUsage) {
			t.Fatal(err)
		}

		permits := client.NewSemaphore("permits", redislock.WithPermits(3))
		counts := must[redislock.SemaphoreInfo](t)
		if none := counts(permits.Info(background())); none != (redislock.SemaphoreInfo{}) {
			t.Fatalf("%+v", none)
		}
		permit := must[*redislock.Hold](t)(permits.Acquire(background()))
		if some := counts(permits.Info(background())); some.Permits != 3 || some.Held != 1 || some.Free != 2 ||
			some.NextEnd <= 0 || some.Waiters != 0 {
			t.Fatalf("%+v", some)
		}
		unlock(t, permit)
	})
}

func TestAHoldThatIsLeftIsResumedElsewhere(t *testing.T) {
	onAll(t, func(t *testing.T, via maker) {
		s := serve(t)
		lease := redislock.WithLease(6 * time.Second)
		here, there := via(t, s), via(t, s)
		for name, kind := range map[string]struct {
			acquire func() (*redislock.Hold, error)
			resume  func(context.Context, string, int64) (*redislock.Hold, error)
			figure  string
		}{
			"exclusive": {func() (*redislock.Hold, error) { return here.NewLock("x", lease).Lock(background()) },
				there.NewLock("x", lease).Resume, "renewals"},
			"write": {func() (*redislock.Hold, error) { return here.NewReadWriteLock("w", lease).Write().Lock(background()) },
				there.NewReadWriteLock("w", lease).Write().Resume, "renewals"},
			"permit": {func() (*redislock.Hold, error) {
				return here.NewSemaphore("p", redislock.WithPermits(1), lease).Acquire(background())
			}, there.NewSemaphore("p", lease).Resume, "sem_renewals"},
		} {
			hold := must[*redislock.Hold](t)(kind.acquire())
			if err := hold.Leave(0); !errors.Is(err, redislock.ErrUsage) {
				t.Fatal(name, err)
			}
			if err := hold.Leave(time.Hour); err != nil {
				t.Fatal(name, err)
			}
			if err := hold.Unlock(); !errors.Is(err, redislock.ErrReleased) {
				t.Fatal(name, err)
			}
			next := must[*redislock.Hold](t)(kind.resume(background(), hold.Owner(), hold.Token()))
			if next.Token() != hold.Token() || next.ValidFor() > 6*time.Second {
				t.Fatal(name, next.Token(), next.ValidFor())
			}
			s.awaitRenewals(kind.figure, 1)
			unlock(t, next)
			if _, err := kind.resume(background(), hold.Owner(), hold.Token()); !errors.Is(err, redislock.ErrLost) {
				t.Fatal(name, err)
			}
			s.awaitNothing()
		}
	})
}

func TestALockThatIsLeftIsFreeAfterItsRest(t *testing.T) {
	onBoth(t, func(t *testing.T, via maker) {
		s := serve(t)
		client := via(t, s)
		keys := []string{"one", "two"}
		hold := must[*redislock.Hold](t)(client.NewMultiLock(keys).Lock(background()))
		if err := hold.Leave(time.Second); err != nil || hold.ValidFor() != 0 {
			t.Fatal(err)
		}
		for _, key := range keys {
			if rest := s.do("PTTL", key).(int64); rest > 1000 {
				t.Fatal(key, rest)
			}
		}
		unlock(t, must[*redislock.Hold](t)(client.NewMultiLock(keys).Lock(background())))

		lost := must[*redislock.Hold](t)(client.NewLock("lost").Lock(background()))
		s.do("LOCK.BREAK", "lost")
		if err := lost.Leave(time.Minute); !errors.Is(err, redislock.ErrLost) {
			t.Fatal(err)
		}
		s.awaitNothing()
	})
}

func TestAQueueHasABound(t *testing.T) {
	onAll(t, func(t *testing.T, via maker) {
		s := serve(t)
		client := via(t, s)
		one := redislock.WithQueue(1)
		for name, kind := range kinds(client, one) {
			hold := must[*redislock.Hold](t)(kind(background())) // free: granted
			wait := start(background(), kind)
			s.awaitWaits(1)
			_, err := kind(background())
			var refused *redislock.ServerError
			if !errors.Is(err, redislock.ErrQueueFull) || !errors.As(err, &refused) || refused.Code != "QUEUEFULL" {
				t.Fatal(name, err)
			}
			if s.figure("tickets") != "1" {
				t.Fatal(name, "the refused one waits")
			}
			unlock(t, hold)
			unlock(t, granted(t, wait))
			s.awaitNothing()
		}
		none := client.NewLock("x", redislock.WithQueue(0))
		hold := must[*redislock.Hold](t)(none.Lock(background()))
		if _, err := none.Lock(background()); !errors.Is(err, redislock.ErrQueueFull) {
			t.Fatal(err)
		}
		unlock(t, hold)
		for _, wrong := range []int{-1, 1_000_001} {
			_, err := client.NewLock("x", redislock.WithQueue(wrong)).Lock(background())
			if !errors.Is(err, redislock.ErrUsage) {
				t.Fatal(err)
			}
		}
	})
}

func TestABoundedWaitKeepsItsPlaceWhenItIsAskedAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, via maker) {
		s := serve(t)
		client := via(t, s)
		hold := must[*redislock.Hold](t)(client.NewLock("x").Lock(background()))
		waits := []<-chan acquired{begin(background(), client.NewLock("x", redislock.WithQueue(1)))}
		s.awaitWaits(1)
		waits = append(waits, begin(background(), client.NewLock("x")))
		s.awaitWaits(2)
		s.do("CLIENT", "KILL", "TYPE", "pubsub")
		s.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		until(t, "the subscription", func() bool { return s.do("CLIENT", "LIST", "TYPE", "pubsub").(string) != "" })
		hold.Unlock()
		for _, wait := range waits {
			unlock(t, granted(t, wait))
		}
		s.awaitNothing()
	})
}

func TestSeveralPermitsAreTakenInOneStep(t *testing.T) {
	onAll(t, func(t *testing.T, via maker) {
		s := serve(t)
		client := via(t, s)
		permits := redislock.WithPermits(4)
		lease := redislock.WithLease(6 * time.Second)
		three := client.NewSemaphore("p", permits, redislock.WithCount(3), lease)
		one := client.NewSemaphore("p", permits)
		free := func(count int) {
			t.Helper()
			if info := must[redislock.SemaphoreInfo](t)(one.Info(background())); info.Free != count {
				t.Fatalf("%+v", info)
			}
		}
		hold := must[*redislock.Hold](t)(three.Acquire(background()))
		if free(1); hold.Count() != 3 {
			t.Fatal(hold.Count())
		}
		s.awaitRenewals("sem_renewals", 1)
		if _, err := three.TryAcquire(background()); !errors.Is(err, redislock.ErrHeld) {
			t.Fatal(err)
		}
		free(1)
		wait := start(background(), three.Acquire)
		s.awaitWaits(1)
		unlock(t, hold)
		next := granted(t, wait)
		if err := next.Leave(time.Minute); err != nil {
			t.Fatal(err)
		}
		free(1)
		resumed := must[*redislock.Hold](t)(three.Resume(background(), next.Owner(), next.Token()))
		unlock(t, resumed)
		single := must[*redislock.Hold](t)(one.Acquire(background()))
		if free(3); single.Count() != 1 {
			t.Fatal(single.Count())
		}
		unlock(t, single)

		five := client.NewSemaphore("p", redislock.WithCount(5))
		if _, err := five.TryAcquire(background()); !errors.Is(err, redislock.ErrHeld) {
			t.Fatal(err)
		}
		wait = start(background(), five.Acquire)
		s.awaitWaits(1)
		if err := one.Set(background(), 5); err != nil {
			t.Fatal(err)
		}
		unlock(t, granted(t, wait))
		free(5)
		for _, wrong := range []int{0, 65} {
			_, err := client.NewSemaphore("p", redislock.WithCount(wrong)).TryAcquire(background())
			if !errors.Is(err, redislock.ErrUsage) {
				t.Fatal(wrong, err)
			}
		}
	})
}

// slow is a server in memory whose next renewal is served late.
type slow struct {
	*locktest.Server
	isArmed              atomic.Bool
	asked, serve, served chan struct{}
}

func (s *slow) Do(ctx context.Context, commands ...redislock.Command) []redislock.Reply {
	if commands[0].Words[0] == "LOCK.RENEW" && s.isArmed.CompareAndSwap(true, false) {
		close(s.asked)
		<-s.serve
		defer close(s.served)
	}
	return s.Server.Do(ctx, commands...)
}

func TestAHoldIsLeftAfterARenewalThatIsUnderWay(t *testing.T) {
	server := &slow{Server: locktest.New(), asked: make(chan struct{}), serve: make(chan struct{}),
		served: make(chan struct{})}
	client := closed(t, must[*redislock.Client](t)(redislock.New(server, quiet)), func() {})
	lock := client.NewLock("x", redislock.WithLease(time.Minute))
	hold := must[*redislock.Hold](t)(lock.Lock(background()))
	server.isArmed.Store(true)
	ctx, cancel := context.WithCancel(background())
	renewed := make(chan error, 1)
	go func() { renewed <- hold.Renew(ctx, time.Minute) }()
	<-server.asked
	// Its caller waits no more, but it may be served yet.
	cancel()
	if err := <-renewed; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	// Too early a request would come in this time.
	time.AfterFunc(50*time.Millisecond, func() { close(server.serve) })
	if err := hold.Leave(time.Hour); err != nil {
		t.Fatal(err)
	}
	<-server.served
	if left := must[redislock.LockInfo](t)(lock.Info(background())).Holders[0].Remaining; left < 2*time.Minute {
		t.Fatal(left)
	}
}
