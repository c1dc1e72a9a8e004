package redislock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	redislock "redis-lock.invalid/clients/go"
	"redis-lock.invalid/clients/go/viagoredis"
	"redis-lock.invalid/clients/go/viarueidis"
)

func TestCloseEndsWaitsAndReleasesWhatIsHeld(t *testing.T) {
	onAll(t, func(t *testing.T, via maker) {
		s := serve(t)
		client := via(t, s)
		must[*redislock.Hold](t)(client.NewLock("closed").Lock(background()))
		wait := begin(background(), client.NewLock("closed"))
		s.awaitWaits(1)
		if err := client.Close(); err != nil {
			t.Fatal(err)
		}
		if found := got(t, wait); !errors.Is(found.err, redislock.ErrClosed) {
			t.Fatal(found.err)
		}
		s.awaitNothing()
		if _, err := client.NewLock("closed").TryLock(background()); !errors.Is(err, redislock.ErrClosed) {
			t.Fatal(err)
		}
	})
}

func TestCloseReturnsInTheFunctionOfALoss(t *testing.T) {
	onBoth(t, func(t *testing.T, via maker) {
		s := serve(t)
		client := via(t, s)
		closed := make(chan error, 1)
		lost := client.NewLock("lost", redislock.WithLease(300*time.Millisecond),
			redislock.WithOnLost(func(*redislock.Hold, error) { closed <- client.Close() }))
		must[*redislock.Hold](t)(lost.Lock(background()))
		other := must[*redislock.Hold](t)(client.NewLock("other").Lock(background()))
		s.do("DEL", "lost")
		// An error: it has waited for itself.
		if err := <-closed; err != nil {
			t.Fatal(err)
		}
		if err := other.Unlock(); !errors.Is(err, redislock.ErrReleased) {
			t.Fatal(err)
		}
		s.awaitNothing()
	})
}

// closing is a transport in which the client is closed while a grant is on its way.
type closing struct {
	redislock.Transport
	server *server
	close  func()
}

func (closing) IsCluster() bool { return false }

func (c closing) Do(ctx context.Context, commands ...redislock.Command) (replies []redislock.Reply) {
	for _, command := range commands {
		replies = append(replies, redislock.Reply{Value: c.server.do(command.Words...)})
		if command.Words[0] == "LOCK.ACQUIRE" {
			go c.close()
			<-ctx.Done()
		}
	}
	return replies
}

// bounded is the same, with requests in the goroutines of their callers.
type bounded struct{ closing }

func (bounded) EndsWithin(time.Duration) bool { return true }

