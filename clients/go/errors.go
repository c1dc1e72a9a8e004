package redislock

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

// Reasons that errors of this package wrap: compare with [errors.Is]. What the server says is a [ServerError]; what the
// client library of the program says comes as it is.
var (
	// ErrHeld: another owner holds the lock, or all permits are taken ([Lock.TryLock]).
	ErrHeld = errors.New("redislock: held by another owner")
	// ErrLost: the lock is no longer held. It is the cause of the end of [Hold.Context] after a loss, too.
	ErrLost = errors.New("redislock: the lock is lost")
	// ErrReleased: the lock was released before. It is the cause of the end of [Hold.Context] after a release.
	ErrReleased = errors.New("redislock: the lock is released")
	// ErrNotLoaded: the server does not have the module, or one that is too old.
	ErrNotLoaded = errors.New("redislock: the module is not loaded")
	// ErrClosed: the [Client] is closed.
	ErrClosed = errors.New("redislock: the client is closed")
	// ErrNoAnswer: a request of [Hold.Do], [Hold.Renew], [Hold.SetNote], [Hold.Unlock], [Hold.Leave], [Lock.Resume] or
	// [Semaphore.Set] had no answer, or that of replicas ([WithReplicas]).
	// It may have been served, or may be yet.
	ErrNoAnswer = errors.New("redislock: no answer")
	// ErrUsage: the program asks for what there is not: another option, argument or client helps, a repetition does not.
	ErrUsage = errors.New("redislock: wrong use")
	// ErrNoSemaphore: nobody has created the semaphore ([Semaphore.Set], [WithPermits]).
	ErrNoSemaphore = errors.New("redislock: there is no such semaphore")
	// ErrQueueFull: as many requests wait as may ([WithQueue]). It is a [ServerError], too.
	ErrQueueFull = errors.New("redislock: the queue is full")
	// ErrNotReplicated: too few replicas have the grant ([WithReplicas]), which is given up.
	ErrNotReplicated = errors.New("redislock: not replicated")
	// ErrNoLeader: the election has no leader at this time.
	ErrNoLeader = errors.New("redislock: there is no leader")
)

// ServerError is an error that the server has replied.
type ServerError struct {
	// Code is its first word: LOCKTYPE, DEADLOCK, NOPERM, ...
	Code string
	// Text is the rest.
	Text string
}

// Refusal is the error for an error reply of the server, for those who write a [Transport]. It has no name of a user
// and no argument of a command, because an owner is a credential.
func Refusal(reply string) error {
	code, text, _ := strings.Cut(reply, " ")
	if code != strings.ToUpper(code) {
		// rueidis leaves the code ERR out.
		code, text = "ERR", reply
	}
	if rest, isUnknown := strings.CutPrefix(text, "unknown command "); isUnknown {
		if words := strings.FieldsFunc(rest, func(r rune) bool { return strings.ContainsRune("'`, ", r) }); len(words) > 0 {
			text = fmt.Sprintf("unknown command '%s'", words[0])
		}
	}
	if rest, isUsers := strings.CutPrefix(text, "User "); isUsers {
		if _, rest, isUsers = strings.Cut(rest, " has "); isUsers {
			text = "this user has " + rest
		}
	}
	return &ServerError{code, text}
}

func (e *ServerError) Error() string {
	if e.Is(ErrNotLoaded) {
		return fmt.Sprintf("redislock: %s %s: load the redis-lock module there (or a newer one), with loadmodule "+
			"/usr/lib/redis/modules/libredis_lock.so in its configuration, or with MODULE LOAD; a service that loads no "+
			"modules cannot be used", e.Code, e.Text)
	}
	return fmt.Sprintf("redislock: %s %s", e.Code, e.Text)
}

// Is tells [ErrNotLoaded], [ErrQueueFull], and [ErrLost] of a command that ran under a lock that was not held any more.
func (e *ServerError) Is(target error) bool {
	switch target {
	case ErrNotLoaded:
		rest, isUnknown := strings.CutPrefix(strings.ToUpper(e.Text), "UNKNOWN COMMAND '")
		return isUnknown && (strings.HasPrefix(rest, "LOCK.") || strings.HasPrefix(rest, "SEM."))
	case ErrLost:
		return e.Code == "FENCED"
	case ErrQueueFull:
		return e.Code == "QUEUEFULL"
	}
	return false
}

// errTaken is the reason of a loss that the server tells.
var errTaken = errors.New("the server says that another grant, or none, has followed")

// LossReason is one word for the reason of an [ErrLost]: "taken" (the server says that this grant is over), "refused" (it
// does not renew it: the key has other data, or the user may not) or "unconfirmed" (no renewal was confirmed, and the
// lease, or the longest time of the hold, ends).
func LossReason(loss error) string {
	switch code := codeOf(loss); {
	case errors.Is(loss, errTaken) || code == "FENCED":
		return "taken"
	case code != "":
		return "refused"
	}
	return "unconfirmed"
}

// codeOf is the code of a refusal of the server, or empty.
func codeOf(err error) string {
	if refusal, isRefusal := errors.AsType[*ServerError](err); isRefusal {
		return refusal.Code
	}
	return ""
}

var (
	// Refusals that may be over when the request is repeated.
	passing = []string{"TRYAGAIN", "BUSY", "LOCKDELAY", "LOCKBUSY", "NOREPLICAS", "OOM", "MISCONF", "READONLY", "LOADING",
		"CLUSTERDOWN", "MASTERDOWN", "UNBLOCKED", "MOVED", "ASK"}
	// Refusals of a renewal that do not change before the lease ends.
	lasting = []string{"NOPERM", "NOAUTH", "WRONGPASS"}
)

// isOverwritten tells whether a renewal or a release met a key of another type: what was held there is no more.
func isOverwritten(err error) bool {
	return slices.Contains([]string{"WRONGTYPE", "LOCKTYPE"}, codeOf(err))
}

// isHopeless tells whether a repetition changes nothing.
func isHopeless(err error) bool {
	return errors.Is(err, ErrClosed) || errors.Is(err, ErrUsage) || errors.Is(err, ErrNoSemaphore)
}

// mayPass tells whether the same request may be served when it is repeated.
func mayPass(err error) bool {
	if code := codeOf(err); code != "" {
		return slices.Contains(passing, code) || strings.Contains(err.Error(), "max number of clients reached")
	}
	return !isHopeless(err)
}

// mayBeServed tells whether a request that ended with this error may be served still, or was.
func mayBeServed(err error) bool {
	operation, isOperation := errors.AsType[*net.OpError](err)
	return codeOf(err) == "" && !isHopeless(err) && !(isOperation && operation.Op == "dial")
}

// unanswered adds [ErrNoAnswer] to the error of a request that may have been served.
func unanswered(err error) error {
	if err == nil || !mayBeServed(err) || errors.Is(err, ErrLost) || errors.Is(err, ErrReleased) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNoAnswer, err)
}

// badReply is an error for a reply that the module does not give.
func badReply(reply any) error {
	return fmt.Errorf("redislock: a reply that is none of the module's: %T", reply)
}
