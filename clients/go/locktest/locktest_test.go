package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// isLost tells whether a hold is lost.
func isLost(hold *redislock.Hold) bool {
	return errors.Is(context.Cause(hold.Context()), redislock.ErrLost)
}

func awaitWaits(server *locktest.Server, count int) {
	for waiting := -1; waiting != count; {
		_, waiting = server.Counts()
	}
}

// begin acquires in the background.
func begin(ctx context.Context, acquire func(context.Context) (*redislock.Hold, error)) <-chan acquired {
	outcome := make(chan acquired, 1)
	go func() {
		hold, err := acquire(ctx)
		outcome <- acquired{hold, err}
	}()
	return outcome
}

type acquired struct {
	*redislock.Hold
	err error
}

func TestTheClockOfTheTestMovesThoseOfTheClients(t *testing.T) {
	server := locktest.New()
	c := client(t, server)
	ctx := context.Background()
	minute := redislock.WithLease(time.Minute)
	hold := must[*redislock.Hold](t)
	kept := hold(c.NewLock("kept", minute).Lock(ctx))
	bounded := hold(c.NewLock("bounded", minute, redislock.WithMaxHold(2*time.Hour)).Lock(ctx))
	fixed := hold(c.NewLock("fixed", minute, redislock.WithoutRenewal()).Lock(ctx))
	if err := hold(c.NewLock("left", minute).Lock(ctx)).Leave(30 * time.Minute); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 30*time.Minute)
	defer cancel()
	ends := begin(short, c.NewLock("kept").Lock)
	awaitWaits(server, 1)
	goesOn := begin(ctx, c.NewLock("kept").Lock)
	awaitWaits(server, 2)
	server.Advance(20 * time.Second)
	if rest := fixed.ValidFor(); fixed.Context().Err() != nil || rest > 40*time.Second {
		t.Fatal(rest)
	}
	server.Advance(time.Hour)
	if isLost(kept) || kept.ValidFor() < 50*time.Second || isLost(bounded) || !isLost(fixed) {
		t.Fatal(kept.Context().Err(), bounded.Context().Err(), fixed.Context().Err())
	}
	for _, name := range []string{"fixed", "left"} {
		hold(c.NewLock(name).TryLock(ctx))
	}
	if _, err := c.NewLock("kept").TryLock(ctx); !errors.Is(err, redislock.ErrHeld) {
		t.Fatal(err)
	}
	if ended := <-ends; ended.err != context.DeadlineExceeded {
		t.Fatal(ended.err)
	}
	if server.Advance(time.Hour); !isLost(bounded) {
		t.Fatal("it is held for longer than it may")
	}
	if err := kept.Unlock(); err != nil {
		t.Fatal(err)
	}
	if next := <-goesOn; next.err != nil {
		t.Fatal(next.err)
	}
}

func TestALossIsKnownWhenItIsMade(t *testing.T) {
	server := locktest.New()
	here, there := client(t, server), client(t, server)
	ctx := context.Background()
	hold := must[*redislock.Hold](t)
	fixed := hold(here.NewLock("x", redislock.WithoutRenewal()).Lock(ctx))
	other := hold(here.NewLock("other").Lock(ctx))
	next := begin(ctx, there.NewLock("x").Lock)
	awaitWaits(server, 1)
	server.Lose("x")
	if !isLost(fixed) || other.Context().Err() != nil {
		t.Fatal(fixed.Context().Err(), other.Context().Err())
	}
	if _, err := fixed.Do(ctx, "SET", "k", "v"); !errors.Is(err, redislock.ErrLost) {
		t.Fatal(err)
	}
	if granted := <-next; granted.err != nil || granted.Token() <= fixed.Token() {
		t.Fatal(granted)
	}
}

func TestCommandsUnderALock(t *testing.T) {
	ctx := context.Background()
	hold := must[*redislock.Hold](t)(client(t, locktest.New()).NewLock("x").Lock(ctx))
	for _, step := range []struct{ command, reply string }{
		{"GET k", "<nil>"}, {"SET k v XX", "<nil>"}, {"SET k 4", "OK"}, {"SET k 5 NX", "<nil>"}, {"INCR k", "5"},
		{"get k", "5"}, {"INCR n", "1"}, {"DEL k n none", "2"}, {"SET k v NX", "OK"},
		{"INCR k", "redislock: ERR value is not an integer or out of range"}, {"SET k v PX 1", "redislock: ERR syntax error"},
		{"HGET k f", "redislock: ERR unknown command 'HGET'"}, {"INCR x", "redislock: WRONGTYPE "},
		{"LOCK.RELEASE x o", "redislock: ERR "},
	} {
		reply, err := hold.Do(ctx, words(step.command)...)
		if fmt.Sprint(reply) != step.reply && (err == nil || !strings.HasPrefix(err.Error(), step.reply)) {
			t.Fatal(step.command, reply, err)
		}
	}
}

