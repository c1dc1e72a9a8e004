package redislock

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// The most requests of waits at a channel, and of releases in the background, that are sent at a time: the program's
	// own requests share the connections.
	maxInFlight = 16
	// The most holds that are renewed by one pipeline.
	maxPipeline = 500
	// How long the server keeps a wait. It is asked for again before, so this bounds how long the place of a process
	// that has died stays.
	longestTicket = 30 * time.Second
	// Time without a wait after which a subscription ends.
	maxIdle = 30 * time.Second
	// Pauses between requests that fail.
	firstPause, longestPause = 20 * time.Millisecond, time.Second
)

// waits has the subscriptions of a client, and the waits that listen there. The mutex is the client's.
type waits struct {
	client *Client
	// By the slot of the keys, in a cluster.
	channels map[int]*channel
	tickets  map[uint64]*ticket
}

// channel is a channel for messages to waits, in a cluster of the keys of one slot.
type channel struct {
	slot int
	// Given with the first ticket.
	name string
	// What is subscribed, or being subscribed; nil: nothing.
	subscription *subscription
	// Closed at the next change.
	changed chan struct{}
	// A turn to ask. A wait keeps it while it pauses after a failure, so that thousands do not ask a server that has
	// just started all at once.
	turns chan struct{}
	// The acquisitions that wait here or may, and the timer that ends the subscription when there is none.
	waits int
	idle  *time.Timer
}

type subscription struct {
	cancel context.CancelFunc
	isLive bool
	// Why it was never confirmed.
	err error
}

// ticket is a wait in the queue of the server. Its messages are reasons to ask again.
type ticket struct {
	number  uint64
	channel *channel
	// An empty message: the subscription has ended, and messages may be lost.
	messages chan string
	// When its wait ends, zero: at no time; what is closed when it has by [Attached].
	end  time.Time
	over chan struct{}
}

// join returns the channel for the waits at a key, with a ticket when it is subscribed: the first request may wait.
func (w *waits) join(ctx context.Context, key string) (*channel, *ticket) {
	w.client.mu.Lock()
	at := w.channelOf(key)
	at.waits++
	w.client.mu.Unlock()
	if w.live(at) != nil {
		return at, w.open(ctx, at)
	}
	return at, nil
}

// open makes a ticket for a wait that this context bounds.
func (w *waits) open(ctx context.Context, at *channel) *ticket {
	end, _ := ctx.Deadline()
	t := &ticket{w.client.number.Add(1), at, make(chan string, 4), end, make(chan struct{})}
	w.client.mu.Lock()
	defer w.client.mu.Unlock()
	if at.name == "" {
		at.name = "lock:tickets:" + w.client.id + tagOf(at.slot)
	}
	w.tickets[t.number] = t
	return t
}

// tagOf is the end of the name of a channel in a slot; empty outside of a cluster.
func tagOf(slot int) string {
	for number := 0; slot >= 0; number++ {
		if tag := strconv.Itoa(number); slotOf(tag) == slot {
			return ":{" + tag + "}"
		}
	}
	return ""
}

func (w *waits) channelOf(key string) *channel {
	slot := -1
	if w.client.transport.IsCluster() {
		slot = slotOf(key)
	}
	found := w.channels[slot]
	if found == nil {
		found = &channel{slot: slot, changed: make(chan struct{}), turns: make(chan struct{}, maxInFlight)}
		w.channels[slot] = found
	}
	return found
}

// leave ends a wait.
func (w *waits) leave(at *channel, t *ticket) {
	w.client.mu.Lock()
	defer w.client.mu.Unlock()
	if t != nil {
		delete(w.tickets, t.number)
	}
	if at.waits--; at.waits > 0 || at.subscription == nil || w.client.open.Err() != nil {
		return
	}
	if at.idle != nil {
		at.idle.Reset(maxIdle)
		return
	}
	at.idle = time.AfterFunc(maxIdle, func() {
		w.client.mu.Lock()
		defer w.client.mu.Unlock()
		if at.waits == 0 && at.subscription != nil {
			at.subscription.cancel()
		}
	})
}

// close ends the subscriptions.
func (w *waits) close() {
	w.client.mu.Lock()
	defer w.client.mu.Unlock()
	for _, at := range w.channels {
		if at.idle != nil {
			at.idle.Stop()
		}
		if at.subscription != nil {
			at.subscription.cancel()
		}
	}
}

