package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	redislock "redis-lock.invalid/clients/go"
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
	onBoth(t, func(t *testing.T, via maker) {
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
		wait := make(chan acquired, 1)
		go func() {
			hold, err := jobs.Acquire(background())
			wait <- acquired{hold, err}
		}()
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

func TestManyKeysAreAcquiredTogether(t *testing.T) {
	onBoth(t, func(t *testing.T, via maker) {
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
	onBoth(t, func(t *testing.T, via maker) {
		s := serve(t)
		lease := redislock.WithLease(6 * time.Second)
		first, second := via(t, s).NewElection("leader", lease), via(t, s).NewElection("leader", lease)
		if _, err := first.Leader(background()); !errors.Is(err, redislock.ErrNoLeader) {
			t.Fatal(err)
		}
		leadership := must[*redislock.Hold](t)(first.Campaign(background(), "10.0.0.1:80"))
		ctx, cancel := context.WithCancel(background())
		defer cancel()
		next := make(chan acquired, 1)
		go func() {
			hold, err := second.Campaign(ctx, "10.0.0.2:80")
			next <- acquired{hold, err}
		}()
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
