package redislock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	redislock "redis-lock.invalid/clients/go"
)

// TestTrial has workers lock through both libraries while the server is killed, started again and stopped, and
// connections are closed, for LOCK_TRIAL seconds. No two may hold a lock at a time, tokens rise, and nothing is left in
// the end. (The server writes each change to its disk before it answers: a kill must lose none.)
func TestTrial(t *testing.T) {
	seconds, err := strconv.Atoi(os.Getenv("LOCK_TRIAL"))
	if err != nil {
		t.Skip("LOCK_TRIAL is the number of seconds: make trial-go")
	}
	s := serve(t, "--appendonly", "yes", "--appendfsync", "always")
	trial := &trial{t: t, names: []string{"short:0", "short:1", "long:0", "long:1"}}
	for range trial.names {
		trial.holders = append(trial.holders, map[*redislock.Hold]struct{}{})
		trial.tokens = append(trial.tokens, 0)
	}
	ctx, cancel := context.WithTimeout(background(), time.Duration(seconds)*time.Second)
	defer cancel()
	var workers sync.WaitGroup
	clients := []*redislock.Client{viaRedis(t, s), viaRedis(t, s), viaRueidis(t, s), viaRueidis(t, s)}
	for i := range 40 {
		workers.Go(func() { trial.work(ctx, clients[i%len(clients)]) })
	}
	faults := map[string]int{}
	for ctx.Err() == nil {
		time.Sleep(time.Duration(200+rand.N(1500)) * time.Millisecond)
		switch fault := []string{"kill", "stop", "connections"}[rand.N(3)]; fault {
		case "kill":
			faults[fault]++
			s.kill()
			time.Sleep(time.Duration(rand.N(1500)) * time.Millisecond)
			s.start()
		case "stop":
			faults[fault]++
			s.signal(syscall.SIGSTOP)
			time.Sleep(time.Duration(rand.N(4000)) * time.Millisecond)
			s.signal(syscall.SIGCONT)
		case "connections":
			faults[fault]++
			s.do("CLIENT", "KILL", "TYPE", []string{"pubsub", "normal"}[rand.N(2)], "SKIPME", "yes")
		}
	}
	workers.Wait()
	for _, client := range clients {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
	begun := time.Now()
	s.awaitNothing()
	if settled := time.Since(begun); settled > 5*time.Second {
		t.Errorf("something was held until its lease ended: %v", settled)
	}
	t.Logf("faults %v; acquired %d, refused %d, cancelled %d, failed %d, lost %d; second holders %d; settled after %v",
		faults, trial.acquired.Load(), trial.refused.Load(), trial.cancelled.Load(), trial.failed.Load(),
		trial.lost.Load(), trial.second.Load(), time.Since(begun).Round(time.Millisecond))
}

type trial struct {
	t     *testing.T
	names []string

	mu      sync.Mutex
	holders []map[*redislock.Hold]struct{}
	tokens  []int64

	acquired, refused, cancelled, failed, lost, second atomic.Int64
}

func (t *trial) work(ctx context.Context, client *redislock.Client) {
	for ctx.Err() == nil {
		which := rand.N(len(t.names))
		lease := time.Second
		if which >= 2 {
			lease = 2 * time.Minute
		}
		lock := client.NewLock(t.names[which], redislock.WithLease(lease))
		bound, cancel := context.WithTimeout(ctx, time.Duration(rand.N(3000))*time.Millisecond)
		acquire := lock.Lock
		if rand.N(4) == 0 {
			acquire = lock.TryLock
		}
		hold, err := acquire(bound)
		cancel()
		switch {
		case err == nil:
			t.hold(which, hold)
		case errors.Is(err, redislock.ErrHeld):
			t.refused.Add(1)
			sleepABit()
		case errors.Is(err, context.DeadlineExceeded):
			t.cancelled.Add(1)
		default:
			t.failed.Add(1)
			sleepABit()
		}
	}
}

func sleepABit() { time.Sleep(time.Duration(rand.N(20)) * time.Millisecond) }

func (t *trial) hold(which int, hold *redislock.Hold) {
	t.acquired.Add(1)
	t.mu.Lock()
	for other := range t.holders[which] {
		if other.ValidFor() > 0 {
			t.second.Add(1)
			t.t.Errorf("%s: a second holder, %d beside %d", t.names[which], hold.Token(), other.Token())
		}
	}
	if hold.ValidFor() > 0 && hold.Token() <= t.tokens[which] {
		t.t.Errorf("%s: token %d after %d", t.names[which], hold.Token(), t.tokens[which])
	}
	t.tokens[which] = max(t.tokens[which], hold.Token())
	t.holders[which][hold] = struct{}{}
	t.mu.Unlock()
	if rand.N(10) == 0 {
		// Longer than a renewal.
		select {
		case <-hold.Context().Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
	ctx, cancel := context.WithTimeout(background(), time.Second)
	defer cancel()
	_, err := hold.Do(ctx, "SET", t.names[which]+":data", hold.Token())
	if errors.Is(err, redislock.ErrLost) && hold.ValidFor() > 0 {
		t.second.Add(1)
		t.t.Errorf("%s: %d is valid for %v, and fenced", t.names[which], hold.Token(), hold.ValidFor())
	}
	t.mu.Lock()
	delete(t.holders[which], hold)
	t.mu.Unlock()
	if err := hold.Unlock(); errors.Is(err, redislock.ErrLost) {
		t.lost.Add(1)
	}
}
