package redislock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	redislock "redis-lock.invalid/clients/go"
	"redis-lock.invalid/clients/go/viarueidis"
)

func TestALockerExcludesGoroutinesAndProcesses(t *testing.T) {
	s := serve(t)
	onBoth(t, func(t *testing.T, via maker) {
		total := 0
		var ended sync.WaitGroup
		for range 2 {
			locker := via(t, s).NewLock(t.Name()).Locker()
			for range 4 {
				ended.Go(func() {
					for range 25 {
						locker.Lock()
						total++
						locker.Unlock()
					}
				})
			}
		}
		ended.Wait()
		if total != 200 {
			t.Fatal(total)
		}
		locker := via(t, s).NewLock(t.Name()).Locker()
		locker.Lock()
		s.do("DEL", t.Name())
		defer func() {
			if err, isError := recover().(error); !isError || !errors.Is(err, redislock.ErrLost) {
				t.Fatal("no panic for a lost lock")
			}
		}()
		locker.Unlock()
	})
}

func TestReadersAndAWriter(t *testing.T) {
	onAll(t, func(t *testing.T, via maker) {
		s := serve(t)
		client := via(t, s)
		lock := client.NewReadWriteLock("document", redislock.WithLease(6*time.Second))
		one := must[*redislock.Hold](t)(lock.Read().Lock(background()))
		other := must[*redislock.Hold](t)(lock.Read().TryLock(background()))
		write := begin(background(), lock.Write())
		s.awaitWaits(1)
		s.awaitRenewals("renewals", 2)
		unlock(t, one)
		unlock(t, other)
		writer := granted(t, write)
		if _, err := lock.Read().TryLock(background()); !errors.Is(err, redislock.ErrHeld) {
			t.Fatal(err)
		}
		unlock(t, writer)
		unlock(t, must[*redislock.Hold](t)(lock.Read().TryLock(background())))
		s.awaitNothing()
	})
}

func TestASemaphoreHasSoManyPermits(t *testing.T) {
	onBoth(t, func(t *testing.T, via maker) {
		s := serve(t)
		client := via(t, s)
		jobs := client.NewSemaphore("jobs", redislock.WithPermits(2), redislock.WithLease(6*time.Second))
		one := must[*redislock.Hold](t)(jobs.Acquire(background()))
		other := must[*redislock.Hold](t)(jobs.TryAcquire(background()))
		if _, err := jobs.TryAcquire(background()); !errors.Is(err, redislock.ErrHeld) {
			t.Fatal(err)
		}
		wait := start(background(), jobs.Acquire)
		until(t, "a wait", func() bool { return s.figure("tickets") == "1" })
		s.awaitRenewals("sem_renewals", 2)
		unlock(t, one)
		third := granted(t, wait)
		if err := jobs.Set(background(), 3); err != nil {
			t.Fatal(err)
		}
		fourth := must[*redislock.Hold](t)(jobs.TryAcquire(background()))
		for _, permit := range []*redislock.Hold{other, third, fourth} {
			unlock(t, permit)
		}
		if free := s.do("GET", "jobs"); free != "3" {
			t.Fatalf("%v permits are free", free)
		}
	})
}

