//! The observer for the crate `metrics`, with a recorder that keeps what it is told.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use redis_lock_client::{Lock, LostReason, Metrics, Released, Server};
use redis_lock_harness::{wait_for, TestServer};

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<String>>>);

/// One series of the recorder.
struct Series(Kept, String);

impl CounterFn for Series {
    fn increment(&self, _: u64) {
        self.0 .0.lock().unwrap().push(self.1.clone());
    }

    fn absolute(&self, _: u64) {}
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        assert!((0.0..100.0).contains(&value), "in seconds: {value}");
        self.increment(1);
    }
}

impl Kept {
    fn series(&self, key: &Key) -> Arc<Series> {
        let labels = key.labels().filter(|label| label.key() != "server");
        let labels = labels.map(|label| format!(" {}={}", label.key(), label.value()));
        let name = key.name().to_string() + &labels.collect::<String>();
        Arc::new(Series(self.clone(), name))
    }

    fn has(&self, name: &str) -> bool {
        self.0.lock().unwrap().iter().any(|kept| kept == name)
    }
}

impl Recorder for Kept {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.series(key))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.series(key))
    }
}

#[tokio::test]
async fn waits_holds_and_losses_are_recorded() {
    let kept = Kept::default();
    metrics::set_global_recorder(kept.clone()).unwrap();
    let real = TestServer::start();
    let metrics = Metrics::new().named(|lock| (lock.key == b"k").then(|| "named".into()));
    let url = format!("redis://127.0.0.1:{}", real.port);
    let server = Server::builder(&url).observer(metrics).build().unwrap();
    let guard = Lock::new(&server, "k").acquire().await.unwrap();
    assert!(Lock::new(&server, "k")
        .try_acquire()
        .await
        .unwrap()
        .is_none());
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    let guard = Lock::new(&server, "o").acquire().await.unwrap();
    real.conn().line("LOCK.BREAK o");
    assert_eq!(guard.lost().await, Some(LostReason::Taken));
    let loss = "redis_lock.losses kind=exclusive reason=taken";
    wait_for("the loss", || kept.has(loss));
    drop(guard);
    let expected = [
        "redis_lock.wait kind=exclusive lock=named",
        "redis_lock.hold kind=exclusive lock=named",
        "redis_lock.wait kind=exclusive",
        loss,
    ];
    assert_eq!(*kept.0.lock().unwrap(), expected);
}
