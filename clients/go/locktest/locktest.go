// Package locktest has a server of locks in memory, for tests without a server: the clients above it are the real ones.
//
//	server := locktest.New()
//	locks, err := redislock.New(server) // one for each process that the test stands for
//
// It answers what these clients send as the module does: exclusive and read-write locks, several keys, semaphores,
// waits in order, and GET, SET, INCR and DEL under a lock. [Server.Advance] moves its clock and those of its clients;
// in a bubble of testing/synctest time.Sleep does. It knows no deadlocks, and has no faults.
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
	mu              sync.Mutex
	offset          time.Duration
	moving          int // the calls of Advance and Lose: no lease ends before the clients have renewed
	token, replicas int64
	held, queue     []*request // of one key each, and in the order of arrival
	data            map[string]string
	finals          map[[2]string]int64 // by key and owner: up to where its acquisitions are given up
	heard           map[string]func(string)
	clients         []func(by time.Duration)
}

// request is a command, a wait, or a hold.
type request struct {
	verb, owner, mode, channel, tag string
	keys, command                   []string
	texts                           map[string]string // of the options
	numbers                         map[string]int64
	since, until                    time.Time
	token, first                    int64 // the first: of readers who share one that has risen since
}

// commands have a key, if there is anything below also an owner (or what is set), and options, each with the number of
// the words behind it.
var commands = map[string]string{
	"LOCK.ACQUIRE":  " READ:0 WRITE:0 PX:1 BLOCK:1 NOTIFY:2 QUEUE:1 ONCE:0 SEQ:1 NOTE:1",
	"LOCK.MACQUIRE": " READ:0 WRITE:0 PX:1 BLOCK:1 NOTIFY:2 QUEUE:1 ONCE:0 SEQ:1",
	"LOCK.RELEASE":  " READ:0 WRITE:0 ALL:0 TOKEN:1 FINAL:1", "LOCK.RENEW": " READ:0 WRITE:0 PX:1 TOKEN:1 NOTE:1",
	"SEM.ACQUIRE": " PX:1 BLOCK:1 NOTIFY:2 QUEUE:1 SEQ:1 COUNT:1 LIMIT:1", "SEM.RELEASE": " FINAL:1", "SEM.RENEW": " PX:1",
	"LOCK.INFO": "", "SEM.INFO": "", "EXISTS": "", "WAIT": " ", "SEM.SET": " ", "LOCK.IF": " ",
	"GET": "", "INCR": "", "DEL": "", "SET": " NX:0 XX:0",
}

// New is a server that nothing is held on.
func New() *Server {
	return &Server{data: map[string]string{}, finals: map[[2]string]int64{}, heard: map[string]func(string){}}
}

// Advance has this time pass at the server and for its clients: what they renew stays held, leases and waits whose time
// is over end. Who has lost a lock by that knows it when Advance returns.
func (s *Server) Advance(by time.Duration) { s.pass(by, func() { s.offset += by }) }

// Lose ends what is held of this name, as LOCK.BREAK does. Who has lost it knows it when Lose returns.
func (s *Server) Lose(name string) { s.pass(0, func() { s.end(name) }) }

// SetReplicas sets how many replicas have what is granted; none by default.
func (s *Server) SetReplicas(count int) { s.change(func() { s.replicas = int64(count) }) }

// Counts are how many holds there are, one for each key, and how many requests wait.
func (s *Server) Counts() (held, waiting int) {
	s.change(func() { held, waiting = len(s.held), len(s.queue) })
	return held, waiting
}

func (s *Server) Attach(pass func(time.Duration)) {
	s.change(func() { s.clients = append(s.clients, pass) })
}

func (s *Server) pass(by time.Duration, change func()) {
	var clients []func(time.Duration)
	s.change(func() { change(); s.moving++; clients = s.clients })
	for _, pass := range clients {
		pass(by)
	}
	s.change(func() { s.moving-- })
}

func (s *Server) IsCluster() bool                     { return false }
func (s *Server) Node(context.Context, string) string { return "" }

func (s *Server) Listen(ctx context.Context, channel string, confirmed func(), heard func(string)) error {
	s.change(func() { s.heard[channel] = heard })
	confirmed()
	<-ctx.Done()
	s.change(func() { delete(s.heard, channel) })
	return ctx.Err()
}