func TestASemaphoreThatNobodyHasCreatedIsAnError(t *testing.T) {
	onBoth(t, func(t *testing.T, via maker) {
		s := serve(t)
		client := via(t, s)
		none := client.NewSemaphore("none")
		if _, err := none.TryAcquire(background()); !errors.Is(err, redislock.ErrNoSemaphore) {
			t.Fatal(err)
		}
		// The second time with a subscription: the first request waits.
		for range 2 {
			if _, err := none.Acquire(background()); !errors.Is(err, redislock.ErrNoSemaphore) {
				t.Fatal(err)
			}
			isHandedOn(t, s, client.NewLock("lock"))
		}
		// One without permits, and one that is deleted meanwhile, are waited for.
		jobs := client.NewSemaphore("jobs")
		if err := jobs.Set(background(), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := jobs.TryAcquire(background()); !errors.Is(err, redislock.ErrHeld) {
			t.Fatal(err)
		}
		s.do("CONFIG", "RESETSTAT")
		ended := make(chan error, 1)
		go func() {
			ended <- jobs.Run(background(), func(ctx context.Context, _ *redislock.Hold) error { return ctx.Err() })
		}()
		s.awaitWaits(1)
		until(t, "the look for the semaphore", func() bool {
			return strings.Contains(s.do("INFO", "commandstats").(string), "cmdstat_exists:")
		})
		s.do("DEL", "jobs")
		if err := jobs.Set(background(), 1); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}

func TestWrongUseIsSaid(t *testing.T) {
	s := serve(t)
	client := viaRedis(t, s)
	long := strings.Repeat("x", 257)
	try := func(options ...redislock.LockOption) error {
		_, err := client.NewLock("a", options...).TryLock(background())
		return err
	}
	hold := must[*redislock.Hold](t)(client.NewLock("b").Lock(background()))
	read := must[*redislock.Hold](t)(client.NewReadWriteLock("c").Read().Lock(background()))
	jobs := client.NewSemaphore("d")
	_, candidate := client.NewElection("e").Campaign(background(), long)
	_, many := client.NewMultiLock(nil).Lock(background())
	_, permits := client.NewSemaphore("d", redislock.WithPermits(0)).TryAcquire(background())
	_, timeout := redislock.New(closing{}, redislock.WithResponseTimeout(0))
	_, none := viarueidis.New(nil)
	for name, err := range map[string]error{
		"a lease of a microsecond":    try(redislock.WithLease(time.Microsecond)),
		"a negative margin":           try(redislock.WithMargin(-time.Second)),
		"a margin of the whole lease": try(redislock.WithMargin(30 * time.Second)),
		"a hold of no time":           try(redislock.WithMaxHold(0)),
		"a hold of negative time":     try(redislock.WithMaxHold(-time.Second)),
		"an owner without a name":     try(redislock.WithOwner("")),
		"a long note":                 try(redislock.WithNote(long)),
		"a long note of a hold":       hold.SetNote(background(), long),
		"a note of a reader":          read.SetNote(background(), "x"),
		"negative permits":            jobs.Set(background(), -1),
		"a long note of a candidate":  candidate,
		"no lock at all":              many,
		"no permits":                  permits,
		"no response timeout":         timeout,
		"no client":                   none,
	} {
		if !errors.Is(err, redislock.ErrUsage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	unlock(t, hold)
	unlock(t, read)
}

func TestManyKeysAreAcquiredTogether(t *testing.T) {
	onAll(t, func(t *testing.T, via maker) {
		s := serve(t)
		client := via(t, s)
		all := client.NewMultiLock([]string{"a", "b", "c"}, redislock.WithLease(6*time.Second))
		single := must[*redislock.Hold](t)(client.NewLock("b").Lock(background()))
		if _, err := all.TryLock(background()); !errors.Is(err, redislock.ErrHeld) {
			t.Fatal(err)
		}
		wait := begin(background(), all)
		until(t, "a wait", func() bool { return s.figure("tickets") == "1" })
		unlock(t, single)
		hold := granted(t, wait)
		if len(hold.Tokens()) != 3 || hold.Tokens()[0] != hold.Token() {
			t.Fatal(hold.Tokens())
		}
		s.awaitRenewals("renewals", 3)
		unlock(t, hold)
		lost := must[*redislock.Hold](t)(all.Lock(background()))
		s.do("DEL", "c")
		awaitLoss(t, lost)
		lost.Unlock()
		s.awaitNothing()
	})
}

func TestALeaderIsElectedAndObserved(t *testing.T) {
	onAll(t, func(t *testing.T, via maker) {
		s := serve(t)
		lease := redislock.WithLease(6 * time.Second)
		first, second := via(t, s).NewElection("leader", lease), via(t, s).NewElection("leader", lease)
		if _, err := first.Leader(background()); !errors.Is(err, redislock.ErrNoLeader) {
			t.Fatal(err)
		}
		leadership := must[*redislock.Hold](t)(first.Campaign(background(), "10.0.0.1:80"))
		ctx, cancel := context.WithCancel(background())
		defer cancel()
		next := start(ctx, func(ctx context.Context) (*redislock.Hold, error) { return second.Campaign(ctx, "10.0.0.2:80") })
		s.awaitWaits(1)
		var seen []string
		for leader, err := range second.Observe(ctx) {
			if err != nil {
				continue
			}
			seen = append(seen, leader.Note)
			switch leader.Note {
			case "10.0.0.1:80":
				if leader.Token != leadership.Token() {
					t.Fatal(leader)
				}
				if err := leadership.SetNote(background(), "10.0.0.1:81"); err != nil {
					t.Fatal(err)
				}
				continue
			case "10.0.0.1:81":
				unlock(t, leadership)
				continue
			}
			break
		}
		if fmt.Sprint(seen) != "[10.0.0.1:80 10.0.0.1:81 10.0.0.2:80]" {
			t.Fatal(seen)
		}
		unlock(t, granted(t, next))
	})
}

func TestAnObservationEndsWithAnErrorThatDoesNotPass(t *testing.T) {
	onBoth(t, func(t *testing.T, via maker) {
		s := serve(t)
		election := via(t, s).NewElection("leader", redislock.WithLease(3*time.Second))
		var seen []string
		for _, err := range election.Observe(background()) {
			switch len(seen) {
			case 0:
				s.do("CONFIG", "SET", "replica-serve-stale-data", "no")
				s.do("REPLICAOF", "127.0.0.1", "1")
			case 1:
				s.do("REPLICAOF", "NO", "ONE")
			case 2:
				s.do("ACL", "SETUSER", "default", "-lock.info")
			}
			var refusal *redislock.ServerError
			if errors.As(err, &refusal) {
				seen = append(seen, refusal.Code)
			} else {
				seen = append(seen, err.Error())
			}
		}
		none := redislock.ErrNoLeader.Error()
		if want := []string{none, "MASTERDOWN", none, "NOPERM"}; !slices.Equal(seen, want) {
			t.Fatal(seen)
		}
	})
}

func TestALateHolderChangesNothing(t *testing.T) {
	s := serve(t)
	onBoth(t, func(t *testing.T, via maker) {
		hold := must[*redislock.Hold](t)(via(t, s).NewLock(t.Name()).Lock(background()))
		total := t.Name() + ":total"
		if reply, err := hold.Do(background(), "INCRBY", total, 100); err != nil || reply != int64(100) {
			t.Fatalf("%v, %v", reply, err)
		}
		if reply, err := hold.Do(background(), "GET", t.Name()+":none"); err != nil || reply != nil {
			t.Fatalf("%v, %v", reply, err)
		}
		s.do("LOCK.BREAK", t.Name())
		if _, err := hold.Do(background(), "SET", total, []byte("99")); !errors.Is(err, redislock.ErrLost) {
			t.Fatal(err)
		}
		if found := s.do("GET", total); found != "100" {
			t.Fatal(found)
		}
		hold.Unlock()
	})
}

// A lease of minutes: no renewal of its own tells.
var minutes = redislock.WithLease(10 * time.Minute)

func TestAnyReplyThatProvesALossIsOne(t *testing.T) {
	s := serve(t)
	onBoth(t, func(t *testing.T, via maker) {
		client := via(t, s)
		set := []any{"SET", t.Name() + ":x", "1"}
		do := func(hold *redislock.Hold) error { _, err := hold.Do(background(), set...); return err }
		renew := func(hold *redislock.Hold) error { return hold.Renew(background(), time.Minute) }
		note := func(hold *redislock.Hold) error { return hold.SetNote(background(), "note") }
		for name, send := range map[string]func(*redislock.Hold) error{"do": do, "renew": renew, "note": note} {
			key := t.Name() + name
			hold := must[*redislock.Hold](t)(client.NewLock(key, minutes).Lock(background()))
			s.do("LOCK.BREAK", key)
			if err := send(hold); !errors.Is(err, redislock.ErrLost) {
				t.Fatalf("%s: %v", name, err)
			}
			if hold.ValidFor() != 0 || !errors.Is(context.Cause(hold.Context()), redislock.ErrLost) {
				t.Fatalf("%s: it counts as held", name)
			}
			hold.Unlock()
		}
		// The token of a reader may be an old one: the hold is asked for.
		reader := must[*redislock.Hold](t)(client.NewReadWriteLock(t.Name(), minutes).Read().Lock(background()))
		s.do("LOCK.BREAK", t.Name())
		if err := do(reader); !errors.Is(err, redislock.ErrLost) {
			t.Fatal(err)
		}
		awaitLoss(t, reader)
		reader.Unlock()
	})
}

func TestAHoldWhoseKeyIsOverwrittenIsLost(t *testing.T) {
	s := serve(t)
	onBoth(t, func(t *testing.T, via maker) {
		client := via(t, s)
		key := t.Name()
		for name, end := range map[string]func(*redislock.Hold) error{
			"renew":  func(hold *redislock.Hold) error { return hold.Renew(background(), time.Minute) },
			"unlock": (*redislock.Hold).Unlock,
			"do": func(hold *redislock.Hold) error {
				// The key of the command may be the one of another type: the hold is asked for.
				_, err := hold.Do(background(), "SET", key+":x", 1)
				awaitLoss(t, hold)
				return fmt.Errorf("%w: %w", context.Cause(hold.Context()), err)
			},
		} {
			hold := must[*redislock.Hold](t)(client.NewLock(key, minutes).Lock(background()))
			s.do("SET", key, "foreign")
			var refusal *redislock.ServerError
			if err := end(hold); !errors.Is(err, redislock.ErrLost) || !errors.As(err, &refusal) {
				t.Fatalf("%s: %v", name, err)
			}
			hold.Unlock()
			s.do("DEL", key)
		}
		permits := client.NewSemaphore(key, redislock.WithPermits(1), minutes)
		permit := must[*redislock.Hold](t)(permits.Acquire(background()))
		s.do("SET", key, "foreign")
		if err := permit.Unlock(); !errors.Is(err, redislock.ErrLost) {
			t.Fatal(err)
		}
		s.do("DEL", key)
		hold := must[*redislock.Hold](t)(client.NewLock(key, minutes).Lock(background()))
		s.do("SET", key+":list", "no list")
		if _, err := hold.Do(background(), "RPUSH", key+":list", "1"); err == nil || errors.Is(err, redislock.ErrLost) {
			t.Fatal(err)
		}
		unlock(t, hold)
	})
}

type text string

type marshaled struct{ err error }

func (m marshaled) MarshalBinary() ([]byte, error) { return []byte{0, 255}, m.err }

// arguments has one of every type that the rules of go-redis name, and some that have none.
func arguments() (all []any) {
	pointers := func(values ...any) {
		for _, value := range values {
			pointer := reflect.New(reflect.TypeOf(value))
			pointer.Elem().Set(reflect.ValueOf(value))
			all = append(all, value, pointer.Interface(), reflect.Zero(pointer.Type()).Interface())
		}
	}
	pointers("a", -1, int8(-8), int16(-16), int32(-32), int64(math.MinInt64), uint(1), uint8(8), uint16(16), uint32(32),
		uint64(math.MaxUint64), uintptr(7), float32(0.1), 1e6, 1e21, math.Inf(1), true, false, time.Now(), time.Second,
		time.Unix(1, 5).UTC(), marshaled{})
	all = append(all, nil, []byte("b"), []byte(nil), net.IPv4(1, 2, 3, 4), json.RawMessage("{}"), text("t"), []string{"x"},
		[]any{1}, map[string]int{}, struct{}{}, marshaled{errors.New("no")}, 'x', time.March, errors.New("e"))
	return all
}

func TestArgumentsAreWrittenAsGoRedisWritesThem(t *testing.T) {
	s := serve(t)
	onBoth(t, func(t *testing.T, via maker) {
		hold := must[*redislock.Hold](t)(via(t, s).NewLock(t.Name()).Lock(background()))
		one, other := t.Name()+":1", t.Name()+":2"
		for _, argument := range arguments() {
			var own, fenced error
			func() {
				defer func() { own = errors.Join(own, asError(recover())) }()
				own = s.raw.Set(background(), one, argument, 0).Err()
			}()
			func() {
				defer func() { fenced = errors.Join(fenced, asError(recover())) }()
				_, fenced = hold.Do(background(), "SET", other, argument)
			}()
			if (own == nil) != (fenced == nil) {
				t.Fatalf("%T %v: %v beside %v of go-redis", argument, argument, fenced, own)
			}
			if own != nil {
				continue
			}
			if want, found := s.do("GET", one), s.do("GET", other); want != found {
				t.Fatalf("%T %v: %q, and %q by go-redis", argument, argument, found, want)
			}
		}
		if _, err := hold.Do(background(), "SET", other, []string{"x"}); !errors.Is(err, redislock.ErrUsage) {
			t.Fatal(err)
		}
		unlock(t, hold)
		permit := must[*redislock.Hold](t)(via(t, s).NewSemaphore(t.Name(), redislock.WithPermits(1)).Acquire(background()))
		if _, err := permit.Do(background(), "SET", other, 1); !errors.Is(err, redislock.ErrUsage) {
			t.Fatal(err)
		}
		unlock(t, permit)
	})
}

// asError is what was recovered: the method of a nil pointer panics in both.
func asError(recovered any) error {
	if recovered == nil {
		return nil
	}
	return fmt.Errorf("panic: %v", recovered)
}

func TestANamedOwnerIsUsedAsItIs(t *testing.T) {
	s := serve(t)
	onBoth(t, func(t *testing.T, via maker) {
		lock := via(t, s).NewLock(t.Name(), redislock.WithOwner("job-7"), redislock.WithNote("host a"))
		hold := must[*redislock.Hold](t)(lock.Lock(background()))
		again := must[*redislock.Hold](t)(lock.Lock(background()))
		count, note := s.do("HGET", t.Name(), "job-7"), s.do("HGET", t.Name(), "#note:job-7")
		if again.Token() != hold.Token() || count != "1" || note != "host a" {
			t.Fatal("the owner is another one, or holds twice")
		}
		unlock(t, hold)
		if err := again.Unlock(); !errors.Is(err, redislock.ErrLost) {
			t.Fatal(err)
		}
	})
}

func TestTwoWaitsForEachOtherAreRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, via maker) {
		s := serve(t)
		client := via(t, s)
		lock := func(name, owner string) *redislock.Lock { return client.NewLock(name, redislock.WithOwner(owner)) }
		one := must[*redislock.Hold](t)(lock("x", "alice").Lock(background()))
		other := must[*redislock.Hold](t)(lock("y", "bob").Lock(background()))
		wait := begin(background(), lock("y", "alice"))
		s.awaitWaits(1)
		var refusal *redislock.ServerError
		if _, err := lock("x", "bob").Lock(background()); !errors.As(err, &refusal) || refusal.Code != "DEADLOCK" {
			t.Fatal(err)
		}
		unlock(t, other)
		unlock(t, granted(t, wait))
		unlock(t, one)
		s.awaitNothing()
	})
}
