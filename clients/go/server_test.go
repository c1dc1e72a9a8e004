package redislock_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	redislock "redis-lock.invalid/clients/go"
	"redis-lock.invalid/clients/go/locktest"
	"redis-lock.invalid/clients/go/viagoredis"
	"redis-lock.invalid/clients/go/viarueidis"
)

// patience bounds the wait for a condition, on a busy machine.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	redis.SetLogger(silent{})
	goleak.VerifyTestMain(m)
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// server is a real server with the module, on a loopback port of its own.
type server struct {
	t       *testing.T
	port    int
	options []string
	dir     string
	process *exec.Cmd
	ended   chan struct{}
	// A client of the test, for what a lock does not do.
	raw *redis.Client
	// In place of a process.
	memory *locktest.Server
}

// serve starts a server. With the option "plain" it has no module; with "sentinel" and a file it is a sentinel.
func serve(t *testing.T, options ...string) *server {
	t.Helper()
	if strings.HasSuffix(t.Name(), inMemory) {
		return &server{t: t, memory: locktest.New()}
	}
	if os.Getenv("LOCK_SERVER") == "" || os.Getenv("LOCK_MODULE") == "" {
		t.Skip("LOCK_SERVER and LOCK_MODULE name the server and the module: make test-go")
	}
	s := &server{t: t, port: freePort(t), options: options, dir: t.TempDir()}
	s.raw = redis.NewClient(&redis.Options{Addr: s.address(), MaxRetries: -1})
	s.start()
	t.Cleanup(func() {
		s.raw.Close()
		s.kill()
	})
	return s
}

func freePort(t *testing.T) int {
	t.Helper()
	// The bus of a cluster is at the port and 10,000.
	for range 100 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := listener.Addr().(*net.TCPAddr).Port
		listener.Close()
		if port >= 50_000 {
			continue
		}
		if bus, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+10_000)); err == nil {
			bus.Close()
			return port
		}
	}
	t.Fatal("no free port below 50000")
	return 0
}

func (s *server) address() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

func (s *server) start() {
	s.t.Helper()
	words := []string{"--port", fmt.Sprint(s.port), "--bind", "127.0.0.1", "--save", "", "--dir", s.dir}
	switch {
	case len(s.options) > 0 && s.options[0] == "plain":
		words = append(words, s.options[1:]...)
	case len(s.options) > 0 && s.options[0] == "sentinel":
		words = []string{s.options[1], "--sentinel", "--port", fmt.Sprint(s.port), "--bind", "127.0.0.1"}
	default:
		words = append(append(words, "--loadmodule", os.Getenv("LOCK_MODULE")), s.options...)
	}
	s.process = exec.Command(os.Getenv("LOCK_SERVER"), words...)
	s.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log := filepath.Join(s.dir, "log")
	out, err := os.Create(log)
	if err != nil {
		s.t.Fatal(err)
	}
	s.process.Stdout, s.process.Stderr = out, out
	if err := s.process.Start(); err != nil {
		s.t.Fatal(err)
	}
	out.Close()
	s.ended = make(chan struct{})
	go func(process *exec.Cmd, ended chan struct{}) {
		process.Wait()
		close(ended)
	}(s.process, s.ended)
	until(s.t, "the server answers", func() bool {
		select {
		case <-s.ended:
			text, _ := os.ReadFile(log)
			s.t.Fatalf("the server has ended: %s", text)
		default:
		}
		return s.raw.Ping(context.Background()).Err() == nil
	})
}

func (s *server) kill() {
	s.signal(syscall.SIGKILL)
	<-s.ended
}

func (s *server) signal(signal syscall.Signal) { s.process.Process.Signal(signal) }

// do runs a command of the test.
func (s *server) do(words ...any) any {
	s.t.Helper()
	if s.memory != nil && (words[0] == "DEL" || words[0] == "LOCK.BREAK") {
		s.memory.Lose(words[1].(string))
		return nil
	}
	reply, err := s.raw.Do(context.Background(), words...).Result()
	if err != nil && err != redis.Nil {
		s.t.Fatalf("%v: %v", words, err)
	}
	return reply
}

