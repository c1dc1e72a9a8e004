package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	redislock "redis-lock.invalid/clients/go"
	"redis-lock.invalid/clients/go/viagoredis"
)

func work(context.Context) error { return nil }

func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer rdb.Close()
	client, err := viagoredis.New(rdb)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err = client.NewLock("invoices:42").Run(ctx, func(ctx context.Context, hold *redislock.Hold) error {
		fmt.Println("working under token", hold.Token())
		return work(ctx)
	})
	if err != nil {
		log.Print(err)
	}
}

// An order is served by one request at a time; the others are told so.
func ExampleLock_TryLock() {
	var client *redislock.Client // one for the process
	http.HandleFunc("/orders", func(w http.ResponseWriter, r *http.Request) {
		hold, err := client.NewLock("order:" + r.FormValue("id")).TryLock(r.Context())
		switch {
		case errors.Is(err, redislock.ErrHeld):
			http.Error(w, "the order is being served", http.StatusConflict)
			return
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer hold.Unlock()
		ctx, cancel := hold.With(r.Context()) // ends with the request, and at a loss
		defer cancel()
		if err := work(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
}

// A holder that is late changes nothing in the same server.
func ExampleHold_Do() {
	var hold *redislock.Hold
	_, err := hold.Do(context.Background(), "SET", "invoices:42:total", 100)
	switch {
	case errors.Is(err, redislock.ErrLost):
		log.Print("another owner may have the lock: nothing is changed")
	case errors.Is(err, redislock.ErrNoAnswer):
		log.Print("it may have run")
	}
}

func ExampleSemaphore_Run() {
	var client *redislock.Client
	downloads := client.NewSemaphore("downloads", redislock.WithPermits(5))
	err := downloads.Run(context.Background(), func(ctx context.Context, _ *redislock.Hold) error { return work(ctx) })
	if err != nil {
		log.Print(err)
	}
}

// A process leads until it ends or loses its lease, and then is a candidate again.
func ExampleElection_Campaign() {
	var client *redislock.Client
	ctx := context.Background()
	for ctx.Err() == nil {
		leadership, err := client.NewElection("reports").Campaign(ctx, "10.0.0.1:80")
		if err != nil {
			log.Fatal(err)
		}
		err = work(leadership.Context())
		log.Print(errors.Join(err, leadership.Unlock()))
	}
}

func ExampleElection_Observe() {
	var client *redislock.Client
	for leader, err := range client.NewElection("reports").Observe(context.Background()) {
		if err == nil {
			fmt.Println(leader.Note, leader.Token)
		}
	}
}
