package redislock

import (
	"context"
	"time"
)

// LockInfo is what the server knows of a lock.
type LockInfo struct {
	// Mode is "exclusive", "read" or "write", "string" where another library holds the key as a string, and empty when
	// the lock is free.
	Mode string
	// Holders are the holder, or the readers.
	Holders []Holder
	// Waiters is the number of requests that wait.
	Waiters int
	// LongestWait is how long the first of them has waited.
	LongestWait time.Duration
}

// Holder is a holder of a lock.
type Holder struct {
	// Owner is the name of the owner ([WithOwner], [Hold.Owner]). It is a credential: who has it can release the lock.
	Owner string
	// Note is its text beside the hold ([WithNote]).
	Note string
	// Token is the fencing token; 0 of a hold that Redisson took.
	Token int64
	// Holds is how often the owner has acquired it: 1 for this package.
	Holds int
	// Remaining is the rest of the lease; negative when it has no end.
	Remaining time.Duration
	// Held is how long it is held so far; negative when the server does not know.
	Held time.Duration
}

// SemaphoreInfo is what the server knows of a semaphore. All is zero of one that there is not.
type SemaphoreInfo struct {
	// Permits is their number, Held how many are taken, and Free how many are not: fewer than none after [Semaphore.Set]
	// to less than is held.
	Permits, Held, Free int
	// NextEnd is the time until the next lease ends; negative when none does.
	NextEnd time.Duration
	// Waiters is the number of requests that wait, and LongestWait how long the first of them has waited.
	Waiters     int
	LongestWait time.Duration
}

// Info asks who holds a lock of one key, and how many wait for it. Of a lock that is free it has no holders. The user
// needs the permission +lock.info.
func (l *Lock) Info(ctx context.Context) (LockInfo, error) {
	reply, err := l.info(ctx, "LOCK.INFO")
	if err != nil {
		return LockInfo{}, err
	}
	info := LockInfo{Waiters: int(number(reply, "waiters", 0)), LongestWait: span(reply, "longest-wait-ms", 0)}
	info.Mode, _ = field(reply, "mode").(string)
	holders, _ := field(reply, "holders").([]any)
	for _, from := range holders {
		holder := Holder{Token: number(from, "token", 0), Holds: int(number(from, "holds", 0)),
			Remaining: span(from, "pttl", -1), Held: span(from, "held-ms", -1)}
		holder.Owner, _ = field(from, "owner").(string)
		holder.Note, _ = field(from, "note").(string)
		info.Holders = append(info.Holders, holder)
	}
	return info, nil
}

// Info asks how many permits there are, and how many wait for one. The user needs the permission +sem.info.
func (s *Semaphore) Info(ctx context.Context) (SemaphoreInfo, error) {
	reply, err := s.lock.info(ctx, "SEM.INFO")
	if err != nil || reply == nil {
		return SemaphoreInfo{}, err
	}
	return SemaphoreInfo{Permits: int(number(reply, "permits", 0)), Held: int(number(reply, "held", 0)),
		Free: int(number(reply, "free", 0)), NextEnd: span(reply, "next-end-ms", -1),
		Waiters: int(number(reply, "waiters", 0)), LongestWait: span(reply, "longest-wait-ms", 0)}, nil
}

func (l *Lock) info(ctx context.Context, verb string) (any, error) {
	if err := l.terms.requireOneKey(); err != nil {
		return nil, err
	}
	return l.client.do(ctx, Command{[]any{verb, l.terms.keys[0]}, 1})
}

// field is a field of a map, as RESP2 or RESP3 has it.
func field(reply any, name string) any {
	switch reply := reply.(type) {
	case map[string]any:
		return reply[name]
	case map[any]any:
		return reply[name]
	case []any:
		for i := 0; i+1 < len(reply); i += 2 {
			if reply[i] == name {
				return reply[i+1]
			}
		}
	}
	return nil
}

// number is a field that is a number; another one where there is none.
func number(reply any, name string, absent int64) int64 {
	if value, isNumber := field(reply, name).(int64); isNumber {
		return value
	}
	return absent
}

func span(reply any, name string, absent int64) time.Duration {
	return time.Duration(number(reply, name, absent)) * time.Millisecond
}
