package main

import (
	"slices"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// A search without hope: the moment of the last operation is after the completion of one that is still to come. The
// tool itself notices that only when nothing else is possible. So each state also knows which operations are done:
// all of those that complete first, and some of the others. That depends on nothing but the set of the operations that
// are done, which the tool compares anyway.
type searched struct {
	inner any
	// So many operations, by completion, are done, and these others.
	done  int
	ahead []int
}

type timed interface{ moment() int64 }

// A state is that of a model whose operations happen at moments: the state after another operation, if that is
// possible.
type state[S, O any] interface {
	timed
	step(O) (S, bool)
	hash() uint64
}

// modelOf is the model that begins with this state. Without equals states are compared as values.
func modelOf[S state[S, O], O any](initial S, equals func(S, S) bool) porcupine.Model {
	model := porcupine.Model{
		Init: func() any { return initial },
		Step: func(state, input, _ any) (bool, any) {
			s, ok := state.(S).step(input.(O))
			return ok, s
		},
		Hash: func(state any) uint64 { return state.(S).hash() },
	}
	if equals != nil {
		model.Equal = func(a, b any) bool { return equals(a.(S), b.(S)) }
	}
	return model
}

// search checks operations on one key, or joint ones.
func search(model porcupine.Model, operations []porcupine.Operation, limit time.Duration) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(timely(model, operations), operations, limit)
}

// timely is the model that ends searches without hope. Without a moment in its state a model is used as it is. The
// operations are sorted.
func timely(model porcupine.Model, operations []porcupine.Operation) porcupine.Model {
	if _, isTimed := model.Init().(timed); !isTimed {
		return model
	}
	sort.SliceStable(operations, func(i, j int) bool { return operations[i].Return < operations[j].Return })
	places := make(map[any]int, len(operations))
	for i, operation := range operations {
		places[operation.Input] = i
	}
	equal := model.Equal
	if equal == nil {
		equal = func(a, b any) bool { return a == b }
	}
	return porcupine.Model{
		Init: func() any { return searched{inner: model.Init()} },
		Step: func(state, input, output any) (bool, any) {
			s := state.(searched)
			ok, inner := model.Step(s.inner, input, output)
			if !ok {
				return false, s
			}
			next := s.with(places[input])
			next.inner = inner
			isHopeless := next.done < len(operations) && operations[next.done].Return < inner.(timed).moment()
			return !isHopeless, next
		},
		Equal: func(a, b any) bool { return equal(a.(searched).inner, b.(searched).inner) },
		Hash:  func(state any) uint64 { return model.Hash(state.(searched).inner) },
	}
}

func (s searched) with(place int) searched {
	if place != s.done {
		at, _ := slices.BinarySearch(s.ahead, place)
		return searched{done: s.done, ahead: slices.Insert(slices.Clone(s.ahead), at, place)}
	}
	s.done++
	for len(s.ahead) > 0 && s.ahead[0] == s.done {
		s.done, s.ahead = s.done+1, s.ahead[1:]
	}
	return searched{done: s.done, ahead: s.ahead}
}
