//! What happens to the server and to its keys without a command of the module.

use crate::lock::tests::sim::{scripts, Settings, Sim};
use crate::lock::tests::transcripts::{lease_of, millis, text, Session, Words};
use crate::lock::{KeyState, UserId, WindowRule};

impl Session {
    /// Most events have no reply.
    pub(super) fn event(&mut self, words: &Words<'_>) -> String {
        match words.at(0) {
            "redisson" => return self.redisson(words),
            "restart" => {
                self.sim.restart(&self.settings);
                self.sim.now.wall_ms -= words.option("back").map_or(0, millis) as i64;
            }
            "limits" => self.set_limits(words),
            "drop" => {
                let conn = self.conn(words.at(1));
                self.sim.disconnect(conn);
            }
            "unblock" => {
                let conn = self.conn(words.at(1));
                self.sim.unblock(conn);
            }
            "advance" | "late" | "clock" | "alarm" => self.pass(words),
            "del" | "expire" | "hdel" | "persist" | "pexpire" | "overwrite" => self.change(words),
            _ => self.set(words),
        }
        String::new()
    }

    fn pass(&mut self, words: &Words<'_>) {
        let sim = &mut self.sim;
        match words.at(0) {
            "advance" => sim.advance(millis(words.at(1))),
            "late" => sim.pass(millis(words.at(1))),
            "alarm" if words.has("short") => sim.fire(true),
            "alarm" => sim.alarm(),
            _ => {
                let by = millis(words.at(2)) as i64;
                sim.now.wall_ms += if words.at(1) == "back" { -by } else { by };
            }
        }
    }

    fn change(&mut self, words: &Words<'_>) {
        let sim = &mut self.sim;
        match words.at(0) {
            "del" => sim.del(words.at(1)),
            "expire" => match words.0.get(1) {
                Some(key) => sim.server_expires(key),
                None => sim.server_expires_all(),
            },
            "hdel" => sim.hdel_holder(words.at(1)),
            "persist" => sim.set_ttl(words.at(1), None),
            "pexpire" => {
                let deadline_ms = sim.now.wall_ms + millis(words.at(2)) as i64;
                sim.set_ttl(words.at(1), Some(deadline_ms));
            }
            _ => match words.at(2) {
                "string" => sim.overwrite(words.at(1), false),
                "hash" => sim.overwrite(words.at(1), true),
                _ => self.set_holds(words.at(1), words.at(3)),
            },
        }
    }

    fn set(&mut self, words: &Words<'_>) {
        let sim = &mut self.sim;
        match words.at(0) {
            "session" => sim.locks.shared.sessions.rule.lease = lease_of(millis(words.at(2))),
            "counter" => {
                let value = words.at(2).parse().unwrap();
                sim.counters.insert(words.at(1).into(), value);
            }
            "horizon" => sim.set_horizon(words.at(1), words.at(2).parse().unwrap()),
            "flush" => sim.flush(),
            "listen" => sim.subscribe_channel(words.at(1), true),
            "deafen" => sim.subscribe_channel(words.at(1), false),
            "forbid" => drop(sim.forbidden.insert(UserId(words.at(1).parse().unwrap()))),
            "permit" => drop(sim.forbidden.remove(&UserId(words.at(1).parse().unwrap()))),
            "subscribe" => drop(sim.has_subscriber.insert(words.at(1).into())),
            "unsubscribe" => drop(sim.has_subscriber.remove(words.at(1))),
            "window" => sim.locks.shared.waiters.set_window_rule(WindowRule {
                after: words.number("after").unwrap() as u32,
                window_ms: words.option("window").map_or(50, millis),
                polled: false,
            }),
            "demote" => sim.demote(),
            "delay" if words.at(1) == "limit" => {
                sim.locks.shared.startup_delay.limit(millis(words.at(2)))
            }
            "delay" => sim.begin_startup_delay(millis(words.at(1))),
            "grants" => sim.set_may_grant(words.at(1) == "on"),
            other => panic!("{other}?"),
        }
    }

    fn redisson(&mut self, words: &Words<'_>) -> String {
        let (key, owner, lease) = (words.at(2), words.at(3), words.lease());
        let sim = &mut self.sim;
        let held =
            matches!(sim.state(key), KeyState::Held(hold) if *hold.owner == *owner.as_bytes());
        let lease_ms = lease.ms();
        let done = match words.at(1) {
            "acquire" => sim.foreign_acquire(key, owner, lease),
            "release" => sim.foreign_release(key, owner, lease),
            "renew" => {
                if held {
                    sim.set_ttl(key, Some(lease.deadline(sim.now)));
                }
                held
            }
            script => sim.foreign(key, |keys, now| match script {
                "read" => scripts::read_acquire(keys, key, owner, lease_ms, now),
                "write" => scripts::write_acquire(keys, key, owner, lease_ms, now),
                "unread" => scripts::read_release(keys, key, owner, now),
                "unwrite" => scripts::write_release(keys, key, owner, lease_ms, now),
                "renew-read" => scripts::read_renew(keys, key, owner, lease_ms, now),
                "force" => scripts::force(keys, key),
                "take" => scripts::take_permit(keys, key, owner, lease.deadline(now)),
                "give" => scripts::give_permit(keys, key, owner),
                other => panic!("{other}?"),
            }),
        };
        if done { "ok" } else { "not done" }.into()
    }

    fn set_holds(&mut self, key: &str, count: &str) {
        if let KeyState::Held(hold) = self.sim.state(key) {
            let fields = self.sim.keys.hash(key);
            fields.insert(text(&hold.owner), count.into());
        }
    }

    fn set_limits(&mut self, words: &Words<'_>) {
        let mut settings = Settings::default();
        let limits = &mut settings.limits;
        limits.max_waiters = words.number("waiters").unwrap_or(limits.max_waiters);
        limits.max_waiters_per_key = words
            .number("per-key")
            .unwrap_or(limits.max_waiters_per_key);
        limits.max_tickets = words.number("tickets").unwrap_or(limits.max_tickets);
        limits.max_wait_bytes = words.number("bytes").unwrap_or(limits.max_wait_bytes);
        limits.user_share = words.number("share").unwrap_or(limits.user_share);
        limits.max_tracked = words.number("tracked").unwrap_or(limits.max_tracked);
        let grace = &mut settings.grace;
        grace.ms = words.option("grace").map_or(grace.ms, millis);
        grace.max_places = words.number("places").unwrap_or(grace.max_places);
        self.settings = settings;
        self.sim = Sim::new(&settings);
        self.tokens.clear();
    }
}
