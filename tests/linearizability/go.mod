module redis-lock/tests/linearizability

go 1.26.0

// The linearizability checker: the search for an order of concurrent operations that a model allows.
require github.com/anishathalye/porcupine v1.3.1
