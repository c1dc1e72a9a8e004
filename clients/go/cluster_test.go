package redislock_test

import (
	"context"
	"errors"
	"fmt"
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

// cluster is a cluster of two nodes, each with a half of the slots.
func cluster(t *testing.T) [2]*server {
	t.Helper()
	var nodes [2]*server
	for i := range nodes {
		nodes[i] = serve(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "5000")
	}
	nodes[0].do("CLUSTER", "ADDSLOTSRANGE", 0, 8191)
	nodes[1].do("CLUSTER", "ADDSLOTSRANGE", 8192, 16383)
	nodes[1].do("CLUSTER", "SET-CONFIG-EPOCH", 2)
	nodes[0].do("CLUSTER", "MEET", "127.0.0.1", nodes[1].port)
	for _, node := range nodes {
		until(t, "the cluster is complete", func() bool {
			info := node.do("CLUSTER", "INFO").(string)
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:2")
		})
	}
	return nodes
}

func onClusters(t *testing.T, test func(*testing.T, [2]*server, *redislock.Client)) {
	t.Run("go-redis", func(t *testing.T) {
		t.Parallel()
		nodes := cluster(t)
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nodes[0].address(), nodes[1].address()}})
		locks := must[*redislock.Client](t)(viagoredis.New(client, quiet))
		test(t, nodes, closed(t, locks, func() { client.Close() }))
	})
	t.Run("rueidis", func(t *testing.T) {
		t.Parallel()
		nodes := cluster(t)
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{nodes[0].address(), nodes[1].address()}})
		if err != nil {
			t.Fatal(err)
		}
		test(t, nodes, closed(t, must[*redislock.Client](t)(viarueidis.New(client, quiet)), client.Close))
	})
}

// move moves the slot of a key, and its keys.
func move(t *testing.T, from, to *server, key string) {
	t.Helper()
	slot := from.do("CLUSTER", "KEYSLOT", key)
	ids := [2]any{from.do("CLUSTER", "MYID"), to.do("CLUSTER", "MYID")}
	to.do("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
	from.do("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
	for _, key := range from.do("CLUSTER", "GETKEYSINSLOT", slot, 1000).([]any) {
		from.do("MIGRATE", "127.0.0.1", to.port, key, 0, 5000)
	}
	to.do("CLUSTER", "SETSLOT", slot, "NODE", ids[1])
	from.do("CLUSTER", "SETSLOT", slot, "NODE", ids[1])
}

func TestWaitsInAClusterHaveOneSubscribedConnectionANode(t *testing.T) {
	onClusters(t, func(t *testing.T, nodes [2]*server, client *redislock.Client) {
		var holds []*redislock.Hold
		var waits []<-chan acquired
		for i := range 40 {
			lock := client.NewLock(fmt.Sprint("key:", i))
			holds = append(holds, must[*redislock.Hold](t)(lock.Lock(background())))
			waits = append(waits, begin(background(), lock))
		}
		until(t, "40 waits", func() bool {
			var one, other int
			fmt.Sscan(nodes[0].figure("tickets"), &one)
			fmt.Sscan(nodes[1].figure("tickets"), &other)
			return one > 0 && other > 0 && one+other == 40
		})
		for _, node := range nodes {
			if lines := len(splitLines(node.do("CLIENT", "LIST", "TYPE", "pubsub").(string))); lines != 1 {
				t.Fatalf("%d subscribed connections", lines)
			}
		}
		for i, hold := range holds {
			unlock(t, hold)
			unlock(t, granted(t, waits[i]))
		}
		for _, node := range nodes {
			node.awaitNothing()
		}
	})
}

func TestAHoldAndItsWaitsMoveWithTheirSlot(t *testing.T) {
	onClusters(t, func(t *testing.T, nodes [2]*server, client *redislock.Client) {
		// Keys in a slot of the first node.
		lock := client.NewLock("{0}:moved", redislock.WithLease(6*time.Second))
		from, to := nodes[0], nodes[1]
		if from.do("CLUSTER", "KEYSLOT", "{0}").(int64) > 8191 {
			from, to = to, from
		}
		hold := must[*redislock.Hold](t)(lock.Lock(background()))
		ctx, cancel := context.WithCancel(background())
		cancelled := begin(ctx, lock)
		from.awaitWaits(1)
		wait := begin(background(), lock)
		from.awaitWaits(2)
		move(t, from, to, "{0}:moved")
		to.awaitWaits(2)
		cancel()
		if found := got(t, cancelled); !errors.Is(found.err, context.Canceled) {
			t.Fatal(found.err)
		}
		to.awaitWaits(1)
		to.awaitRenewals("renewals", 1)
		unlock(t, hold)
		unlock(t, granted(t, wait))
		to.awaitNothing()
	})
}

func TestManyKeysOfSeveralSlotsAreRefused(t *testing.T) {
	onClusters(t, func(t *testing.T, nodes [2]*server, client *redislock.Client) {
		var refusal *redislock.ServerError
		_, err := client.NewMultiLock([]string{"a", "b"}).TryLock(background())
		if !errors.As(err, &refusal) || refusal.Code != "CROSSSLOT" {
			t.Fatal(err)
		}
		unlock(t, must[*redislock.Hold](t)(client.NewMultiLock([]string{"{a}1", "{a}2"}).Lock(background())))
	})
}

func TestANodeThatHangsCostsNoLockOfTheOthers(t *testing.T) {
	onClusters(t, func(t *testing.T, nodes [2]*server, client *redislock.Client) {
		var holds [2][]*redislock.Hold
		for i := range 40 {
			key := fmt.Sprint("key:", i)
			lock := client.NewLock(key, redislock.WithLease(3*time.Second))
			at := nodes[0].do("CLUSTER", "KEYSLOT", key).(int64) / 8192
			hold := must[*redislock.Hold](t)(lock.Lock(background()))
			hold.Context()
			holds[at] = append(holds[at], hold)
		}
		nodes[1].signal(syscall.SIGSTOP)
		defer nodes[1].signal(syscall.SIGCONT)
		for _, hold := range holds[1] {
			awaitLoss(t, hold)
		}
		for _, hold := range holds[0] {
			unlock(t, hold)
		}
	})
}
