//! Changes of keys by other means than the commands of locks, and the events of the server's life.

use crate::lock::tests::sim::keyspace::Keyspace;
use crate::lock::tests::sim::{key_ref, new_locks, scripts, text, Settings, Sim};
use crate::lock::{KeyState, Lease, Now};

impl Sim {
    pub fn del(&mut self, key: &str) {
        if self.keys.remove(key) {
            self.locks.lost(key_ref(key));
        }
    }

    /// The server deletes what has expired among these keys.
    fn expire(&mut self, is_meant: impl Fn(&str) -> bool) {
        for key in self.keys.expire(self.now, is_meant) {
            self.locks.expired(key_ref(&key));
        }
    }

    /// The server deletes this key, if it has expired.
    pub fn server_expires(&mut self, key: &str) {
        self.expire(|name| name == key);
    }

    /// The server deletes every key that has expired.
    pub fn server_expires_all(&mut self) {
        self.expire(|_| true);
    }

    pub fn overwrite(&mut self, key: &str, with_hash: bool) {
        self.keys.remove(key);
        match with_hash {
            true => drop(self.keys.hash(key).insert("name".into(), "value".into())),
            false => self.keys.set(key.into(), "value", None),
        }
        self.locks.changed(key_ref(key), true);
    }

    /// `HDEL key holder`: an empty hash is deleted, a `#token` stays. (`PERSIST` follows: the naive model knows no TTL
    /// of a token alone.)
    pub fn hdel_holder(&mut self, key: &str) {
        let KeyState::Held(hold) = self.state(key) else {
            return;
        };
        if hold.token.is_none() {
            return self.del(key);
        }
        self.keys.hash(key).remove(&text(&hold.owner));
        self.keys.set_ttl(key, None);
        self.locks
            .shared
            .waiters
            .schedule_settle_all_at(key_ref(key));
    }

    /// `PEXPIREAT` or, with `None`, `PERSIST`, of a key that holds no other data.
    pub fn set_ttl(&mut self, key: &str, deadline_ms: Option<i64>) {
        let is_lock = matches!(self.state(key), KeyState::Held(_) | KeyState::ReadWrite(_));
        if is_lock || self.free(key).is_some() {
            self.keys.set_ttl(key, deadline_ms);
            self.locks
                .shared
                .waiters
                .schedule_settle_all_at(key_ref(key));
        }
    }

    /// Redisson's tryLock script. True when granted.
    pub fn foreign_acquire(&mut self, key: &str, owner: &str, lease: Lease) -> bool {
        self.server_expires(key);
        match self.state(key) {
            KeyState::Absent => {}
            KeyState::Held(hold) if *hold.owner == *owner.as_bytes() => {}
            _ => return false,
        }
        let end_ms = lease.deadline(self.now);
        self.foreign(key, |keys, _| scripts::acquire(keys, key, owner, end_ms));
        true
    }

    /// Redisson's unlock script. True when the owner held it.
    pub fn foreign_release(&mut self, key: &str, owner: &str, lease: Lease) -> bool {
        self.server_expires(key);
        let is_its =
            matches!(self.state(key), KeyState::Held(hold) if *hold.owner == *owner.as_bytes());
        let end_ms = lease.deadline(self.now);
        if is_its {
            self.foreign(key, |keys, _| scripts::release(keys, key, owner, end_ms));
        }
        is_its
    }

    /// A script or a plain command changes this resource and its sibling keys.
    pub fn foreign<T>(&mut self, key: &str, act: impl FnOnce(&mut Keyspace, Now) -> T) -> T {
        let siblings = format!("{{{key}}}:");
        self.expire(|name| name == key || name.starts_with(&siblings));
        let was_there = self.keys.contains(key);
        let sizes = |keys: &Keyspace| (keys.fields(key).len(), keys.permits(key).len());
        let before = sizes(&self.keys);
        let result = act(&mut self.keys, self.now);
        let after = sizes(&self.keys);
        if after.0 < before.0 {
            self.locks.removed_from(key_ref(key));
        }
        if after.1 < before.1 {
            let set = format!("{{{key}}}:timeout");
            self.locks.removed_from(key_ref(&set));
        }
        if was_there && !self.keys.contains(key) {
            self.locks.lost(key_ref(key));
        } else {
            self.locks
                .shared
                .waiters
                .schedule_settle_all_at(key_ref(key));
        }
        result
    }

    pub fn flush(&mut self) {
        self.keys.clear();
        self.counters.clear();
        self.horizons.clear();
        self.locks.flushed(None);
    }

    /// A new process over the same data: every connection is closed.
    pub fn restart(&mut self, settings: &Settings) {
        self.locks = new_locks(settings);
        self.parked.clear();
        self.granted.clear();
        self.tickets.clear();
    }

    /// Whether a slot migrates at the moment.
    pub fn set_may_grant(&mut self, may_grant: bool) {
        self.may_grant = may_grant;
        if may_grant {
            self.locks.shared.waiters.schedule_settle_all(None);
        }
    }

    /// The server was promoted: the startup delay begins.
    pub fn begin_startup_delay(&mut self, ms: u64) {
        self.locks.shared.startup_delay.begin(self.now, ms);
        self.delayed = true;
    }
}
