// Package locktest has a server of locks in memory, for tests without a server: the clients above it are the real ones.
//
//	server := locktest.New()
//	locks, err := redislock.New(server) // one for each process that the test stands for
//
// In a bubble of testing/synctest, time.Sleep moves the clocks of the clients and of the server together. Elsewhere
// [Server.Advance] moves that of the server. It knows what the clients send: exclusive and read-write locks, several
// keys, semaphores, waits in order, and what runs under a lock. It knows no deadlocks, types of keys or replicas, and
// has no faults.
package locktest

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	redislock "redis-lock.invalid/clients/go"
)

// Server is a server of locks in memory, and the [redislock.Transport] to it.
type Server struct {
	// Command answers what Hold.Do runs under a lock, as go-redis would; an error is that of the call. It may be nil.
	Command func(words []any) any

	mu      sync.Mutex
	offset  time.Duration
	token   int64
	held    []*request // of one key each
	queue   []*request // in the order of arrival
	permits map[string]int
	finals  map[string]bool // owners that have given up
	heard   map[string]func(string)
	renew   []func(owner string)
}

// request is what is asked for, waits, or is held.
type request struct {
	verb, owner, mode, note, channel, tag string
	keys                                  []string
	token, count, limit, queue            int64
	lease, block                          time.Duration
	isFinal, hasNote                      bool
	since, until                          time.Time
}

// New is a server that nothing is held on.
func New() *Server {
	return &Server{permits: map[string]int{}, finals: map[string]bool{}, heard: map[string]func(string){}}
}

// Advance moves the clock of the server, as if the clients stood still for this time. Who has lost a lock by that knows
// it when Advance returns.
func (s *Server) Advance(by time.Duration) { s.change(func() { s.offset += by }) }

// Lose ends what is held of this name, as LOCK.BREAK does. Who has lost it knows it when Lose returns.
func (s *Server) Lose(name string) {
	s.change(func() {
		for _, hold := range s.held {
			if hold.keys[0] == name {
				hold.until = time.Time{}
			}
		}
	})
}

// Attach has a client renew what an owner holds at once: it finds that it is lost.
func (s *Server) Attach(renew func(owner string)) {
	s.change(func() { s.renew = append(s.renew, renew) })
}

func (s *Server) IsCluster() bool { return false }

func (s *Server) Node(context.Context, string) string { return "" }

func (s *Server) Listen(ctx context.Context, channel string, confirmed func(), heard func(string)) error {
	s.change(func() { s.heard[channel] = heard })
	confirmed()
	<-ctx.Done()
	s.change(func() { delete(s.heard, channel) })
	return ctx.Err()
}

func (s *Server) Do(_ context.Context, commands ...redislock.Command) []redislock.Reply {
	replies := make([]redislock.Reply, len(commands))
	for i, command := range commands {
		s.change(func() {
			value := s.run(parse(command.Words), command.Words)
			if err, isError := value.(error); isError {
				replies[i].Err = err
			} else {
				replies[i].Value = value
			}
		})
	}
	return replies
}

// Counts are how many holds there are, one for each key, and how many requests wait.
func (s *Server) Counts() (held, waiting int) {
	s.change(func() { held, waiting = len(s.held), len(s.queue) })
	return held, waiting
}

func (s *Server) now() time.Time { return time.Now().Add(s.offset) }

// at has what ends after this time end.
func (s *Server) at(span time.Duration) time.Time {
	time.AfterFunc(span, func() { s.change(func() {}) })
	return s.now().Add(span)
}

// change ends what is over, before and after a change, and grants what is free then.
func (s *Server) change(change func()) {
	s.mu.Lock()
	lost := s.expire()
	change()
	lost = append(lost, s.expire()...)
	for at := 0; at < len(s.queue); {
		wait, message := s.queue[at], "timeout "
		if wait.until.After(s.now()) {
			if !s.isFree(wait, s.queue[:at]) {
				at++
				continue
			}
			message = "granted 1 "
			s.grant(wait)
		}
		s.queue = slices.Delete(s.queue, at, at+1)
		if heard := s.heard[wait.channel]; heard != nil {
			heard(message + wait.tag)
		}
	}
	renew := s.renew
	s.mu.Unlock()
	for _, owner := range lost {
		for _, look := range renew {
			look(owner)
		}
	}
}

