package main

import (
	"fmt"
	"io"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// How many operations before the refused one are printed.
const printedBefore = 24

// A refusal is a part of a history to which a model has no order.
type refusal struct {
	name string
	problem
	limit time.Duration
}

// left is the operations that the longest order found leaves out: none when the search for it reaches its limit.
func (r refusal) left() []porcupine.Operation {
	_, info := porcupine.CheckOperationsVerbose(timely(r.model, r.part), r.part, r.limit)
	var longest, left []porcupine.Operation
	for _, orders := range info.PartialLinearizationsOperations() {
		for _, order := range orders {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	isPlaced := map[any]bool{}
	for _, operation := range longest {
		isPlaced[operation.Input] = true
	}
	for _, operation := range r.part {
		if !isPlaced[operation.Input] {
			left = append(left, operation)
		}
	}
	sort.SliceStable(left, func(i, j int) bool { return left[i].Return < left[j].Return })
	return left
}

// print says what the longest order could not take: the operation that ended first, what the other operations on its
// key were until then, and the losses of the time. A run of CI leaves nothing but its output.
func (r refusal) print(h *history, to io.Writer) {
	left := r.left()
	if len(left) == 0 {
		fmt.Fprintf(to, "%s: %s refuses %d operations\n", h.name, r.name, len(r.part))
		return
	}
	refused, ok := left[0].Input.(*op)
	if j, isJoint := left[0].Input.(*joint); isJoint && len(j.ops) > 0 {
		refused, ok = j.ops[0], true
	}
	if !ok {
		fmt.Fprintf(to, "%s: %s refuses a reading at %d us\n", h.name, r.name, left[0].Call/1000)
		return
	}
	fmt.Fprintf(to, "%s: %s leaves %d of %d operations out, first this (key, times in us):\n  %s\nbefore it:\n",
		h.name, r.name, len(left), len(r.part), refused)
	var before []*op
	for _, o := range h.ops[refused.key] {
		if o != refused && o.Invoke <= refused.Complete {
			before = append(before, o)
		}
	}
	sort.SliceStable(before, func(i, j int) bool { return before[i].Invoke < before[j].Invoke })
	before = before[max(0, len(before)-printedBefore):]
	for _, o := range before {
		fmt.Fprintf(to, "  %s\n", o)
	}
	for _, w := range refused.loss.any {
		if len(before) > 0 && w.to >= before[0].Invoke && w.from <= refused.Complete {
			fmt.Fprintf(to, "  expected loss %d..%d\n", w.from/1000, w.to/1000)
		}
	}
}

// String is the operation on a line.
func (o *op) String() string {
	text := fmt.Sprintf("%d: %d..%d process %d owner %d %s %s", o.key, o.Invoke/1000, o.Complete/1000, o.Process,
		o.Owner, o.Operation, o.Kind)
	for _, field := range []struct {
		name  string
		value int64
	}{{"n", o.Count}, {"lease", o.LeaseMs}, {"named", o.NamedToken}} {
		if field.value != 0 {
			text += fmt.Sprintf(" %s %d", field.name, field.value)
		}
	}
	for _, word := range []string{o.Condition, o.Tie} {
		if word != "" {
			text += " " + word
		}
	}
	text += ": " + o.Result
	switch o.Result {
	case "granted":
		text += fmt.Sprintf(" %d", o.Token)
	case "number":
		text += fmt.Sprintf(" %d", o.Value)
	}
	return text
}
