package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	redislock "redis-lock.invalid/clients/go"
	"redis-lock.invalid/clients/go/viagoredis"
)

func awaitLoss(t *testing.T, hold *redislock.Hold) {
	t.Helper()
	select {
	case <-hold.Context().Done():
	case <-time.After(patience):
		t.Fatal("timed out waiting for a loss")
	}
	if cause := context.Cause(hold.Context()); !errors.Is(cause, redislock.ErrLost) {
		t.Fatalf("the cause is %v", cause)
	}
}

func TestALossEndsTheContextOfTheHold(t *testing.T) {
	s := serve(t)
	onBoth(t, func(t *testing.T, via maker) {
		for how, end := range map[string][]any{"broken": {"LOCK.BREAK"}, "deleted": {"DEL"}} {
			heard := make(chan error, 1)
			lock := via(t, s).NewLock(t.Name()+how, redislock.WithLease(300*time.Millisecond),
				redislock.WithOnLost(func(_ *redislock.Hold, err error) { heard <- err }))
			hold := must[*redislock.Hold](t)(lock.Lock(background()))
			s.do(append(end, t.Name()+how)...)
			awaitLoss(t, hold)
			if err := <-heard; !errors.Is(err, redislock.ErrLost) {
				t.Fatal(err)
			}
			if err := hold.Unlock(); !errors.Is(err, redislock.ErrLost) || hold.ValidFor() != 0 {
				t.Fatalf("released: %v", err)
			}
			// Nobody has asked for this one before the loss.
			other := must[*redislock.Hold](t)(lock.Lock(background()))
			s.do(append(end, t.Name()+how)...)
			<-heard
			awaitLoss(t, other)
		}
	})
}

func TestALossIsReportedBeforeTheLeaseEndsWhenTheServerIsSilent(t *testing.T) {
	onBoth(t, func(t *testing.T, via maker) {
		s := serve(t)
		out := &logs{}
		lock := via(t, s, out.option()).NewLock("silent", redislock.WithLease(6*time.Second),
			redislock.WithMargin(3*time.Second))
		hold := must[*redislock.Hold](t)(lock.Lock(background()))
		begun := time.Now()
		s.signal(syscall.SIGSTOP)
		defer s.signal(syscall.SIGCONT)
		until(t, "a warning", func() bool { return out.has("a lock is lost") })
		if passed := time.Since(begun); passed < time.Second {
			t.Fatalf("lost after %v", passed)
		}
		awaitLoss(t, hold)
		s.signal(syscall.SIGCONT)
		if err := hold.Unlock(); !errors.Is(err, redislock.ErrLost) {
			t.Fatal(err)
		}
		s.awaitNothing()
	})
}

func TestAFunctionRunsUnderTheLockUntilItEndsWithTheRequestOrTheLock(t *testing.T) {
	s := serve(t)
	onBoth(t, func(t *testing.T, via maker) {
		type name struct{}
		lock := via(t, s).NewLock(t.Name(), redislock.WithLease(600*time.Millisecond))
		ctx, cancel := context.WithCancelCause(context.WithValue(background(), name{}, "value"))
		gone, failed := errors.New("the request has ended"), errors.New("failed")
		err := lock.Run(ctx, func(ctx context.Context, hold *redislock.Hold) error {
			if _, err := lock.TryLock(background()); !errors.Is(err, redislock.ErrHeld) || ctx.Value(name{}) != "value" {
				t.Errorf("not held (%v), or without the values", err)
			}
			cancel(gone)
			<-ctx.Done()
			if hold.Context().Err() != nil {
				t.Error("the hold ended with the request")
			}
			return context.Cause(ctx)
		})
		if err != gone {
			t.Fatal(err)
		}
		err = lock.Run(background(), func(ctx context.Context, _ *redislock.Hold) error {
			s.do("DEL", t.Name())
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, redislock.ErrLost) {
				t.Error(cause)
			}
			return failed
		})
		if !errors.Is(err, failed) || !errors.Is(err, redislock.ErrLost) {
			t.Fatal(err)
		}
		err = lock.Run(background(), func(_ context.Context, hold *redislock.Hold) error { return hold.Unlock() })
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = lock.Run(background(), func(context.Context, *redislock.Hold) error { panic("of the program") })
		}()
		hold := must[*redislock.Hold](t)(lock.TryLock(background()))
		unlock(t, hold)
		after, end := hold.With(background())
		defer end()
		if cause := context.Cause(after); !errors.Is(cause, redislock.ErrReleased) {
			t.Fatal(cause)
		}
	})
}

