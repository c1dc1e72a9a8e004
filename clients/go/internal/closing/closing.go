// Package closing tells whether the program has closed its client, where a connection that was closed alone has the
// same error: that of a node that has left its cluster.
package closing

import (
	"sync"
	"time"
)

const (
	// How long all requests have ended with that error when the client is closed.
	lasts = 3 * time.Second
	// Requests further apart say nothing of the time between them.
	gap = 10 * time.Second
)

// Errors is what has been seen. Its zero value has seen nothing.
type Errors struct {
	mu          sync.Mutex
	first, last time.Time
}

// AreFinal notes whether a request has ended with that error, and tells whether the client is closed.
func (e *Errors) AreFinal(isOne bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !isOne {
		e.first = time.Time{}
		return false
	}
	now := time.Now()
	if e.first.IsZero() || now.Sub(e.last) > gap {
		e.first = now
	}
	e.last = now
	return now.Sub(e.first) >= lasts
}
