// Linearizability checks histories of lock-faults with Porcupine and compares its verdict with that of lock-faults.
//
// Each model is a file with its explanation: mutex.go, reentrant.go, fenced.go, readwrite.go, semaphore.go, latch.go,
// several.go. README.md describes the format of histories, and what no model sees.
package main

import (
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
	forged := flag.Bool("forged", false, "histories that break rules: print which checker finds which")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "linearizability [-limit 1m] [-forged] DIRECTORY")
		flag.PrintDefaults()
	}
	flag.Parse()
	paths, err := filepath.Glob(filepath.Join(flag.Arg(0), "*.jsonl"))
	if err != nil || flag.NArg() != 1 || len(paths) == 0 {
		flag.Usage()
		os.Exit(2)
	}
	sort.Strings(paths)
	table, undecided := newTable(), 0
	var wrong []string
	var reasons strings.Builder
	for _, path := range paths {
		h, err := readHistory(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		start := time.Now()
		v := judge(h, *limit)
		table.add(h, v)
		undecided += len(v.undecided)
		sentence := fmt.Sprintf("%-60s %s; %.1f s\n", h.name, v.sentence(h), time.Since(start).Seconds())
		isGood := v.agrees(h, *forged)
		if !*forged || !isGood {
			fmt.Print(sentence)
		}
		if !isGood {
			wrong = append(wrong, h.name)
			for _, r := range v.refusals {
				r.print(h, &reasons)
			}
		}
	}
	if *forged {
		table.print()
	}
	if len(wrong) > 0 {
		fmt.Printf("%s\nthe checkers do not agree: %s\n", strings.TrimSpace(reasons.String()), strings.Join(wrong, ", "))
		os.Exit(1)
	}
	fmt.Printf("%d histories: the checkers agree; %d searches without a result\n", len(paths), undecided)
}

// A verdict is what the models say of a history.
type verdict struct {
	operations int
	models     []string
	illegal    []string
	refusals   []refusal
	undecided  []string
}

func judge(h *history, limit time.Duration) verdict {
	var v verdict
	run := func(name string, model porcupine.Model, parts [][]porcupine.Operation) {
		if len(parts) == 0 {
			return
		}
		v.models = append(v.models, name)
		result := porcupine.Ok
		for _, part := range parts {
			switch search(model, part, limit) {
			case porcupine.Illegal:
				v.illegal = append(v.illegal, name)
				v.refusals = append(v.refusals, refuse(name, model, part, limit))
				return
			case porcupine.Unknown:
				result = porcupine.Unknown
			}
		}
		if result == porcupine.Unknown {
			v.undecided = append(v.undecided, name)
		}
	}
	locks, readWrites, semaphores, latches := h.split()
	for _, part := range slices.Concat(locks, readWrites, semaphores, latches) {
		v.operations += len(part)
	}
	run("mutex", mutexModel(), locks)
	run("reentrant", reentrantModel(), locks)
	run("fenced", fencedModel(), locks)
	run("read-write", readWriteModel(), readWrites)
	run("semaphore", semaphoreModel(), semaphores)
	run("latch", latchModel(), latches)
	if len(readWrites)+len(semaphores) == 0 && h.hasSeveral() {
		model, operations := severalModel(h)
		run("several", model, [][]porcupine.Operation{operations})
	}
	return v
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

// agrees compares the verdicts. A forged history may break a rule that the models do not see (README.md); a history
// that lock-faults accepts has to be accepted by every model. A search that ends at its limit is no verdict; the forged
// histories are small, so there it is a failure.
func (v verdict) agrees(h *history, isForged bool) bool {
	if isForged && len(v.undecided) > 0 {
		return false
	}
	if isForged && len(h.broken) > 0 {
		return true
	}
	return (len(v.illegal) > 0) == (len(h.broken) > 0)
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
	say("lock-faults: ", h.broken)
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
