// Porcupine judges histories of lock-faults: a history is good if every model has an order of its operations.
//
// Each model is a file with its explanation: mutex.go, reentrant.go, fenced.go, readwrite.go, semaphore.go, latch.go,
// several.go. README.md describes the format of histories, and what no model sees.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

func main() {
	limit := flag.Duration("limit", time.Minute, "the longest search for one history by one model")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "porcupine [-limit 1m] FILE|DIRECTORY: exit status 1: a history is refused; 2: it cannot be read")
		flag.PrintDefaults()
	}
	flag.Parse()
	paths := []string{flag.Arg(0)}
	if info, err := os.Stat(flag.Arg(0)); err == nil && info.IsDir() {
		paths, _ = filepath.Glob(filepath.Join(flag.Arg(0), "*.jsonl"))
	}
	if flag.NArg() != 1 || len(paths) == 0 {
		flag.Usage()
		os.Exit(2)
	}
	sort.Strings(paths)
	forged, bad, undecided := newTable(), 0, 0
	for _, path := range paths {
		h, err := readHistory(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		start := time.Now()
		v := judge(h, *limit)
		undecided += len(v.undecided)
		isGood := len(v.illegal) == 0
		if h.forged != nil {
			forged.add(h, v)
			isGood = h.forged.isAsMade(v)
		}
		if h.forged == nil || !isGood {
			fmt.Printf("%-60s %s; %.1f s\n", h.name, v.sentence(h), time.Since(start).Seconds())
		}
		if isGood {
			continue
		}
		bad++
		for _, r := range v.refusals {
			r.print(h, os.Stdout)
		}
	}
	forged.print()
	if len(paths) > 1 {
		fmt.Printf("%d histories: %d refused, or not as they were made; %d searches without a result\n", len(paths), bad, undecided)
	}
	if bad > 0 {
		os.Exit(1)
	}
}

// A verdict is what the models say of a history.
type verdict struct {
	operations int
	models     []string
	illegal    []string
	refusals   []refusal
	undecided  []string
}

// A problem is a search for an order of these operations.
type problem struct {
	model porcupine.Model
	part  []porcupine.Operation
}

func judge(h *history, limit time.Duration) verdict {
	var v verdict
	run := func(name string, problems []problem) (isDecided bool) {
		if len(problems) == 0 {
			return true
		}
		if !slices.Contains(v.models, name) {
			v.models = append(v.models, name)
		}
		isDecided = true
		for _, p := range problems {
			switch search(p.model, p.part, limit) {
			case porcupine.Illegal:
				v.illegal = append(v.illegal, name)
				v.refusals = append(v.refusals, refusal{name, p, limit})
				return true
			case porcupine.Unknown:
				isDecided = false
			}
		}
		return isDecided
	}
	check := func(name string, problems []problem) {
		if !run(name, problems) {
			v.undecided = append(v.undecided, name)
		}
	}
	locks, readWrites, semaphores, latches := h.split()
	for _, part := range slices.Concat(locks, readWrites, semaphores, latches) {
		v.operations += len(part)
	}
	check("mutex", each(mutexModel(), locks))
	check("reentrant", each(reentrantModel(), locks))
	check("fenced", each(fencedModel(), locks))
	check("read-write", each(readWriteModel(), readWrites))
	check("semaphore", each(semaphoreModel(), semaphores))
	check("latch", each(latchModel(), latches))
	if h.hasSeveral() && !run("several", []problem{severalProblem(h)}) {
		var problems []problem
		for _, part := range h.byOwner() {
			problems = append(problems, severalProblem(part))
		}
		check("several", problems)
	}
	return v
}

func each(model porcupine.Model, parts [][]porcupine.Operation) []problem {
	var problems []problem
	for _, part := range parts {
		problems = append(problems, problem{model, part})
	}
	return problems
}

// split is the operations that say something: a part for each key, by the kind of the key.
func (h *history) split() (locks, readWrites, semaphores, ofLatches [][]porcupine.Operation) {
	highest := h.highestCount()
	for _, ops := range h.ops {
		into := &locks
		var part []porcupine.Operation
		if ops[0].Kind == "latch" {
			if part = latches(ops, highest); len(part) > 0 {
				ofLatches = append(ofLatches, part)
			}
			continue
		}
		for _, o := range ops {
			switch o.Kind {
			case "read", "write":
				into = &readWrites
			case "permit":
				into = &semaphores
			}
			if !o.isMoot() {
				part = append(part, porcupine.Operation{Input: o, Call: o.Invoke, Return: o.Complete})
			}
		}
		if len(part) > 0 {
			*into = append(*into, part)
		}
	}
	return locks, readWrites, semaphores, ofLatches
}

// hasSeveral tells whether a request of the history is for several keys, or a reading shows them.
func (h *history) hasSeveral() bool {
	for _, ops := range h.ops {
		for _, o := range ops {
			if o.Tie == "many" {
				return true
			}
		}
	}
	return len(h.readings) > 0
}

func (v verdict) sentence(h *history) string {
	text := fmt.Sprintf("%d operations, %s", v.operations, strings.Join(v.models, " "))
	say := func(what string, names []string) {
		if len(names) > 0 {
			text += "; " + what + strings.Join(names, " ")
		}
	}
	say("NOT LINEARIZABLE: ", v.illegal)
	say("NOT DECIDED: ", v.undecided)
	if h.forged != nil {
		say("made to break: ", []string{cmp.Or(h.forged.Breaks, "nothing")})
		say("found by lock-faults: ", h.forged.Found)
	}
	return text
}

func hashOf(h hold, more int64) uint64 {
	return (h.owner*31+uint64(h.token))*31 + uint64(h.leaseEnd) + uint64(more)*17
}

func hashOfAll(holds []hold, more int64) uint64 {
	sum := uint64(more)
	for _, h := range holds {
		sum = sum*31 + hashOf(h, 0)
	}
	return sum
}
