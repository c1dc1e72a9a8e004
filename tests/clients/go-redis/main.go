// The agent of go-redis: reads orders, writes answers, as driver/agent.rs lists them.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func main() {
	addr := net.JoinHostPort(os.Args[1], os.Args[2])
	if len(os.Args) > 3 {
		serveTickets(addr, strings.Join(os.Args[4:], ""))
		return
	}
	others, plain := redis.NewClient(&redis.Options{Addr: addr}), redis.NewClient(&redis.Options{Addr: addr})
	locks := Locks{redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1}), others}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan() && lines.Text() != "quit"; {
		fmt.Println(strings.ReplaceAll(answer(locks, plain, strings.Split(lines.Text(), " ")), "\n", " "))
	}
}

func answer(locks Locks, plain *redis.Client, order []string) string {
	switch order[0] {
	case "acquire":
		token, err := locks.Acquire(ctx, order[1], order[2], ms(order[3]), ms(order[4]))
		return text("token ", token, err, "nil")
	case "renew":
		held, err := locks.Renew(ctx, order[1], order[2], number(order[3]), ms(order[4]))
		return text("", held, err, "0")
	case "release":
		freed, err := locks.Release(ctx, order[1], order[2], number(order[3]))
		return text("", freed, err, "0")
	case "acquire-cancelled":
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(100*time.Millisecond, cancel)
		_, err := locks.Acquire(ctx, order[1], order[2], time.Hour, time.Minute)
		return cancelledOr("error "+fmt.Sprint(err), err)
	case "release-cancelled":
		freed, err := locks.Release(cancelled(), order[1], order[2], number(order[3]))
		return text("", freed, err, "0")
	case "raw":
		token, err := raw(plain, order)
		return text("token ", token, err, "nil")
	}
	waited := make(chan error)
	go func() { _, err := raw(plain, order); waited <- err }()
	for plain.PoolStats().TotalConns == plain.PoolStats().IdleConns {
		time.Sleep(time.Millisecond)
	}
	start := time.Now()
	err := plain.Ping(ctx).Err()
	took := time.Since(start).Milliseconds()
	<-waited
	return text("ping ", took, err, "nil")
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

func cancelledOr(answer string, err error) string {
	if errors.Is(err, context.Canceled) {
		return "cancelled"
	}
	return answer
}

func raw(plain *redis.Client, order []string) (int64, error) {
	return plain.Do(ctx, "LOCK.ACQUIRE", order[2], order[3], "BLOCK", order[1]).Int64()
}

func text(name string, value int64, err error, none string) string {
	if err == redis.Nil {
		return none
	} else if err != nil {
		return "error " + err.Error()
	}
	return fmt.Sprint(name, value)
}

func number(text string) int64 { n, _ := strconv.ParseInt(text, 10, 64); return n }

func ms(text string) time.Duration { return time.Duration(number(text)) * time.Millisecond }