func words(command string) (words []any) {
	for _, word := range strings.Fields(command) {
		words = append(words, word)
	}
	return words
}

func TestAKeyIsOfOneKind(t *testing.T) {
	ctx := context.Background()
	c := client(t, locktest.New())
	hold := must[*redislock.Hold](t)
	exclusive := hold(c.NewLock("exclusive").TryLock(ctx))
	hold(c.NewReadWriteLock("shared").Read().TryLock(ctx))
	one := redislock.WithPermits(1)
	hold(c.NewSemaphore("permits", one).TryAcquire(ctx))
	must[any](t)(exclusive.Do(ctx, "SET", "text", "x"))
	for i, step := range []struct {
		acquire func(context.Context) (*redislock.Hold, error)
		code    string
	}{
		{c.NewLock("shared").Lock, "LOCKTYPE"}, {c.NewReadWriteLock("exclusive").Read().Lock, "LOCKTYPE"},
		{c.NewReadWriteLock("exclusive").Write().TryLock, "LOCKTYPE"}, {c.NewLock("permits").Lock, "WRONGTYPE"},
		{c.NewLock("text").TryLock, "WRONGTYPE"}, {c.NewMultiLock([]string{"free", "text"}).TryLock, "WRONGTYPE"},
		{c.NewSemaphore("exclusive", one).TryAcquire, "WRONGTYPE"}, {c.NewSemaphore("text", one).TryAcquire, "LOCKTYPE"},
	} {
		var refused *redislock.ServerError
		if _, err := step.acquire(ctx); !errors.As(err, &refused) || refused.Code != step.code {
			t.Fatal(i, err)
		}
	}
}

func TestWhatItDoesNotKnowIsRefused(t *testing.T) {
	for command, text := range map[string]string{
		"LOCK.ACQUIRE x o SESSION": "syntax error", "LOCK.ACQUIRE x o COUNT 2": "syntax error",
		"LOCK.RENEW x o SEQ 1": "syntax error", "LOCK.INFO x WAITERS": "syntax error", "SEM.SET x 1 NX": "syntax error",
		"LATCH.SET x 1": "unknown command", "LOCK.MRENEW 1 x o": "unknown command",
	} {
		reply := locktest.New().Do(context.Background(), redislock.Command{Words: words(command), Key: 1})[0]
		if reply.Err == nil || !strings.Contains(reply.Err.Error(), text) {
			t.Error(command, reply)
		}
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

func TestAHoldThatIsNotToBeRenewedIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, locktest.New(), redislock.WithObserver(redislock.Observer{
			Late: func(lock *redislock.Subject, _ time.Duration) { t.Error(lock.Name, "is late") }}))
		ctx, lease, hold := context.Background(), redislock.WithLease(6*time.Second), must[*redislock.Hold](t)
		hold(c.NewLock("renewed", lease).Lock(ctx)) // at 4 s, when both are looked at
		hold(c.NewLock("bounded", lease, redislock.WithMaxHold(6*time.Second)).Lock(ctx))
		time.Sleep(time.Minute)
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
		awaitWaits(server, i+1)
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
	writer := c.NewReadWriteLock("w", me)
	if again := hold(writer.Write().TryLock(ctx)); again.Token() != hold(writer.Read().TryLock(ctx)).Token() {
		t.Fatal("who writes reads under another token")
	}
	if info := must[redislock.LockInfo](t)(writer.Read().Info(ctx)); info.Mode != "write" || len(info.Holders) != 1 {
		t.Fatalf("%+v", info)
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
	var granted []<-chan acquired
	other := []*redislock.Hold{hold(c.NewLock("k1").Lock(ctx)), hold(c.NewLock("k2").Lock(ctx))}
	for i, name := range []string{"k1", "k2"} {
		granted = append(granted, begin(ctx, c.NewLock(name, me).Lock))
		awaitWaits(server, i+1)
	}
	for _, hold := range append(other, read, write, two) {
		if err := hold.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	for _, wait := range granted {
		if err := hold((<-wait).Hold, nil).Unlock(); err != nil {
			t.Fatal(err)
		}
	}
}