func (s *Server) Do(_ context.Context, commands ...redislock.Command) (replies []redislock.Reply) {
	for _, command := range commands {
		s.change(func() {
			words := make([]string, len(command.Words))
			for i, word := range command.Words {
				words[i] = word.(string)
			}
			reply := s.run(words)
			err, _ := reply.(error)
			replies = append(replies, redislock.Reply{Value: reply, Err: err})
		})
	}
	return replies
}

func (s *Server) DoApart(ctx context.Context, _ string, _ time.Duration, of ...redislock.Command) []redislock.Reply {
	return s.Do(ctx, of...)
}

func (s *Server) change(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	change()
	s.settle()
}

// settle ends what is over but waits, which their clients end, and grants what is free then.
func (s *Server) settle() {
	s.held = where(s.held, func(hold *request) bool { return s.moving > 0 || hold.until.After(s.now()) })
	var waiting []*request
	for _, wait := range s.queue {
		switch heard, refusal := s.heard[wait.channel], s.refusal(wait); {
		case heard == nil: // nobody waits any more
		case refusal != "":
			heard("failed " + strings.Fields(refusal)[0] + " " + wait.tag)
		case s.isFree(wait, waiting):
			s.grant(wait)
			heard("granted 1 " + wait.tag)
		default:
			waiting = append(waiting, wait)
		}
	}
	s.queue = waiting
}

func where(all []*request, is func(*request) bool) []*request {
	return slices.DeleteFunc(slices.Clone(all), func(one *request) bool { return !is(one) })
}

func on(key string) func(*request) bool {
	return func(r *request) bool { return slices.Contains(r.keys, key) }
}

func (s *Server) now() time.Time           { return time.Now().Add(s.offset) }
func (s *Server) of(key string) []*request { return where(s.held, on(key)) }
func (s *Server) end(key string)           { s.held = slices.DeleteFunc(s.held, on(key)) }
func (r *request) is(kind string) bool     { return strings.HasPrefix(r.verb, kind) }
func (r *request) mayGrant() bool          { return strings.HasSuffix(r.verb, "ACQUIRE") }

func kind(r *request) string { return strings.ToLower(cmp.Or(r.mode, "exclusive")) }

func (r *request) meets(other *request) bool {
	return slices.ContainsFunc(r.keys, func(key string) bool { return on(key)(other) })
}

// repeats tells whether this wait is of the same acquisition.
func (r *request) repeats(wait *request) bool { return r.owner == wait.owner && r.meets(wait) }

// owns tells whether the request is for this hold.
func (r *request) owns(hold *request) bool {
	token, isNamed := r.numbers["TOKEN"]
	return r.owner == hold.owner && (r.mode == "" || r.mode == hold.mode) &&
		(!isNamed || hold.first <= token && token <= hold.token)
}

func (r *request) isExcludedBy(hold *request) bool {
	return r.owner != hold.owner && (r.mode != "READ" || hold.mode != "READ")
}

// refusal is the error where a key is of another kind than the request is for.
func (s *Server) refusal(r *request) string {
	for _, key := range r.keys {
		text, isString := s.data[key]
		_, noNumber := strconv.Atoi(text)
		holds := s.of(key)
		isLock := len(holds) > 0 && !isString
		isOther := isLock && (r.mode == "") != (holds[0].mode == "")
		switch {
		case r.is("LOCK") && isString, isLock && (r.is("SEM") || r.is("GET") || r.is("INCR")):
			return "WRONGTYPE Operation against a key holding the wrong kind of value"
		case r.is("SEM") && isString && noNumber != nil, isOther && (r.mode != "" || r.mayGrant() || r.texts["NOTE"] != ""):
			return "LOCKTYPE the key holds another kind of lock, or a string that is no number"
		}
	}
	return ""
}

// free is how many permits are.
func (s *Server) free(key string) int64 {
	free, _ := strconv.ParseInt(s.data[key], 10, 64)
	for _, hold := range s.of(key) {
		free -= hold.numbers["COUNT"]
	}
	return free
}

// isFree tells whether all keys can be granted behind these waits, or are held by the owner already.
func (s *Server) isFree(r *request, before []*request) bool {
	for _, key := range r.keys {
		mine := where(s.of(key), func(hold *request) bool { return hold.owner == r.owner })
		isExcluded := slices.ContainsFunc(s.of(key), r.isExcludedBy)
		if r.is("SEM") {
			isExcluded = s.free(key) < r.numbers["COUNT"]
		}
		isBehind := len(mine) == 0 && slices.ContainsFunc(before, on(key))
		if (isExcluded || isBehind) && !slices.ContainsFunc(mine, r.owns) {
			return false
		}
	}
	return true
}

