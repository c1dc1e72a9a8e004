package lockotel_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	nometer "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	notracer "go.opentelemetry.io/otel/trace/noop"

	redislock "redis-lock.invalid/clients/go"
	"redis-lock.invalid/clients/go/lockotel"
	"redis-lock.invalid/clients/go/locktest"
)

// recorder is a meter and a tracer that keep what they are given, as text.
type recorder struct {
	nometer.Meter
	mu    sync.Mutex
	lines map[string]int
}

func (r *recorder) add(name string, set attribute.Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines[fmt.Sprint(name, " ", set.Encoded(attribute.DefaultEncoder()))]++
}

// await waits until this is recorded: an observer is told in the background.
func (r *recorder) await(t *testing.T, line string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); runtime.Gosched() {
		r.mu.Lock()
		isThere := r.lines[line] > 0
		r.mu.Unlock()
		if isThere {
			return
		}
	}
	t.Fatal("not recorded: ", line)
}

type histogram struct {
	nometer.Float64Histogram
	*recorder
	name string
}

func (h histogram) Record(_ context.Context, seconds float64, options ...metric.RecordOption) {
	if seconds > 0 && seconds < 3600 {
		h.add(h.name, metric.NewRecordConfig(options).Attributes())
	}
}

type counter struct {
	nometer.Int64Counter
	*recorder
	name string
}

func (c counter) Add(_ context.Context, _ int64, options ...metric.AddOption) {
	c.add(c.name, metric.NewAddConfig(options).Attributes())
}

func (r *recorder) Float64Histogram(name string, _ ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return histogram{recorder: r, name: name}, nil
}

func (r *recorder) Int64Counter(name string, _ ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return counter{recorder: r, name: name}, nil
}

type tracer struct {
	notracer.Tracer
	*recorder
}

// request is the key of a value of a context.
type request struct{}

type span struct {
	trace.Span
	recorder *recorder
	name     string
	status   codes.Code
}

func (t tracer) Start(ctx context.Context, name string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	return ctx, &span{trace.SpanFromContext(ctx), t.recorder, fmt.Sprint(name, " in ", ctx.Value(request{})), 0}
}

func (s *span) SetStatus(code codes.Code, _ string) { s.status = code }
func (s *span) End(...trace.SpanEndOption) {
	s.recorder.add(fmt.Sprint(s.name, " ", s.status), attribute.NewSet())
}

func TestTimesLossesAndSpans(t *testing.T) {
	server := locktest.New()
	r := &recorder{lines: map[string]int{}}
	observer, err := lockotel.New(lockotel.Config{Meter: r, Tracer: tracer{recorder: r},
		Attributes: func(lock *redislock.Subject) []attribute.KeyValue {
			return []attribute.KeyValue{attribute.String("name", lock.Name)}
		}})
	if err != nil {
		t.Fatal(err)
	}
	client, err := redislock.New(server, redislock.WithObserver(observer))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx := context.WithValue(t.Context(), request{}, 7)
	err = client.NewLock("x").Run(ctx, func(ctx context.Context, hold *redislock.Hold) error {
		_, err := hold.Do(ctx, "SET", "text", "x")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	lost, err := client.NewReadWriteLock("w").Write().Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	lost.Context()
	server.Lose("w")
	if _, err := client.NewLock("text").TryLock(ctx); err == nil {
		t.Fatal("a text is no lock")
	}
	for _, line := range []string{
		"redis_lock.wait name=x,redis_lock.granted=true,redis_lock.kind=exclusive",
		"redis_lock.hold name=x,redis_lock.kind=exclusive", "redis_lock.losses name=w,redis_lock.kind=write,redis_lock.reason=taken",
		"redis_lock.wait name=text,redis_lock.granted=false,redis_lock.kind=exclusive",
		"lock exclusive in 7 Unset ", "lock write in 7 Unset ", "lock exclusive in 7 Error ",
	} {
		r.await(t, line)
	}
}