func TestWarningsGoToTheDefaultLogOfTheirTime(t *testing.T) {
	s := serve(t)
	program := redis.NewClient(&redis.Options{Addr: s.address()})
	client := must[*redislock.Client](t)(viagoredis.New(program))
	closed(t, client, func() { program.Close() })
	before, out := slog.Default(), &logs{}
	slog.SetDefault(slog.New(slog.NewTextHandler(out, nil)))
	defer slog.SetDefault(before)
	must[*redislock.Hold](t)(client.NewLock("a", redislock.WithLease(300*time.Millisecond)).Lock(background()))
	s.do("DEL", "a")
	until(t, "a warning", func() bool { return out.has("a lock is lost") })
}

func TestALossIsFoundAtTheRelease(t *testing.T) {
	s := serve(t)
	onBoth(t, func(t *testing.T, via maker) {
		hold := must[*redislock.Hold](t)(via(t, s).NewLock(t.Name()).Lock(background()))
		s.do("DEL", t.Name())
		if err := hold.Unlock(); !errors.Is(err, redislock.ErrLost) {
			t.Fatal(err)
		}
	})
}

// The lease of a hold is over where the clocks say so, whether or not a timer has run since: as after the process stood
// still.
func TestTheContextsOfAHoldCompareTheClocks(t *testing.T) {
	s := serve(t)
	onBoth(t, func(t *testing.T, via maker) {
		lock := via(t, s).NewLock(t.Name(), redislock.WithLease(50*time.Millisecond), redislock.WithMargin(0),
			redislock.WithoutRenewal())
		for i := range 100 {
			hold := must[*redislock.Hold](t)(lock.Lock(background()))
			of, cancel := hold.With(background())
			if i%2 == 0 {
				of = hold.Context()
			}
			for hold.ValidFor() > 0 {
			}
			if i%4 < 2 && of.Err() == nil || !errors.Is(context.Cause(of), redislock.ErrLost) {
				t.Fatalf("the lease is over, and the context has not ended: %v", context.Cause(of))
			}
			select {
			case <-of.Done():
			default:
				t.Fatal("Done is not closed")
			}
			cancel()
			hold.Unlock()
		}
	})
}

// A process that stands still while another owner gets the lock.
func TestAProcessThatStoodStillKnowsThatItsLeaseIsOver(t *testing.T) {
	if address := os.Getenv("LOCK_FROZEN"); address != "" {
		frozen(t, address)
		return
	}
	s := serve(t)
	lock := viaRedis(t, s).NewLock("frozen", redislock.WithLease(time.Minute))
	for count := range 3 {
		process := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
		process.Env = append(os.Environ(), "LOCK_FROZEN="+s.address())
		process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		var out strings.Builder
		process.Stdout, process.Stderr = &out, &out
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		// Not when the server has granted it: a grant that is heard late is given up, and asked for anew.
		until(t, "it holds the lock", func() bool { return s.do("GET", "holders") == fmt.Sprint(count+1) })
		process.Process.Signal(syscall.SIGSTOP)
		hold := granted(t, begin(background(), lock))
		process.Process.Signal(syscall.SIGCONT)
		if err := process.Wait(); err != nil {
			t.Fatal(out.String())
		}
		unlock(t, hold)
	}
}

// frozen holds the lock, renews it, and reads clocks and context until the loss.
func frozen(t *testing.T, address string) {
	program := redis.NewClient(&redis.Options{Addr: address})
	defer program.Close()
	client := must[*redislock.Client](t)(viagoredis.New(program, quiet))
	defer client.Close()
	hold := must[*redislock.Hold](t)(client.NewLock("frozen", redislock.WithLease(time.Second)).Lock(background()))
	must[int64](t)(program.Incr(background(), "holders").Result())
	for {
		// A renewal that is confirmed between the first two makes it valid again.
		valid, ended, still := hold.ValidFor(), hold.Context().Err(), hold.ValidFor()
		if valid == 0 && ended == nil && still == 0 {
			t.Fatal("the lease is over, and the context has not ended")
		}
		if ended != nil {
			return
		}
	}
}

func TestALogThatBlocksDelaysNoNewsOfALoss(t *testing.T) {
	onBoth(t, func(t *testing.T, via maker) {
		s := serve(t)
		log, called := blockedLog(t)
		client := via(t, s, log)
		lease := redislock.WithLease(12 * time.Second)
		must[*redislock.Hold](t)(client.NewLock("unheeded", lease).Lock(background()))
		holds := make([]*redislock.Hold, 20)
		for i := range holds {
			holds[i] = must[*redislock.Hold](t)(client.NewLock(fmt.Sprint("heeded:", i), lease).Lock(background()))
			holds[i].Context()
		}
		s.do("FLUSHALL")
		<-called
		for _, hold := range holds {
			awaitLoss(t, hold)
		}
		if stats := s.do("INFO", "commandstats").(string); !strings.Contains(stats, "cmdstat_lock.renew:calls=21,") {
			t.Fatalf("a loss was heard and not told at once: %s", stats)
		}
	})
}
