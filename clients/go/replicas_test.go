package redislock_test

import (
	"errors"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	redislock "redis-lock.invalid/clients/go"
	"redis-lock.invalid/clients/go/viagoredis"
	"redis-lock.invalid/clients/go/viarueidis"
)

// replica is a server that has what the primary has.
func replica(t *testing.T, primary *server) *server {
	t.Helper()
	s := serve(t, "--replicaof", "127.0.0.1", strconv.Itoa(primary.port))
	until(t, "the link to the primary", func() bool {
		return strings.Contains(s.do("INFO", "replication").(string), "master_link_status:up")
	})
	until(t, "the acknowledgement of the replica", func() bool { return primary.do("WAIT", 1, 100).(int64) == 1 })
	return s
}

func TestAGrantIsOneThatReplicasHave(t *testing.T) {
	onBoth(t, func(t *testing.T, via maker) {
		s := serve(t, "--repl-diskless-sync-delay", "0")
		copied := replica(t, s)
		client := via(t, s)
		one, two := redislock.WithReplicas(1), redislock.WithReplicas(2)
		patient, brief := redislock.WithReplicasWithin(time.Minute), redislock.WithReplicasWithin(20*time.Millisecond)
		for name, kind := range map[string]func(...redislock.Option) acquirer{
			"x": func(options ...redislock.Option) acquirer { return client.NewMultiLock([]string{"x"}, options...).Lock },
			"m": func(options ...redislock.Option) acquirer {
				return client.NewMultiLock([]string{"m", "n"}, options...).Lock
			},
			"w": func(options ...redislock.Option) acquirer {
				return client.NewReadWriteLock("w", options...).Write().Lock
			},
			"p": func(options ...redislock.Option) acquirer {
				all := []redislock.SemaphoreOption{redislock.WithPermits(1)}
				for _, option := range options {
					all = append(all, option)
				}
				return client.NewSemaphore("p", all...).Acquire
			},
		} {
			hold := must[*redislock.Hold](t)(kind(one, patient)(background()))
			if copied.do("EXISTS", name).(int64) != 1 {
				t.Fatal(name, "the replica does not have it")
			}
			wait := make(chan acquired, 1)
			go func() {
				hold, err := kind(one, patient)(background())
				wait <- acquired{hold, err}
			}()
			s.awaitWaits(1)
			unlock(t, hold)
			unlock(t, granted(t, wait))
			_, err := kind(two, brief)(background())
			if !errors.Is(err, redislock.ErrNotReplicated) || !strings.Contains(err.Error(), "1 of 2 replicas") {
				t.Fatal(name, err)
			}
			// It is free at once.
			unlock(t, must[*redislock.Hold](t)(kind()(background())))
			s.awaitNothing()
		}
		none := client.NewLock("z", redislock.WithReplicas(0))
		if _, err := none.TryLock(background()); !errors.Is(err, redislock.ErrUsage) {
			t.Fatal(err)
		}
	})
}

func TestAReplicaThatStandsStillDelaysNoOtherLock(t *testing.T) {
	onBoth(t, func(t *testing.T, via maker) {
		s := serve(t, "--repl-diskless-sync-delay", "0")
		copied := replica(t, s)
		client := via(t, s)
		copied.signal(syscall.SIGSTOP)
		one := redislock.WithReplicas(1)
		brief := redislock.WithReplicasWithin(50 * time.Millisecond)
		if _, err := client.NewLock("brief", one, brief).Lock(background()); !errors.Is(err, redislock.ErrNotReplicated) {
			t.Fatal(err)
		}
		wait := begin(background(), client.NewLock("long", one, redislock.WithReplicasWithin(time.Hour)))
		s.awaitAsked()
		unlock(t, must[*redislock.Hold](t)(client.NewLock("other").Lock(background())))
		select {
		case found := <-wait:
			t.Fatal("the replica has not answered", found.err)
		default:
		}
		copied.signal(syscall.SIGCONT)
		unlock(t, granted(t, wait))
		s.awaitNothing()
	})
}

