// Package lockotel records what a client does with OpenTelemetry's API: how long acquisitions took (the histogram
// redis_lock.wait, with the attribute redis_lock.granted) and holds lasted until their release (redis_lock.hold), in
// seconds; losses (the counter redis_lock.losses, with redis_lock.reason: that of redislock.LossReason) and late renewals
// (redis_lock.late_renewals), all with the attribute redis_lock.kind; and a span for each acquisition, below that of its
// context.
package lockotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	redislock "redis-lock.invalid/clients/go"
)

// Config has what [New] uses.
type Config struct {
	// Meter and Tracer record; nil: those of the global providers.
	Meter  metric.Meter
	Tracer trace.Tracer
	// Attributes are more of them, for example one by the name of the lock. No name is recorded by itself, because
	// there may be as many as there are orders or users.
	Attributes func(*redislock.Subject) []attribute.KeyValue
}

// New is an observer for [redislock.WithObserver].
func New(config Config) (redislock.Observer, error) {
	const scope = "redis-lock.invalid/clients/go"
	if config.Meter == nil {
		config.Meter = otel.Meter(scope)
	}
	if config.Tracer == nil {
		config.Tracer = otel.Tracer(scope)
	}
	seconds := metric.WithUnit("s")
	wait, err := config.Meter.Float64Histogram("redis_lock.wait", seconds)
	hold, err2 := config.Meter.Float64Histogram("redis_lock.hold", seconds)
	losses, err3 := config.Meter.Int64Counter("redis_lock.losses")
	late, err4 := config.Meter.Int64Counter("redis_lock.late_renewals")
	if err := errors.Join(err, err2, err3, err4); err != nil {
		return redislock.Observer{}, err
	}
	of := func(lock *redislock.Subject, more ...attribute.KeyValue) []attribute.KeyValue {
		all := append(more, attribute.String("redis_lock.kind", lock.Kind))
		if config.Attributes != nil {
			all = append(all, config.Attributes(lock)...)
		}
		return all
	}
	none := context.Background()
	return redislock.Observer{
		Answered: func(ctx context.Context, lock *redislock.Subject, granted bool, waited time.Duration, err error) {
			attributes, end := of(lock, attribute.Bool("redis_lock.granted", granted)), time.Now()
			wait.Record(ctx, waited.Seconds(), metric.WithAttributes(attributes...))
			_, span := config.Tracer.Start(ctx, "lock "+lock.Kind, trace.WithTimestamp(end.Add(-waited)),
				trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes...))
			if err != nil && !errors.Is(err, redislock.ErrHeld) {
				span.SetStatus(codes.Error, err.Error())
			}
			span.End(trace.WithTimestamp(end))
		},
		Released: func(lock *redislock.Subject, held time.Duration) {
			hold.Record(none, held.Seconds(), metric.WithAttributes(of(lock)...))
		},
		Lost: func(lock *redislock.Subject, reason error) {
			word := attribute.String("redis_lock.reason", redislock.LossReason(reason))
			losses.Add(none, 1, metric.WithAttributes(of(lock, word)...))
		},
		Late: func(lock *redislock.Subject, _ time.Duration) { late.Add(none, 1, metric.WithAttributes(of(lock)...)) },
	}, nil
}
