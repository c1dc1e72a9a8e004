package main

import (
	"fmt"
	"sort"
	"strings"
)

// A table counts, for each rule of lock-faults, the forged histories that break it, and those of them that a model
// finds.
type table struct {
	valid int
	rows  map[string]*row
}

type row struct {
	broken, found int
	models        map[string]bool
	missed        map[string]int
}

func newTable() *table { return &table{rows: map[string]*row{}} }

func (t *table) add(h *history, v verdict) {
	if len(h.broken) == 0 {
		t.valid++
		return
	}
	rules := strings.Join(h.broken, " ")
	r := t.rows[rules]
	if r == nil {
		r = &row{models: map[string]bool{}, missed: map[string]int{}}
		t.rows[rules] = r
	}
	r.broken++
	if len(v.illegal) > 0 {
		r.found++
		for _, model := range v.illegal {
			r.models[model] = true
		}
	} else {
		r.missed[test(h.name)]++
	}
}

// test is the name of the test that wrote a history.
func test(name string) string { return name[:max(strings.LastIndex(name, "."), 0)] }

func (t *table) print() {
	fmt.Println("| Rules that lock-faults finds broken | Histories | Found by a model | By which | Not found in |")
	fmt.Println("|---|---|---|---|---|")
	for _, rules := range sorted(t.rows) {
		r := t.rows[rules]
		fmt.Printf("| %s | %d | %d | %s |", rules, r.broken, r.found, strings.Join(sorted(r.models), ", "))
		for _, name := range sorted(r.missed) {
			fmt.Printf(" `%s` (%d)", name, r.missed[name])
		}
		fmt.Println(" |")
	}
	fmt.Printf("%d histories that lock-faults accepts\n", t.valid)
}

func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
