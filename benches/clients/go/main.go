// The process of the contenders in Go of `make bench-clients`. It obeys the orders of python/load.py, line by line.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	lockName = "lock:clients"
	// Ends a contender that is never told to stop.
	mostPairs = 1_000_000
	// In one of so many pairs other contenders get the chance to come between.
	letsOthersRun = 50
	stopsWithin   = 60 * time.Second
)

// guarded is what the lock guards, in a file that the bench reads as well. A lost update is a lock that two had at a
// time.
type guarded struct{ count, lastToken int64 }

func mapped(path string) *guarded {
	file := must(os.OpenFile(path, os.O_RDWR, 0))
	defer file.Close()
	size := int(unsafe.Sizeof(guarded{}))
	words := must(syscall.Mmap(int(file.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED))
	return (*guarded)(unsafe.Pointer(&words[0]))
}

// must ends the process, of which the bench learns.
func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// cell has contenders of one way on one lock, spread over client objects.
type cell struct {
	clients            []client
	contenders         []*contender
	guarded            *guarded
	pause              time.Duration
	measuring, stopped atomic.Bool
	running            sync.WaitGroup
	failure            atomic.Value
	open               []int64
}

// contender is a goroutine that takes the lock and gives it back at once, again and again.
type contender struct {
	acquire acquire
	pairs   int64
	// When the open wait began, in nanoseconds; 0 without one.
	asked atomic.Int64
	// Nanoseconds of the waits that ended in the measured time.
	waits []int64
}

var began = time.Now()

func now() int64 { return int64(time.Since(began)) }

func newCell(way string, port, contenders, clients, pauseMs int, path string) *cell {
	c := &cell{guarded: mapped(path), pause: time.Duration(pauseMs) * time.Millisecond}
	for range clients {
		made := ways[way](fmt.Sprint("127.0.0.1:", port))
		c.clients = append(c.clients, made)
		// Its connection is opened by a pair on another lock.
		must(0, must(made.lock(lockName+":connect")()).release())
	}
	for number := range contenders {
		c.contenders = append(c.contenders, &contender{acquire: c.clients[number%clients].lock(lockName)})
	}
	return c
}

func (c *cell) start() {
	for _, each := range c.contenders {
		c.running.Go(func() {
			for !c.stopped.Load() && each.pairs < mostPairs {
				if err := c.pair(each); err != nil {
					c.failure.CompareAndSwap(nil, err.Error())
					c.stopped.Store(true)
				}
			}
		})
	}
}

func (c *cell) pair(each *contender) error {
	asked := now()
	each.asked.Store(asked)
	held, err := each.acquire()
	if err != nil {
		return err
	}
	if c.measuring.Load() {
		each.waits = append(each.waits, now()-asked)
	}
	each.asked.Store(0)
	if held.token != 0 {
		if held.token <= c.guarded.lastToken {
			return fmt.Errorf("token %d after %d", held.token, c.guarded.lastToken)
		}
		c.guarded.lastToken = held.token
	}
	count := c.guarded.count
	if each.pairs%letsOthersRun == 0 {
		runtime.Gosched()
	}
	c.guarded.count = count + 1
	each.pairs++
	if err := held.release(); err != nil {
		return err
	}
	if c.pause > 0 {
		time.Sleep(c.pause)
	}
	return nil
}

// endMeasured ends the measured time. The waits that are still open count with their age.
func (c *cell) endMeasured() {
	c.measuring.Store(false)
	moment := now()
	for _, each := range c.contenders {
		if asked := each.asked.Load(); asked != 0 {
			c.open = append(c.open, moment-asked)
		}
	}
}

// figures ends the contenders. One that waits is granted the lock once more.
func (c *cell) figures() string {
	c.stopped.Store(true)
	late := time.AfterFunc(stopsWithin, func() { log.Fatal("the contenders do not end") })
	c.running.Wait()
	late.Stop()
	for _, each := range c.clients {
		each.close()
	}
	pairs, waits, grants := int64(0), []int64{}, []int{}
	for _, each := range c.contenders {
		pairs += each.pairs
		waits = append(waits, each.waits...)
		grants = append(grants, len(each.waits))
	}
	return string(must(json.Marshal(map[string]any{
		"waits": waits, "grants": grants, "open": append([]int64{}, c.open...), "pairs": pairs,
		"failure": c.failure.Load(),
	})))
}

// versions has the libraries as go.mod pins them.
func versions() string {
	build, _ := debug.ReadBuildInfo()
	var found []string
	for _, each := range build.Deps {
		if name, isHere := strings.CutPrefix(each.Path, "github.com/"); isHere && strings.Contains(name, "red") {
			found = append(found, name+" "+each.Version)
		}
	}
	return strings.Join(found, ", ") + "; " + strings.Replace(runtime.Version(), "go", "Go ", 1)
}

func main() {
	var present *cell
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		var order, way, path string
		var port, contenders, clients, pauseMs int
		_, _ = fmt.Sscan(orders.Text(), &order, &way, &port, &contenders, &clients, &pauseMs, &path)
		answer := "done"
		switch order {
		case "versions":
			answer = versions()
		case "cell":
			present, answer = newCell(way, port, contenders, clients, pauseMs, path), "ready"
		case "start":
			present.start()
		case "measure":
			present.measuring.Store(true)
		case "pause":
			present.endMeasured()
		case "stop":
			answer = present.figures()
		}
		fmt.Println(answer)
	}
}