// awaitAsked waits until a request waits for replicas, and returns the identity of its connection.
func (s *server) awaitAsked() (id string) {
	s.t.Helper()
	until(s.t, "a request that waits for a replica", func() bool {
		for line := range strings.Lines(s.do("CLIENT", "LIST").(string)) {
			_, rest, _ := strings.Cut(line, " flags=")
			if flags, _, _ := strings.Cut(rest, " "); strings.Contains(flags, "b") {
				id, _, _ = strings.Cut(strings.TrimPrefix(line, "id="), " ")
			}
		}
		return id != ""
	})
	return id
}

func TestAGrantThatReplicasHaveAfterItsLeaseIsLost(t *testing.T) {
	onBoth(t, func(t *testing.T, via maker) {
		s := serve(t, "--repl-diskless-sync-delay", "0")
		copied := replica(t, s)
		client := via(t, s)
		copied.signal(syscall.SIGSTOP)
		wait := begin(background(), client.NewLock("x", redislock.WithLease(time.Second), redislock.WithReplicas(1),
			redislock.WithReplicasWithin(time.Hour)))
		s.awaitAsked()
		other := must[*redislock.Hold](t)(client.NewLock("x").Lock(background()))
		copied.signal(syscall.SIGCONT)
		if found := <-wait; !errors.Is(found.err, redislock.ErrLost) {
			t.Fatal(found.err)
		}
		unlock(t, other)
		s.awaitNothing()
	})
}

func TestAFailOverWhileReplicasAreWaitedForIsNoAnswer(t *testing.T) {
	onBoth(t, func(t *testing.T, via maker) {
		s := serve(t, "--repl-diskless-sync-delay", "0")
		copied := replica(t, s)
		copied.signal(syscall.SIGSTOP)
		defer copied.signal(syscall.SIGCONT)
		wait := begin(background(), via(t, s).NewLock("x", redislock.WithReplicas(1),
			redislock.WithReplicasWithin(time.Hour)))
		// As the server does when it becomes a replica.
		s.do("CLIENT", "UNBLOCK", s.awaitAsked(), "ERROR")
		if found := <-wait; !errors.Is(found.err, redislock.ErrNoAnswer) {
			t.Fatal(found.err)
		}
		s.awaitNothing()
	})
}

func TestInAClusterTheNodeOfTheKeyIsAsked(t *testing.T) {
	nodes := cluster(t)
	copies := serve(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "5000")
	copies.do("CLUSTER", "MEET", "127.0.0.1", nodes[1].port)
	id := nodes[1].do("CLUSTER", "MYID").(string)
	until(t, "the replica knows its primary", func() bool {
		return copies.raw.Do(background(), "CLUSTER", "REPLICATE", id).Err() == nil
	})
	until(t, "the acknowledgement of the replica", func() bool { return nodes[1].do("WAIT", 1, 100).(int64) == 1 })
	addresses := []string{nodes[0].address(), nodes[1].address()}
	viaGoRedis := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses})
	viaRueidis, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: addresses})
	if err != nil {
		t.Fatal(err)
	}
	for _, client := range []*redislock.Client{
		closed(t, must[*redislock.Client](t)(viagoredis.New(viaGoRedis, quiet)), func() { viaGoRedis.Close() }),
		closed(t, must[*redislock.Client](t)(viarueidis.New(viaRueidis, quiet)), viaRueidis.Close),
	} {
		// foo is in the half of the second node, and bar in that of the first.
		patient := redislock.WithReplicasWithin(time.Minute)
		unlock(t, must[*redislock.Hold](t)(client.NewLock("foo", redislock.WithReplicas(1), patient).Lock(background())))
		brief := redislock.WithReplicasWithin(20 * time.Millisecond)
		_, err := client.NewLock("bar", redislock.WithReplicas(1), brief).Lock(background())
		if !errors.Is(err, redislock.ErrNotReplicated) || !strings.Contains(err.Error(), "0 of 1 replicas") {
			t.Fatal(err)
		}
	}
}