// figure is a number of INFO lock.
func (s *server) figure(name string) string {
	s.t.Helper()
	if s.memory != nil {
		_, waiting := s.memory.Counts()
		return map[string]string{"tickets": fmt.Sprint(waiting)}[name]
	}
	text := s.do("INFO", "lock").(string)
	_, rest, _ := strings.Cut(text, "lock_"+name+":")
	number, _, _ := strings.Cut(rest, "\r\n")
	return number
}

// awaitWaits waits until so many waits are in the queues.
func (s *server) awaitWaits(count int) {
	s.t.Helper()
	until(s.t, fmt.Sprintf("%d waits", count), func() bool { return s.figure("tickets") == fmt.Sprint(count) })
}

// awaitRenewals waits until the server has served so many more renewals, by this figure.
func (s *server) awaitRenewals(name string, count int) {
	s.t.Helper()
	if s.memory != nil {
		return // not counted
	}
	served := func() int { return must[int](s.t)(strconv.Atoi(s.figure(name))) }
	before := served()
	until(s.t, "renewals", func() bool { return served() >= before+count })
}

// awaitNothing waits until nothing is held or waited for.
func (s *server) awaitNothing() {
	s.t.Helper()
	until(s.t, "nothing is left", func() bool {
		if s.memory != nil {
			held, waiting := s.memory.Counts()
			return held+waiting == 0
		}
		keys := s.do("LOCK.SCAN", "0", "COUNT", 100000).([]any)[1].([]any)
		return s.figure("tickets") == "0" && len(keys) == 0
	})
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out waiting for: %s", what)
		}
	}
}

// logs collects what is logged.
type logs struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logs) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *logs) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

func (l *logs) option() redislock.ClientOption {
	return redislock.WithLogger(slog.New(slog.NewTextHandler(l, nil)))
}

// blocked is a handler of logs that never returns until the test ends.
type blocked struct {
	slog.Handler
	called chan struct{}
	until  <-chan struct{}
}

func (b blocked) Enabled(context.Context, slog.Level) bool { return true }

func (b blocked) Handle(context.Context, slog.Record) error {
	select {
	case b.called <- struct{}{}:
	default:
	}
	<-b.until
	return nil
}

func blockedLog(t *testing.T) (redislock.ClientOption, <-chan struct{}) {
	called, until := make(chan struct{}, 1), make(chan struct{})
	t.Cleanup(func() { close(until) })
	return redislock.WithLogger(slog.New(blocked{slog.DiscardHandler, called, until})), called
}

var quiet = redislock.WithLogger(slog.New(slog.DiscardHandler))

// viaRedis is a client on go-redis, closed with the test.
func viaRedis(t *testing.T, s *server, options ...redislock.ClientOption) *redislock.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.address()})
	options = append([]redislock.ClientOption{quiet}, options...)
	return closed(t, must[*redislock.Client](t)(viagoredis.New(client, options...)), func() { client.Close() })
}

func viaRueidis(t *testing.T, s *server, options ...redislock.ClientOption) *redislock.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.address()}, ForceSingleClient: true})
	if err != nil {
		t.Fatal(err)
	}
	options = append([]redislock.ClientOption{quiet}, options...)
	return closed(t, must[*redislock.Client](t)(viarueidis.New(client, options...)), client.Close)
}

func closed(t *testing.T, c *redislock.Client, then func()) *redislock.Client {
	t.Cleanup(func() {
		c.Close()
		then()
	})
	return c
}

type maker func(*testing.T, *server, ...redislock.ClientOption) *redislock.Client

// onBoth runs a test with each library.
func onBoth(t *testing.T, test func(*testing.T, maker)) {
	t.Run("go-redis", func(t *testing.T) {
		t.Parallel()
		test(t, viaRedis)
	})
	t.Run("rueidis", func(t *testing.T) {
		t.Parallel()
		test(t, viaRueidis)
	})
}

const inMemory = "/in_memory"

// onAll runs a test with each library, and with the server in memory.
func onAll(t *testing.T, test func(*testing.T, maker)) {
	onBoth(t, test)
	t.Run(inMemory[1:], func(t *testing.T) {
		t.Parallel()
		test(t, func(t *testing.T, s *server, options ...redislock.ClientOption) *redislock.Client {
			options = append([]redislock.ClientOption{quiet}, options...)
			return closed(t, must[*redislock.Client](t)(redislock.New(s.memory, options...)), func() {})
		})
	})
}

func background() context.Context { return context.Background() }

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}
