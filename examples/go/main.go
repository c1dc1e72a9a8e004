// An HTTP service, of which several processes run: POST /orders/7 charges order 7 once, whichever of them gets it.
// Run: go get redis-lock.invalid/clients/go/viagoredis; go run . redis://127.0.0.1:6379 http://payments.example 8080
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	redislock "redis-lock.invalid/clients/go"
	"redis-lock.invalid/clients/go/viagoredis"
)

func charge(ctx context.Context, locks *redislock.Client, payments, order string) (err error) {
	hold, err := locks.NewLock("order:"+order, redislock.WithLease(10*time.Second)).TryLock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hold.Unlock()) }()
	ctx, cancel := hold.With(ctx) // ends also when the lock is lost
	defer cancel()
	charged := "charged:" + order
	if before, err := hold.Do(ctx, "GET", charged); before != nil || err != nil {
		return err // nil: it was charged by a request before
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, payments+"/charges/"+url.PathEscape(order), nil)
	if err != nil {
		return err
	}
	request.Header.Set("Idempotency-Key", order) // the provider charges once, also when it is asked again after a loss
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("payments: %s", answer.Status)
	}
	_, err = hold.Do(ctx, "SET", charged, hold.Token()) // an error, and nothing is written, after a loss
	return err
}

func main() {
	if len(os.Args) != 4 {
		log.Fatal("the addresses of the server and of the payments, and a port")
	}
	options, err := redis.ParseURL(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	locks, err := viagoredis.New(redis.NewClient(options))
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("POST /orders/{order}", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
		defer cancel()
		order := r.PathValue("order")
		switch err := charge(ctx, locks, os.Args[2], order); {
		case err == nil:
			fmt.Fprintln(w, "charged")
		case errors.Is(err, redislock.ErrHeld): // by another request
			http.Error(w, err.Error(), http.StatusConflict)
		default: // the same request may be sent again: a charge counts once
			log.Printf("order %s: %v", order, err)
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	log.Println("listening on", listener.Addr())
	server, served := &http.Server{ReadTimeout: 10 * time.Second}, make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	terminated, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	select {
	case err = <-served:
	case <-terminated.Done(): // takes no new requests, and waits for those that are under way
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		err = server.Shutdown(ctx)
	}
	if err = errors.Join(err, locks.Close()); err != nil {
		log.Fatal(err)
	}
}