func (s *Server) expire() (lost []string) {
	s.held = slices.DeleteFunc(s.held, func(hold *request) bool {
		isOver := !hold.until.After(s.now())
		if isOver {
			lost = append(lost, hold.owner)
		}
		return isOver
	})
	return lost
}

// of is what is held of a key, and what of it the owner of this request has.
func (s *Server) of(r *request, key string) (all []*request, own *request) {
	for _, hold := range s.held {
		if hold.keys[0] != key {
			continue
		}
		all = append(all, hold)
		if hold.owner == r.owner && (r.token == 0 || r.token == hold.token) && (r.isFinal || r.mode == hold.mode) {
			own = hold
		}
	}
	return all, own
}

// isFree tells whether this can be granted, behind these waits.
func (s *Server) isFree(r *request, before []*request) bool {
	for _, key := range r.keys {
		all, _ := s.of(r, key)
		isOwn := !r.isPermit() && slices.ContainsFunc(all, func(hold *request) bool { return hold.owner == r.owner })
		if !isOwn && slices.ContainsFunc(before, func(wait *request) bool { return slices.Contains(wait.keys, key) }) {
			return false
		}
		free := int64(s.permits[key]) - r.count
		for _, hold := range all {
			free -= hold.count
			if !r.isPermit() && hold.owner != r.owner && (r.mode != "READ" || hold.mode != "READ") {
				return false
			}
		}
		if r.isPermit() && free < 0 {
			return false
		}
	}
	return true
}

func (r *request) isPermit() bool { return strings.HasPrefix(r.verb, "SEM") }

func (r *request) meets(other *request) bool {
	return slices.ContainsFunc(r.keys, func(key string) bool { return slices.Contains(other.keys, key) })
}

func (s *Server) grant(r *request) {
	for _, key := range r.keys {
		if _, own := s.of(r, key); own != nil {
			continue
		}
		s.token++
		hold := *r
		hold.keys, hold.token, hold.since, hold.until = []string{key}, s.token, s.now(), s.at(r.lease)
		for _, other := range s.held {
			if other.keys[0] == key && other.owner == r.owner && other.mode == "WRITE" {
				// Who writes reads under the same token.
				hold.token = other.token
			}
		}
		s.held = append(s.held, &hold)
	}
}

func (s *Server) acquire(r *request) any {
	key, place := r.keys[0], slices.IndexFunc(s.queue, func(wait *request) bool {
		return wait.owner == r.owner && r.meets(wait)
	})
	if s.permits[key] == 0 && r.limit > 0 {
		s.permits[key] = int(r.limit)
	}
	before := s.queue
	if place >= 0 {
		before = s.queue[:place]
	}
	if !s.has(r) {
		if s.finals[r.owner] || !s.isFree(r, before) {
			return s.wait(r, place)
		}
		s.grant(r)
	}
	var tokens []any
	for _, key := range r.keys {
		_, own := s.of(r, key)
		tokens = append(tokens, own.token)
	}
	if r.verb != "LOCK.MACQUIRE" {
		return tokens[0]
	}
	return tokens
}

// has tells whether the owner of this request has all that it asks for.
func (s *Server) has(r *request) bool {
	return !slices.ContainsFunc(r.keys, func(key string) bool {
		_, own := s.of(r, key)
		return own == nil
	})
}

func (s *Server) wait(r *request, place int) any {
	others := slices.DeleteFunc(slices.Clone(s.queue), func(wait *request) bool { return !r.meets(wait) })
	switch {
	case r.channel == "" || s.finals[r.owner]:
		return nil
	case s.heard[r.channel] == nil:
		return redislock.Refusal("NOSUBSCRIBER the channel has no subscriber")
	case place >= 0:
		r.since, r.until = s.queue[place].since, s.at(r.block)
		s.queue[place] = r
	case int64(len(others)) >= r.queue:
		return redislock.Refusal("QUEUEFULL as many requests as QUEUE allows wait for the key already")
	default:
		r.since, r.until = s.now(), s.at(r.block)
		s.queue = append(s.queue, r)
	}
	return "QUEUED"
}

func (s *Server) release(r *request) any {
	waits := len(s.queue)
	if r.token == 0 {
		s.queue = slices.DeleteFunc(s.queue, func(wait *request) bool { return wait.owner == r.owner && r.meets(wait) })
	}
	s.finals[r.owner] = s.finals[r.owner] || r.isFinal
	_, own := s.of(r, r.keys[0])
	s.held = slices.DeleteFunc(s.held, func(hold *request) bool { return hold == own })
	if own == nil && waits == len(s.queue) {
		return nil
	}
	return int64(1)
}

