package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// replicated is a server, and one that has what it has.
func replicated(t *testing.T) (primary, copied *server) {
	t.Helper()
	primary = serve(t, "--repl-diskless-sync-delay", "0")
	copied = serve(t, "--replicaof", "127.0.0.1", strconv.Itoa(primary.port))
	primary.awaitReplica()
	return primary, copied
}

func (s *server) awaitReplica() {
	s.t.Helper()
	until(s.t, "the acknowledgement of the replica", func() bool { return s.do("WAIT", 1, 100).(int64) == 1 })
}

// replicateNode makes a replica of a node of a cluster.
func replicateNode(t *testing.T, node *server) {
	t.Helper()
	copies := serve(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "5000")
	copies.do("CLUSTER", "MEET", "127.0.0.1", node.port)
	id := node.do("CLUSTER", "MYID").(string)
	until(t, "the replica knows its primary", func() bool {
		return copies.raw.Do(background(), "CLUSTER", "REPLICATE", id).Err() == nil
	})
	node.awaitReplica()
}

// oneReplica has a minute.
var oneReplica = []redislock.Option{redislock.WithReplicas(1), redislock.WithReplicasWithin(time.Minute)}

func TestAGrantIsOneThatReplicasHave(t *testing.T) {
	onBoth(t, func(t *testing.T, via maker) {
		s, copied := replicated(t)
		client := via(t, s)
		two, brief := redislock.WithReplicas(2), redislock.WithReplicasWithin(20*time.Millisecond)
		for name, one := range kinds(client, oneReplica...) {
			hold := must[*redislock.Hold](t)(one(background()))
			if copied.do("EXISTS", name).(int64) != 1 {
				t.Fatal(name, "the replica does not have it")
			}
			wait := start(background(), one)
			s.awaitWaits(1)
			unlock(t, hold)
			unlock(t, granted(t, wait))
			_, err := kinds(client, two, brief)[name](background())
			if !errors.Is(err, redislock.ErrNotReplicated) || !strings.Contains(err.Error(), " of 2 replicas") {
				t.Fatal(name, err)
			}
			// It is free at once.
			unlock(t, must[*redislock.Hold](t)(kinds(client)[name](background())))
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
		s, copied := replicated(t)
		client := via(t, s)
		copied.signal(syscall.SIGSTOP)
		one, brief := redislock.WithReplicas(1), redislock.WithReplicasWithin(50*time.Millisecond)
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
		s, copied := replicated(t)
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
		s, copied := replicated(t)
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
	onClusters(t, func(t *testing.T, nodes [2]*server, client *redislock.Client) {
		replicateNode(t, nodes[1])
		// foo is in the half of the second node, and bar in that of the first.
		unlock(t, must[*redislock.Hold](t)(client.NewMultiLock([]string{"foo"}, oneReplica...).Lock(background())))
		brief := redislock.WithReplicasWithin(20 * time.Millisecond)
		_, err := client.NewLock("bar", redislock.WithReplicas(1), brief).Lock(background())
		if !errors.Is(err, redislock.ErrNotReplicated) || !strings.Contains(err.Error(), "0 of 1 replicas") {
			t.Fatal(err)
		}
		// Its slot moves to the node with a replica, and the client finds out by its requests.
		move(t, nodes[0], nodes[1], "bar")
		unlock(t, must[*redislock.Hold](t)(client.NewMultiLock([]string{"bar"}, oneReplica...).Lock(background())))
		nodes[1].awaitNothing()
	})
}

// moving moves the slot of a key when the key is granted.
type moving struct {
	redis.Hook
	move func()
}

func (m moving) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m moving) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (m moving) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		err := next(ctx, command)
		if command.Name() == "lock.acquire" {
			m.move()
		}
		return err
	}
}

func TestAGrantWhoseSlotMovesIsLookedForAtItsNewNode(t *testing.T) {
	nodes := cluster(t)
	replicateNode(t, nodes[1])
	below := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nodes[0].address(), nodes[1].address()}})
	below.AddHook(moving{move: func() { move(t, nodes[0], nodes[1], "bar") }})
	client := closed(t, must[*redislock.Client](t)(viagoredis.New(below, quiet)), func() { below.Close() })
	unlock(t, must[*redislock.Hold](t)(client.NewMultiLock([]string{"bar"}, oneReplica...).Lock(background())))
	nodes[1].awaitNothing()
}

func TestThePrimaryThatSentinelNamesIsAsked(t *testing.T) {
	primary, copied := replicated(t)
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	monitor := fmt.Sprintf("sentinel monitor main 127.0.0.1 %d 1\n", primary.port)
	if err := os.WriteFile(config, []byte(monitor), 0o600); err != nil {
		t.Fatal(err)
	}
	sentinel := serve(t, "sentinel", config)
	viaGoRedis := redis.NewFailoverClient(
		&redis.FailoverOptions{MasterName: "main", SentinelAddrs: []string{sentinel.address()}})
	viaRueidis, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{sentinel.address()},
		Sentinel: rueidis.SentinelOption{MasterSet: "main"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, client := range []*redislock.Client{
		closed(t, must[*redislock.Client](t)(viagoredis.New(viaGoRedis, quiet)), func() { viaGoRedis.Close() }),
		closed(t, must[*redislock.Client](t)(viarueidis.New(viaRueidis, quiet)), viaRueidis.Close),
	} {
		hold := must[*redislock.Hold](t)(client.NewMultiLock([]string{"x"}, oneReplica...).Lock(background()))
		if copied.do("EXISTS", "x").(int64) != 1 {
			t.Fatal("the replica does not have it")
		}
		unlock(t, hold)
	}
}
