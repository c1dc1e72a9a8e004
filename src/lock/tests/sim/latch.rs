//! Latches: the commands, and the change of the key by a decision.

use crate::lock::tests::sim::tickets::notify_of;
use crate::lock::tests::sim::{key_ref, Sim};
use crate::lock::{
    Acquire, Answer, Count, CountChange, Cx, Effects, KeyRef, Latches, Lease, LockError, Locks,
    Mode, Resource, SetIf, Wait,
};

fn latch_ref(key: &str) -> KeyRef<'_> {
    key_ref(key).of(Resource::Latch)
}

impl Sim {
    pub fn latch_set(
        &mut self,
        key: &str,
        count: i64,
        set_if: SetIf,
    ) -> Result<Option<i64>, LockError> {
        self.latch_command(key, |locks, state, cx| {
            Latches::set(
                &mut locks.shared,
                latch_ref(key),
                state,
                (count, set_if),
                cx,
            )
        })
    }

    pub fn latch_down(&mut self, key: &str, by: i64) -> Result<i64, LockError> {
        self.latch_command(key, |locks, state, cx| {
            Latches::down(&mut locks.shared, latch_ref(key), state, by, cx)
        })
    }

    pub fn latch_wait(
        &mut self,
        key: &str,
        conn: u64,
        wait: Wait,
    ) -> Result<Answer<()>, LockError> {
        let named = self.notify.take();
        assert!(!self.is_blocked(conn), "{conn} waits for an answer");
        let req = Acquire {
            owner: b"",
            mode: Mode::Exclusive,
            lease: Lease::SHORTEST,
            names_lease: false,
            session: false,
            once: false,
            note: None,
            count: 1,
            limit: None,
            wait,
            queue: self.queue.take(),
            notify: notify_of(&named),
            client: self.client(conn),
            user: self.user,
        };
        let waited = self.latch_command(key, |locks, state, cx| {
            let shared = &mut locks.shared;
            locks.latches.wait(shared, latch_ref(key), state, &req, cx)
        });
        if let Ok(Answer::Waits(waiter)) = waited {
            let who = ("", Mode::Exclusive, conn);
            let how = (wait, &named, false);
            self.enqueue(waiter, Resource::Latch, &[key], who, how);
        }
        waited
    }

    pub(super) fn settle_latch(&mut self, key: &str) {
        let settled = self.latch_command(key, |locks, state, cx| {
            Latches::settle(&mut locks.shared, latch_ref(key), state, cx);
            Ok(())
        });
        assert_eq!(settled, Ok(()));
    }

    fn latch_command<T>(
        &mut self,
        key: &str,
        decide: impl FnOnce(&mut Locks, Count, &mut Cx<'_>) -> Result<T, LockError>,
    ) -> Result<T, LockError> {
        let state = self.count(key);
        let mut fx = Effects::new();
        let decided = decide(&mut self.locks, state, &mut Cx::new(self.now, &mut fx));
        assert!(decided.is_ok() || fx.is_empty(), "a failed call did {fx:?}");
        self.carry_out(key, fx);
        decided
    }

    pub(super) fn write_count(&mut self, key: &str, change: CountChange) {
        let end_ms = self.keys.end(key);
        match change {
            CountChange::Set(count) => self.keys.set(key.into(), &count.to_string(), end_ms),
            CountChange::Make(count) => self.keys.set(key.into(), &count.to_string(), None),
            CountChange::Delete => assert!(self.keys.remove(key), "deleted nothing"),
        }
    }

    fn count(&self, key: &str) -> Count {
        if !self.keys.contains(key) {
            return Count::Absent;
        }
        match self.keys.text(key).map(str::parse) {
            Some(Ok(count)) => Count::Is(count, self.keys.end(key)),
            Some(Err(_)) => Count::OtherString,
            None => Count::OtherType,
        }
    }
}