// grant has the owner hold all keys, with one token for readers at a time and for what a writer reads.
func (s *Server) grant(r *request) (tokens []any) {
	for _, key := range r.keys {
		all := s.of(key)
		own := where(all, r.owns)
		if len(own) == 0 {
			s.token++
			hold := *r
			hold.keys, hold.since, hold.token, hold.first = []string{key}, s.now(), s.token, s.token
			for _, other := range all {
				if r.mode == "READ" {
					hold.token, hold.first = other.token, other.first
				} else if r.mode == "WRITE" {
					other.token = hold.token
				}
			}
			own, s.held = []*request{&hold}, append(s.held, &hold)
		}
		s.extend(own[0], r, own[0].until)
		tokens = append(tokens, own[0].token)
	}
	return tokens
}

// extend sets the end of a lease, not before the least, and the note.
func (s *Server) extend(hold, r *request, least time.Time) {
	lease := time.Duration(r.numbers["PX"]) * time.Millisecond
	if hold.until = s.now().Add(lease); least.After(hold.until) {
		hold.until = least
	}
	if note, isSet := r.texts["NOTE"]; isSet {
		hold.texts["NOTE"] = note
	}
	time.AfterFunc(lease, func() { s.change(func() {}) })
}

func (s *Server) acquire(r *request) any {
	at := slices.IndexFunc(append(s.queue, r), r.repeats)
	before, isNew := where(s.queue[:at], r.meets), at == len(s.queue)
	isFinal := func(key string) bool { return r.numbers["SEQ"] <= s.finals[[2]string{key, r.owner}] }
	if limit := r.texts["LIMIT"]; limit != "" {
		s.data[r.keys[0]] = cmp.Or(s.data[r.keys[0]], limit)
	}
	switch {
	case r.channel != "" && s.heard[r.channel] == nil:
		return redislock.Refusal("NOSUBSCRIBER no client is subscribed to the channel")
	case slices.ContainsFunc(r.keys, isFinal):
		return nil
	case s.isFree(r, before) && r.verb == "LOCK.MACQUIRE":
		return s.grant(r)
	case s.isFree(r, before):
		return s.grant(r)[0]
	case r.channel == "":
		return nil
	case isNew && int64(len(before)) >= r.numbers["QUEUE"]:
		return redislock.Refusal("QUEUEFULL as many requests as QUEUE allows wait for the key already")
	case isNew:
		r.since, s.queue = s.now(), append(s.queue, r)
	default:
		r.since, s.queue[at] = s.queue[at].since, r
	}
	return "QUEUED"
}

func (s *Server) release(r *request) any {
	final, id := r.numbers["FINAL"], [2]string{r.keys[0], r.owner}
	own, waits := where(s.of(r.keys[0]), r.owns), where(s.queue, r.repeats)
	if r.numbers["TOKEN"] > 0 || len(own) > 0 && final == 0 {
		waits = nil
	}
	isOver := func(one *request) bool { return slices.Contains(own, one) || slices.Contains(waits, one) }
	s.held, s.queue = slices.DeleteFunc(s.held, isOver), slices.DeleteFunc(s.queue, isOver)
	if final > s.finals[id] {
		s.finals[id] = final
	}
	if len(own) == 0 && (final == 0 || len(waits) == 0) {
		return nil
	}
	return int64(1)
}

func (s *Server) exists(key string) int64 {
	if _, isString := s.data[key]; isString || len(s.of(key)) > 0 {
		return 1
	}
	return 0
}