func (s *Server) run(r *request, words []any) any {
	switch _, own := s.of(r, r.keys[0]); r.verb {
	case "LOCK.ACQUIRE", "LOCK.MACQUIRE", "SEM.ACQUIRE":
		return s.acquire(r)
	case "LOCK.RELEASE", "SEM.RELEASE":
		return s.release(r)
	case "LOCK.RENEW", "SEM.RENEW":
		if own == nil {
			return int64(0)
		}
		if own.until = s.at(r.lease); r.hasNote {
			own.note = r.note
		}
		return int64(1)
	case "LOCK.IF":
		all, _ := s.of(r, r.keys[0])
		if !slices.ContainsFunc(all, func(hold *request) bool { return strconv.FormatInt(hold.token, 10) == words[2] }) {
			return redislock.Refusal("FENCED the lock is not held under this token")
		}
		if s.Command == nil {
			return nil
		}
		return s.Command(words[3:])
	case "SEM.SET":
		s.permits[r.keys[0]], _ = strconv.Atoi(words[2].(string))
		return int64(1)
	case "LOCK.INFO", "SEM.INFO":
		if _, exists := s.permits[r.keys[0]]; r.isPermit() && !exists {
			return nil
		}
		return s.info(r)
	case "EXISTS":
		return int64(min(s.permits[r.keys[0]], 1))
	}
	return redislock.Refusal("ERR unknown command '" + r.verb + "'")
}

func ms(span time.Duration) int64 { return span.Milliseconds() }

func (s *Server) info(r *request) any {
	all, _ := s.of(r, r.keys[0])
	info := map[string]any{"mode": nil, "waiters": int64(0), "longest-wait-ms": int64(0)}
	var holders []any
	taken := int64(0)
	for _, hold := range all {
		taken += hold.count
		info["mode"] = strings.ToLower(cmp.Or(hold.mode, "exclusive"))
		holders = append(holders, map[string]any{"owner": hold.owner, "note": hold.note, "token": hold.token,
			"holds": int64(1), "pttl": ms(hold.until.Sub(s.now())), "held-ms": ms(s.now().Sub(hold.since))})
		info["next-end-ms"] = ms(hold.until.Sub(s.now()))
	}
	info["holders"], info["held"], info["permits"] = holders, taken, int64(s.permits[r.keys[0]])
	info["free"] = info["permits"].(int64) - taken
	for _, wait := range slices.Backward(s.queue) {
		if wait.meets(r) {
			info["waiters"] = info["waiters"].(int64) + 1
			info["longest-wait-ms"] = ms(s.now().Sub(wait.since))
			if len(all) == 0 {
				info["mode"] = strings.ToLower(cmp.Or(wait.mode, "exclusive"))
			}
		}
	}
	return info
}

// parse reads the words of a command as this package's clients write them.
func parse(words []any) *request {
	r := &request{verb: words[0].(string), keys: []string{words[1].(string)}}
	rest := words[2:]
	if r.verb == "LOCK.MACQUIRE" {
		count, _ := strconv.Atoi(r.keys[0])
		r.keys = nil
		for _, key := range rest[:count] {
			r.keys = append(r.keys, key.(string))
		}
		rest = rest[count:]
	}
	if r.verb == "LOCK.IF" || len(rest) == 0 {
		return r
	}
	option := func(name any, behind int) string {
		if at := slices.Index(rest, name); at > 0 {
			return rest[at+behind].(string)
		}
		return ""
	}
	number := func(name string, absent int64) int64 {
		if value, err := strconv.ParseInt(option(name, 1), 10, 64); err == nil {
			return value
		}
		return absent
	}
	r.owner = rest[0].(string)
	r.mode = option("READ", 0) + option("WRITE", 0)
	r.note, r.channel, r.tag = option("NOTE", 1), option("NOTIFY", 1), option("NOTIFY", 2)
	r.lease = time.Duration(number("PX", 0)) * time.Millisecond
	r.block = time.Duration(number("BLOCK", 0)) * time.Millisecond
	r.token, r.count, r.limit, r.queue = number("TOKEN", 0), number("COUNT", 1), number("LIMIT", 0),
		number("QUEUE", math.MaxInt64)
	r.isFinal, r.hasNote = option("FINAL", 1) != "", slices.Contains(rest, any("NOTE"))
	return r
}
