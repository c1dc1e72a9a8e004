package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	redislock "redis-lock.invalid/clients/go"
	"redis-lock.invalid/clients/go/locktest"
)

func client(t *testing.T, server *locktest.Server, options ...redislock.ClientOption) *redislock.Client {
	c, err := redislock.New(server, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func TestALeaseEndsOnTheClockOfTheTest(t *testing.T) {
	server := locktest.New()
	c := client(t, server)
	ctx := context.Background()
	lock := c.NewLock("x", redislock.WithLease(time.Minute))
	hold := must[*redislock.Hold](t)(lock.Lock(ctx))
	server.Advance(59 * time.Second)
	if _, err := lock.TryLock(ctx); !errors.Is(err, redislock.ErrHeld) || hold.Context().Err() != nil {
		t.Fatal(err)
	}
	server.Advance(2 * time.Second)
	if cause := context.Cause(hold.Context()); !errors.Is(cause, redislock.ErrLost) {
		t.Fatal(cause)
	}
	if _, err := hold.Do(ctx, "SET", "k", "v"); !errors.Is(err, redislock.ErrLost) {
		t.Fatal(err)
	}
	next := must[*redislock.Hold](t)(lock.TryLock(ctx))
	if next.Token() <= hold.Token() {
		t.Fatal(next.Token())
	}
	server.Lose("x")
	if cause := context.Cause(next.Context()); !errors.Is(cause, redislock.ErrLost) {
		t.Fatal(cause)
	}
}

func TestWhatRunsUnderALockIsAnsweredByTheTest(t *testing.T) {
	server := locktest.New()
	total := 0
	server.Command = func(words []any) any {
		if words[0] != "INCR" {
			return redislock.Refusal("ERR unknown command 'X'")
		}
		total++
		return int64(total)
	}
	ctx := context.Background()
	hold := must[*redislock.Hold](t)(client(t, server).NewLock("x").Lock(ctx))
	if reply := must[any](t)(hold.Do(ctx, "INCR", "total")); reply != int64(1) {
		t.Fatal(reply)
	}
	if _, err := hold.Do(ctx, "X", "total"); err == nil {
		t.Fatal("no error")
	}
}

// In a bubble the clocks of the clients move, too: renewals, losses by the clock, and bounded waits.
func TestInABubbleAllClocksMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.New()
		one := must[*redislock.Client](t)(redislock.New(server))
		two := must[*redislock.Client](t)(redislock.New(server))
		lock := one.NewLock("x", redislock.WithLease(10*time.Second))
		hold := must[*redislock.Hold](t)(lock.Lock(t.Context()))
		time.Sleep(time.Hour)
		if hold.Context().Err() != nil {
			t.Fatal("it was not renewed")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := two.NewLock("x").Lock(ctx); err != context.DeadlineExceeded {
			t.Fatal(err)
		}
		fixed := must[*redislock.Hold](t)(one.NewLock("y", redislock.WithLease(time.Minute), redislock.WithoutRenewal()).
			Lock(t.Context()))
		next := must[*redislock.Hold](t)(two.NewLock("y").Lock(t.Context())) // after the lease
		if cause := context.Cause(fixed.Context()); !errors.Is(cause, redislock.ErrLost) {
			t.Fatal(cause)
		}
		if err := errors.Join(hold.Unlock(), next.Unlock(), one.Close(), two.Close()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute) // what was planned
		synctest.Wait()
	})
}

func TestWaitsAreInOrder(t *testing.T) {
	server := locktest.New()
	c := client(t, server)
	ctx := context.Background()
	lock := c.NewLock("x")
	hold := must[*redislock.Hold](t)(lock.Lock(ctx))
	order := make(chan int, 5)
	for i := range cap(order) {
		go lock.Run(ctx, func(context.Context, *redislock.Hold) error {
			order <- i
			return nil
		})
		for waiters := 0; waiters < i+1; {
			waiters = must[redislock.LockInfo](t)(lock.Info(ctx)).Waiters
		}
	}
	if err := hold.Unlock(); err != nil {
		t.Fatal(err)
	}
	for i := range cap(order) {
		if next := <-order; next != i {
			t.Fatal(fmt.Sprint(next, " before ", i))
		}
	}
}

func TestAnOwnerHasSeveralModesKeysAndWaits(t *testing.T) {
	server := locktest.New()
	c := client(t, server)
	ctx := context.Background()
	me := redislock.WithOwner("me")
	hold := must[*redislock.Hold](t)
	rw := c.NewReadWriteLock("rw", me)
	read, write := hold(rw.Read().TryLock(ctx)), hold(rw.Write().TryLock(ctx))
	if _, err := c.NewReadWriteLock("rw").Read().TryLock(ctx); !errors.Is(err, redislock.ErrHeld) {
		t.Fatal(err)
	}
	if again := hold(c.NewReadWriteLock("w", me).Write().TryLock(ctx)); again.Token() !=
		hold(c.NewReadWriteLock("w", me).Read().TryLock(ctx)).Token() {
		t.Fatal("who writes reads under another token")
	}
	one := hold(c.NewLock("a", me, redislock.WithNote("note")).TryLock(ctx))
	two := hold(c.NewMultiLock([]string{"a", "b"}, me).TryLock(ctx))
	if one.Token() != two.Token() || two.Tokens()[1] <= one.Token() {
		t.Fatal(two.Tokens(), one.Token())
	}
	if err := one.SetNote(ctx, ""); err != nil {
		t.Fatal(err)
	}
	if note := must[redislock.LockInfo](t)(c.NewLock("a").Info(ctx)).Holders[0].Note; note != "" {
		t.Fatal(note)
	}
	if none := must[redislock.SemaphoreInfo](t)(c.NewSemaphore("none").Info(ctx)); none != (redislock.SemaphoreInfo{}) {
		t.Fatalf("%+v", none)
	}
	granted := make(chan *redislock.Hold, 2)
	other := []*redislock.Hold{hold(c.NewLock("k1").Lock(ctx)), hold(c.NewLock("k2").Lock(ctx))}
	for i, name := range []string{"k1", "k2"} {
		go func() {
			hold, _ := c.NewLock(name, me).Lock(ctx)
			granted <- hold
		}()
		for waiting := 0; waiting <= i; {
			_, waiting = server.Counts()
		}
	}
	for _, hold := range append(other, read, write, two) {
		if err := hold.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	for range other {
		if err := (<-granted).Unlock(); err != nil {
			t.Fatal(err)
		}
	}
}
