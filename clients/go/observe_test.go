package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	redislock "redis-lock.invalid/clients/go"
)

// seen collects what an observer learns.
type seen struct {
	mu    sync.Mutex
	lines []string
	locks map[*redislock.Subject]bool
}

func (s *seen) add(lock *redislock.Subject, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locks == nil {
		s.locks = map[*redislock.Subject]bool{}
	}
	s.locks[lock] = true
	s.lines = append(s.lines, fmt.Sprintf("%s %s %s", text, lock.Kind, lock.Name))
}

func (s *seen) has(t *testing.T, lines ...string) {
	t.Helper()
	for _, line := range lines {
		until(t, line, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return slices.Contains(s.lines, line)
		})
	}
}

func (s *seen) option() redislock.ClientOption {
	return redislock.WithObserver(redislock.Observer{
		Asked: func(_ context.Context, lock *redislock.Subject) { s.add(lock, "asked") },
		Answered: func(_ context.Context, lock *redislock.Subject, granted bool, waited time.Duration, err error) {
			if waited < 0 || granted == (err != nil) || granted == lock.Granted.IsZero() {
				panic("answered")
			}
			switch {
			case errors.Is(err, redislock.ErrHeld):
				s.add(lock, "held")
			case errors.Is(err, context.Canceled):
				s.add(lock, "cancelled")
			case err != nil:
				s.add(lock, "failed")
			default:
				s.add(lock, "granted")
			}
		},
		Released: func(lock *redislock.Subject, held time.Duration) {
			if held <= 0 || held > time.Since(lock.Granted) {
				panic("released")
			}
			s.add(lock, "released")
		},
		Lost: func(lock *redislock.Subject, reason error) { s.add(lock, "lost "+redislock.LossReason(reason)) },
		Late: func(lock *redislock.Subject, by time.Duration) {
			if by > 0 {
				s.add(lock, "late")
			}
		},
	})
}

func TestAnObserverLearnsWhatAClientDoes(t *testing.T) {
	onBoth(t, func(t *testing.T, via maker) {
		s := serve(t)
		seen := &seen{}
		client := via(t, s, seen.option(), redislock.WithResponseTimeout(time.Second))
		lock := client.NewLock("x", redislock.WithLease(6*time.Second))
		hold := must[*redislock.Hold](t)(lock.Lock(background()))
		if _, err := lock.TryLock(background()); !errors.Is(err, redislock.ErrHeld) {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(background())
		wait := begin(ctx, lock)
		s.awaitWaits(1)
		until(t, "the counts of a wait", func() bool {
			now := client.Statistics()
			return now.Waiting == 1 && now.Holds == 1 && now.Waits == 1 && now.Connections == 1
		})
		cancel()
		got(t, wait)
		s.awaitRenewals("renewals", 1)
		unlock(t, hold)
		if _, err := client.NewMultiLock([]string{"a", "b"}, redislock.WithQueue(0)).Lock(background()); err != nil {
			t.Fatal(err)
		}
		if _, err := client.NewLock("a", redislock.WithQueue(0)).Lock(background()); !errors.Is(err, redislock.ErrQueueFull) {
			t.Fatal(err)
		}
		left := must[*redislock.Hold](t)(client.NewReadWriteLock("rw").Read().Lock(background()))
		if err := left.Leave(time.Minute); err != nil {
			t.Fatal(err)
		}
		readers := client.NewReadWriteLock("rw").Read()
		unlock(t, must[*redislock.Hold](t)(readers.Resume(background(), left.Owner(), left.Token())))
		permit := must[*redislock.Hold](t)(client.NewSemaphore("p", redislock.WithPermits(1)).Acquire(background()))
		s.do("SEM.RELEASE", "p", permit.Owner())
		if err := permit.Unlock(); !errors.Is(err, redislock.ErrLost) {
			t.Fatal(err)
		}
		broken := must[*redislock.Hold](t)(client.NewLock("broken", redislock.WithLease(3*time.Second)).Lock(background()))
		s.do("LOCK.BREAK", "broken")
		awaitLoss(t, broken)
		broken.Unlock()
		unlock(t, must[*redislock.Hold](t)(client.NewLock("last").Lock(background())))
		seen.has(t, "asked exclusive x", "granted exclusive x", "held exclusive x", "cancelled exclusive x",
			"released exclusive x", "granted exclusive a, b", "failed exclusive a", "granted read rw",
			"released read rw", "granted semaphore p", "lost taken semaphore p", "lost taken exclusive broken",
			"released exclusive last")
		seen.mu.Lock()
		for _, line := range []string{"released semaphore p", "released exclusive broken"} {
			if slices.Contains(seen.lines, line) {
				t.Fatal(line)
			}
		}
		// x three times, a and b, a, rw twice, p, broken, last
		if len(seen.locks) != 10 {
			t.Fatal(len(seen.locks), seen.lines)
		}
		seen.mu.Unlock()
		now := client.Statistics()
		if now.Acquisitions != 7 || now.AcquisitionsRefused != 1 || now.AcquisitionsFailed != 1 || now.Losses != 2 ||
			now.Renewals < 1 || now.RenewalsFailed != 1 || now.Releases < 4 || now.Holds != 1 || now.Waiting != 0 {
			t.Fatalf("%+v", now)
		}
		if counters, gauges := now.Counters(), now.Gauges(); len(counters) != 10 || counters["acquisitions"] != 7 ||
			len(gauges) != 2 || gauges["holds"] != 1 {
			t.Fatal(counters, gauges)
		}
	})
}

func TestARenewalThatIsNotConfirmedIsLate(t *testing.T) {
	onBoth(t, func(t *testing.T, via maker) {
		s := serve(t)
		seen := &seen{}
		client := via(t, s, seen.option(), redislock.WithResponseTimeout(time.Second))
		hold := must[*redislock.Hold](t)(client.NewLock("x", redislock.WithLease(6*time.Second)).Lock(background()))
		s.signal(syscall.SIGSTOP)
		awaitLoss(t, hold)
		s.signal(syscall.SIGCONT)
		seen.has(t, "late exclusive x", "lost unconfirmed exclusive x")
	})
}

func TestAnObserverThatBlocksOrPanicsDelaysNoLock(t *testing.T) {
	onBoth(t, func(t *testing.T, via maker) {
		s := serve(t)
		log, gate, seen := &logs{}, make(chan struct{}), &seen{}
		client := via(t, s, log.option(), redislock.WithObserver(redislock.Observer{
			Asked: func(_ context.Context, lock *redislock.Subject) {
				<-gate
				panic("of the observer")
			},
			Released: func(lock *redislock.Subject, _ time.Duration) { seen.add(lock, "released") },
		}))
		for range 3 {
			unlock(t, must[*redislock.Hold](t)(client.NewLock("x").Lock(background())))
		}
		close(gate)
		seen.has(t, "released exclusive x")
		until(t, "a warning", func() bool { return log.has("of the observer") })
	})
}
