//! Decisions about a latch, and their effects.

use redis_module::raw;

use crate::lock::{CountChange, Cx, LockError, Locks, Now};
use crate::module::answers::Pending;
use crate::module::apply;
use crate::module::ffi::checked::Written;
use crate::module::ffi::fault;
use crate::module::keyspace::count_key::CountKey;
use crate::module::keyspace::replication::Replication;
use crate::module::state::settings;

/// The prefix of the name of a latch's channel.
const LATCH_CHANNEL: &[u8] = b"redisson_countdownlatch__channel__";

impl CountKey<'_> {
    /// Lets the core decide about a latch, and carries out the effects.
    ///
    /// # Errors
    /// Those of the core; then nothing was changed. When the server refuses the change: see [`apply::refused`].
    pub fn decide<T>(
        self,
        now: Now,
        body: impl FnOnce(&mut Locks, &mut Cx<'_>) -> Result<(T, CountChange), LockError>,
    ) -> Result<T, LockError> {
        let replication = Replication::of_command(self.ctx());
        let (decided, fx) = apply::decide(now, body);
        let (answer, change) = decided?;
        let pending = Pending::new(self.ctx(), &fx);
        fault::trip("apply");
        let (ctx, db, name) = (self.ctx(), self.id().db, self.name());
        let written = self.change(change, replication);
        if let Err(what) = written {
            let error = apply::refused(ctx, db, &[name], what);
            pending.fail(&error);
            return Err(error);
        }
        pending.note();
        Ok(answer)
    }

    /// Makes the change of a latch's key, and then, with the key closed, sends its event and message.
    fn change(mut self, change: CountChange, replication: Replication<'_>) -> Written {
        let message = match change {
            CountChange::None => return Ok(()),
            CountChange::Set(count) => return self.set(count, false, replication),
            CountChange::Make(count) => {
                self.set(count, true, replication)?;
                b"1"
            }
            CountChange::Open => {
                self.delete(replication)?;
                b"0"
            }
        };
        let (ctx, name) = (self.ctx(), self.name());
        drop(self);
        if change == CountChange::Open {
            ctx.notify(raw::REDISMODULE_NOTIFY_GENERIC, c"del", name);
        }
        if settings::publish() {
            let channel = [LATCH_CHANNEL, b"{", name.bytes(), b"}"].concat();
            apply::publish(ctx, &channel, message, replication);
        }
        Ok(())
    }
}
