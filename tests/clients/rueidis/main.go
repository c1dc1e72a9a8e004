// The agent of rueidis: the orders of driver/ticket_agent.rs, each in a goroutine.
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
	"sync"
	"time"

	"github.com/redis/rueidis"
)

func main() {
	addr, shard := net.JoinHostPort(os.Args[1], os.Args[2]), strings.Join(os.Args[4:], "")
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, PipelineMultiplex: -1})
	if err != nil {
		panic(err)
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
		ctx, cancel := context.WithCancel(context.Background())
		cancels.Store(order[0], cancel)
		go func() {
			text, err := answer(ctx, tickets, order[1:])
			if errors.Is(err, context.Canceled) {
				text = "cancelled"
			} else if err != nil {
				text = "error " + strings.ReplaceAll(err.Error(), "\n", " ")
			}
			fmt.Println(order[0] + " " + text)
		}()
	}
}

func answer(ctx context.Context, tickets *Tickets, order []string) (string, error) {
	switch order[0] {
	case "acquire":
		token, err := tickets.Acquire(ctx, order[1], order[2], ms(order[3]), ms(order[4]))
		if token == 0 {
			return "nil", err
		}
		return fmt.Sprint("token ", token), err
	case "renew":
		held, err := tickets.Renew(ctx, order[1], order[2], number(order[3]), ms(order[4]))
		return bit(held), err
	default:
		if order[0] == "release-cancelled" {
			cancelled, cancel := context.WithCancel(ctx)
			cancel()
			ctx = cancelled
		}
		freed, err := tickets.Release(ctx, order[1], order[2], number(order[3]))
		return bit(freed), err
	}
}

func bit(yes bool) string {
	if yes {
		return "1"
	}
	return "0"
}

func number(text string) int64 { n, _ := strconv.ParseInt(text, 10, 64); return n }

func ms(text string) time.Duration { return time.Duration(number(text)) * time.Millisecond }
