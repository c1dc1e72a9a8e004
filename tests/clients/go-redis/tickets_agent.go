// The agent of go-redis' tickets: the orders of driver/ticket_agent.rs, each in a goroutine.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

func serveTickets(addr, shard string) {
	var client redis.UniversalClient = redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, PoolSize: 1})
	if shard != "" {
		client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}})
	}
	tickets, cancels := NewTickets(client, shard), sync.Map{}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		order := strings.Split(lines.Text(), " ")
		if order[1] == "cancel" {
			cancel, _ := cancels.Load(order[2])
			cancel.(context.CancelFunc)()
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		cancels.Store(order[0], cancel)
		go func() {
			answer := ticketAnswer(ctx, tickets, order[1:])
			fmt.Println(order[0] + " " + strings.ReplaceAll(answer, "\n", " "))
		}()
	}
}

func ticketAnswer(ctx context.Context, tickets *Tickets, order []string) string {
	switch order[0] {
	case "acquire":
		token, err := tickets.Acquire(ctx, order[1], order[2], ms(order[3]), ms(order[4]))
		return cancelledOr(text("token ", token, err, "nil"), err)
	case "renew":
		held, err := tickets.Renew(ctx, order[1], order[2], number(order[3]), ms(order[4]))
		return text("", held, err, "0")
	default:
		if order[0] == "release-cancelled" {
			ctx = cancelled()
		}
		freed, err := tickets.Release(ctx, order[1], order[2], number(order[3]))
		return text("", freed, err, "0")
	}
}