func TestAGrantThatComesWhileTheClientIsClosedIsReleased(t *testing.T) {
	s := serve(t)
	var client *redislock.Client
	ended := make(chan error, 1)
	transport := closing{server: s, close: func() { ended <- client.Close() }}
	for _, transport := range []redislock.Transport{transport, bounded{transport}} {
		client = must[*redislock.Client](t)(redislock.New(transport, quiet))
		if _, err := client.NewLock("late").TryLock(background()); !errors.Is(err, redislock.ErrClosed) {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		s.awaitNothing()
	}
}

func TestAWaitEndsWithTheClientOfTheProgram(t *testing.T) {
	end := func(t *testing.T, nodes []*server, client *redislock.Client, closeProgram func()) {
		hold := must[*redislock.Hold](t)(client.NewLock("closed").Lock(background()))
		wait := begin(background(), client.NewLock("closed"))
		until(t, "a wait", func() bool {
			return slices.ContainsFunc(nodes, func(s *server) bool { return s.figure("tickets") == "1" })
		})
		closeProgram()
		for _, node := range nodes {
			node.do("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")
		}
		if found := got(t, wait); !errors.Is(found.err, redislock.ErrClosed) {
			t.Fatal(found.err)
		}
		if err := hold.Unlock(); !errors.Is(err, redislock.ErrClosed) {
			t.Fatal(err)
		}
		if err := client.Close(); err != nil {
			t.Fatal(err)
		}
	}
	test := func(t *testing.T, nodes func(*testing.T) []*server) {
		t.Run("go-redis", func(t *testing.T) {
			t.Parallel()
			nodes := nodes(t)
			program := redis.NewUniversalClient(
				&redis.UniversalOptions{Addrs: []string{nodes[0].address()}, IsClusterMode: len(nodes) > 1})
			end(t, nodes, must[*redislock.Client](t)(viagoredis.New(program, quiet)), func() { program.Close() })
		})
		t.Run("rueidis", func(t *testing.T) {
			t.Parallel()
			nodes := nodes(t)
			program := must[rueidis.Client](t)(rueidis.NewClient(
				rueidis.ClientOption{InitAddress: []string{nodes[0].address()}, ForceSingleClient: len(nodes) == 1}))
			end(t, nodes, must[*redislock.Client](t)(viarueidis.New(program, quiet)), program.Close)
		})
	}
	t.Run("of a server", func(t *testing.T) {
		test(t, func(t *testing.T) []*server { return []*server{serve(t)} })
	})
	t.Run("of a cluster", func(t *testing.T) {
		test(t, func(t *testing.T) []*server { nodes := cluster(t); return nodes[:] })
	})
}

// stuck is a transport whose requests have no end, whatever their context says: as libraries that connect.
type stuck struct {
	closing
	until <-chan struct{}
}

func (s stuck) Do(_ context.Context, commands ...redislock.Command) []redislock.Reply {
	<-s.until
	return make([]redislock.Reply, len(commands))
}

func TestNoRequestOutlastsItsContext(t *testing.T) {
	until := make(chan struct{})
	client := must[*redislock.Client](t)(redislock.New(stuck{until: until}, quiet,
		redislock.WithResponseTimeout(50*time.Millisecond)))
	ctx, cancel := context.WithTimeout(background(), 50*time.Millisecond)
	defer cancel()
	if _, err := client.NewLock("a").TryLock(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	client.Close()
	close(until)
}

// A new connection of go-redis is not ready until the test says so, and the present one is not free, or has ended.
func TestAReleaseDoesNotWaitForAConnection(t *testing.T) {
	test := func(t *testing.T, end func(t *testing.T, s *server, program *redis.Client)) {
		t.Parallel()
		s := serve(t)
		until, opened := make(chan struct{}), make(chan struct{}, 1)
		program := redis.NewClient(&redis.Options{Addr: s.address(), ReadTimeout: 2 * time.Second,
			OnConnect: func(context.Context, *redis.Conn) error {
				select {
				case opened <- struct{}{}:
				default:
					<-until
				}
				return nil
			}})
		client := must[*redislock.Client](t)(viagoredis.New(program, quiet,
			redislock.WithResponseTimeout(2*time.Second)))
		closed(t, client, func() { program.Close() })
		hold := must[*redislock.Hold](t)(client.NewLock("full").Lock(background()))
		end(t, s, program)
		ended := make(chan acquired, 1)
		go func() { ended <- acquired{err: hold.Unlock()} }()
		found := got(t, ended)
		close(until)
		if !errors.Is(found.err, redislock.ErrNoAnswer) {
			t.Fatal(found.err)
		}
		s.awaitNothing()
	}
	t.Run("that is not free", func(t *testing.T) {
		test(t, func(t *testing.T, _ *server, program *redis.Client) {
			taken := program.Conn()
			t.Cleanup(func() { taken.Close() })
			if err := taken.Ping(background()).Err(); err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Run("that has ended", func(t *testing.T) {
		test(t, func(t *testing.T, s *server, program *redis.Client) {
			s.do("CLIENT", "KILL", "TYPE", "normal")
			if program.PoolStats().IdleConns != 1 {
				t.Fatal("no connection is free")
			}
		})
	})
}