// live returns the subscription of a channel, nil when there is none.
func (w *waits) live(at *channel) *subscription {
	w.client.mu.Lock()
	defer w.client.mu.Unlock()
	if at.subscription == nil || !at.subscription.isLive {
		return nil
	}
	return at.subscription
}

// subscribe returns when there is a subscription that is confirmed, and is not the one that the server does not know.
func (w *waits) subscribe(ctx context.Context, at *channel, unknown *subscription) error {
	mu := &w.client.mu
	mu.Lock()
	defer mu.Unlock()
	if unknown != nil {
		unknown.isLive = false
		unknown.cancel()
	}
	for {
		present := at.subscription
		if present != nil && present.isLive {
			return nil
		}
		if w.client.open.Err() != nil {
			return ErrClosed
		}
		if present == nil {
			present = w.begin(at)
		}
		changed := at.changed
		mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		mu.Lock()
		if err := ctx.Err(); err != nil {
			return err
		}
		if present.err != nil {
			return present.err
		}
	}
}

// begin subscribes. The mutex is held.
func (w *waits) begin(at *channel) *subscription {
	ctx, cancel := context.WithCancel(w.client.running)
	begun := &subscription{cancel: cancel}
	at.subscription = begun
	w.client.tasks++
	w.client.events.count(func(s *Statistics) { s.Connections++ })
	go func() {
		defer w.client.end()
		defer cancel()
		wasLive := false
		late := time.AfterFunc(w.client.patience, cancel)
		err := w.client.transport.Listen(ctx, at.name, func() {
			w.client.mu.Lock()
			defer w.client.mu.Unlock()
			if late.Stop() {
				begun.isLive, wasLive = true, true
				at.change()
			}
		}, w.heard)
		late.Stop()
		w.client.mu.Lock()
		if at.subscription = nil; !wasLive {
			begun.err = err
			if err == nil || ctx.Err() != nil {
				begun.err = errors.New("redislock: the subscription had no answer")
			}
		}
		begun.isLive = false
		at.change()
		w.client.mu.Unlock()
		w.askAgain(at)
	}()
	return begun
}

func (at *channel) change() {
	close(at.changed)
	at.changed = make(chan struct{})
}

// askAgain has all waits of a channel ask again, in the order of their first requests.
func (w *waits) askAgain(at *channel) {
	w.client.mu.Lock()
	defer w.client.mu.Unlock()
	for _, number := range slices.Sorted(maps.Keys(w.tickets)) {
		if t := w.tickets[number]; t.channel == at {
			t.tell("")
		}
	}
}

// heard handles a message: one or two words, and the number of a ticket.
func (w *waits) heard(message string) {
	text, tag := message[:strings.LastIndexByte(message, ' ')+1], message[strings.LastIndexByte(message, ' ')+1:]
	number, err := strconv.ParseUint(tag, 10, 64)
	if err != nil {
		return
	}
	w.client.mu.Lock()
	defer w.client.mu.Unlock()
	if t := w.tickets[number]; t != nil {
		t.tell(strings.TrimSpace(text))
	}
}

// tell drops the message when others wait to be read: each of them means to ask again.
func (t *ticket) tell(message string) {
	select {
	case t.messages <- message:
	default:
	}
}

// pass has this time pass for a wait. The mutex is held.
func (t *ticket) pass(by time.Duration) {
	if t.end.IsZero() {
		return
	}
	wasOver := !t.end.After(time.Now())
	if t.end = t.end.Add(-by); !wasOver && !t.end.After(time.Now()) {
		close(t.over)
	}
}

// forget drops the messages so far: the next request answers them.
func (t *ticket) forget() {
	for len(t.messages) > 0 {
		<-t.messages
	}
}

// slotOf is the slot of a key in a cluster.
func slotOf(key string) int {
	if from := strings.IndexByte(key, '{'); from >= 0 {
		if length := strings.IndexByte(key[from+1:], '}'); length > 0 {
			key = key[from+1 : from+1+length]
		}
	}
	crc := uint16(0)
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc & 16383)
}

// sleep returns false when the context ends before.
func sleep(ctx context.Context, pause time.Duration) bool {
	select {
	case <-time.After(pause):
		return true
	case <-ctx.Done():
		return false
	}
}

// jittered is from a half of the pause to the whole.
func jittered(pause time.Duration) time.Duration {
	return pause/2 + rand.N(pause/2+1)
}