func (s *Server) info(r *request) any {
	since := func(moment time.Time) int64 { return s.now().Sub(moment).Milliseconds() }
	key, waits := r.keys[0], where(s.queue, r.meets)
	permits, _ := strconv.ParseInt(s.data[key], 10, 64)
	info := map[string]any{"waiters": int64(len(waits)), "permits": permits, "free": s.free(key)}
	if len(waits) > 0 {
		info["longest-wait-ms"], info["mode"] = since(waits[0].since), kind(waits[0])
	} else if s.exists(key) == 0 {
		return nil
	}
	held, next, holders := int64(0), int64(math.MaxInt64), []any{}
	isWritten := slices.ContainsFunc(s.of(key), func(hold *request) bool { return hold.mode == "WRITE" })
	for _, hold := range s.of(key) {
		if isWritten && hold.mode == "READ" {
			continue // of the writer
		}
		held, next = held+hold.numbers["COUNT"], min(next, -since(hold.until))
		info["mode"], info["held"], info["next-end-ms"] = kind(hold), held, next
		holders = append(holders, map[string]any{"owner": hold.owner, "note": hold.texts["NOTE"], "token": hold.token,
			"holds": int64(1), "pttl": -since(hold.until), "held-ms": since(hold.since)})
	}
	info["holders"] = holders
	return info
}

// parse reads a command as the clients write it.
func parse(words []string) (*request, error) {
	r := &request{verb: strings.ToUpper(words[0]), texts: map[string]string{},
		numbers: map[string]int64{"PX": 30_000, "COUNT": 1, "QUEUE": math.MaxInt64, "SEQ": math.MaxInt64}}
	options, isKnown := commands[r.verb]
	if !isKnown {
		return nil, redislock.Refusal("ERR unknown command '" + words[0] + "'")
	}
	words, count := words[1:], 1
	if r.verb == "LOCK.MACQUIRE" {
		count, _ = strconv.Atoi(words[0])
		words = words[1:]
	} else if r.verb == "DEL" {
		count = len(words)
	}
	r.keys, words = words[:count], words[count:]
	if options != "" {
		r.owner, words = words[0], words[1:]
	}
	for r.command = words; r.verb != "LOCK.IF" && len(words) > 0; words = words[count:] {
		_, behind, isKnown := strings.Cut(options, " "+words[0]+":")
		if !isKnown {
			return nil, redislock.Refusal("ERR syntax error: unknown option '" + words[0] + "'")
		}
		count = int(behind[0]-'0') + 1
		text := strings.Join(words[min(1, count-1):count], " ") // without any the option itself
		r.texts[words[0]] = text
		r.numbers[words[0]], _ = strconv.ParseInt(text, 10, 64)
	}
	r.mode = r.texts["READ"] + r.texts["WRITE"]
	r.channel, r.tag, _ = strings.Cut(r.texts["NOTIFY"], " ")
	return r, nil
}

func (s *Server) run(words []string) any {
	r, err := parse(words)
	if err != nil {
		return err
	}
	if refusal := s.refusal(r); refusal != "" {
		return redislock.Refusal(refusal)
	}
	key := r.keys[0]
	own := where(s.of(key), r.owns)
	text, isString := s.data[key]
	switch r.verb {
	case "LOCK.ACQUIRE", "LOCK.MACQUIRE", "SEM.ACQUIRE":
		return s.acquire(r)
	case "LOCK.RELEASE", "SEM.RELEASE":
		return s.release(r)
	case "LOCK.INFO", "SEM.INFO":
		return s.info(r)
	case "LOCK.RENEW", "SEM.RENEW":
		for _, hold := range own {
			s.extend(hold, r, time.Time{})
		}
		return int64(min(len(own), 1))
	case "LOCK.IF":
		isToken := func(hold *request) bool { return strconv.FormatInt(hold.token, 10) == r.owner }
		if !slices.ContainsFunc(s.of(key), isToken) {
			return redislock.Refusal("FENCED the lock is not held under this token")
		} else if strings.Contains(r.command[0], ".") {
			return redislock.Refusal("ERR LOCK.IF runs commands of the server that have a key")
		}
		return s.run(r.command)
	case "EXISTS":
		return s.exists(key)
	case "WAIT":
		return s.replicas
	case "SET", "SEM.SET":
		if exists := s.exists(key) > 0; r.texts["NX"] != "" && exists || r.texts["XX"] != "" && !exists {
			return nil
		}
		s.data[key] = r.owner
		return "OK"
	case "INCR":
		number, err := strconv.ParseInt(cmp.Or(text, "0"), 10, 64)
		if err != nil {
			return redislock.Refusal("ERR value is not an integer or out of range")
		}
		s.data[key] = strconv.FormatInt(number+1, 10)
		return number + 1
	case "DEL":
		count := int64(0)
		for _, key := range r.keys {
			count += s.exists(key)
			s.end(key)
			delete(s.data, key)
		}
		return count
	}
	if isString { // GET
		return text
	}
	return nil
}
