package main

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// A forgery is what is known of a history that a test of lock-faults has made.
type forgery struct {
	// The rule that it breaks; empty: none.
	Breaks string `json:"breaks"`
	// The rules that lock-faults finds broken: only those of which it is the judge.
	Found []string `json:"found"`
}

// The rules that are judged here. tests/faults/src/check/mod.rs describes all rules.
var judged = []string{"Exclusion", "Permits", "Tokens", "Leases", "Held", "AllOrNothing", "Latches"}

// isCaught tells whether the judge of the broken rule has found it.
func (f *forgery) isCaught(v verdict) bool {
	if slices.Contains(judged, f.Breaks) {
		return len(v.illegal) > 0
	}
	return slices.Contains(f.Found, f.Breaks)
}

// isAsMade tells whether a history without a broken rule is accepted by both judges, and another one found by the judge
// of its rule. These histories are small, so a search that ends at its limit is a failure.
func (f *forgery) isAsMade(v verdict) bool {
	if len(v.undecided) > 0 {
		return false
	}
	if f.Breaks == "" {
		return len(v.illegal)+len(f.Found) == 0
	}
	return f.isCaught(v)
}

// A table counts, for each rule, the forged histories that break it, those that its judge catches, and those that the
// models refuse.
type table struct {
	valid int
	rows  map[string]*row
}

type row struct {
	broken, caught, refused int
	models                  map[string]bool
}

func newTable() *table { return &table{rows: map[string]*row{}} }

func (t *table) add(h *history, v verdict) {
	if h.forged.Breaks == "" {
		t.valid++
		return
	}
	r := t.rows[h.forged.Breaks]
	if r == nil {
		r = &row{models: map[string]bool{}}
		t.rows[h.forged.Breaks] = r
	}
	r.broken++
	if h.forged.isCaught(v) {
		r.caught++
	}
	if len(v.illegal) > 0 {
		r.refused++
	}
	for _, model := range v.illegal {
		r.models[model] = true
	}
}

func (t *table) print() {
	if t.valid+len(t.rows) == 0 {
		return
	}
	fmt.Println("| Rule | Judge | Histories | Caught by the judge | Refused by a model | Models |")
	fmt.Println("|---|---|---|---|---|---|")
	for _, rule := range sorted(t.rows) {
		r, judge := t.rows[rule], "lock-faults"
		if slices.Contains(judged, rule) {
			judge = "Porcupine"
		}
		models := strings.Join(sorted(r.models), ", ")
		fmt.Printf("| %s | %s | %d | %d | %d | %s |\n", rule, judge, r.broken, r.caught, r.refused, models)
	}
	fmt.Printf("| none | both | %d | | | |\n", t.valid)
}

func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
