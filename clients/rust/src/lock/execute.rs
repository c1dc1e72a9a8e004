//! Commands under a lock (`LOCK.IF`), and the text beside it.

use redis::{cmd, Value};

use crate::error::{Error, Result};
use crate::lock::guard::Guard;
use crate::lock::renewal::renew_once;
use crate::lock::terms::check_note;
use crate::mode::Mode;
use crate::net::command::{self, Kind};
use crate::net::reply::bytes;
use crate::net::retry::at_most_once;
use crate::outcome::LostReason;

/// What the server replies to a command. A map is a list of keys and values in turn.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Reply {
    /// Nothing: no such key, or a condition that was not met.
    Nil,
    /// A number.
    Integer(i64),
    /// A floating-point number (RESP3).
    Double(f64),
    /// A truth value (RESP3).
    Boolean(bool),
    /// Any bytes: a value, or a status as `OK`.
    Bytes(Vec<u8>),
    /// Several replies.
    List(Vec<Reply>),
}

impl Reply {
    fn of(value: Value) -> Reply {
        let list = |values: Vec<Value>| Reply::List(values.into_iter().map(Reply::of).collect());
        match value {
            Value::Nil => Reply::Nil,
            Value::Int(number) => Reply::Integer(number),
            Value::Double(number) => Reply::Double(number),
            Value::Boolean(truth) => Reply::Boolean(truth),
            Value::Okay => Reply::Bytes(b"OK".to_vec()),
            Value::Array(values) | Value::Set(values) => list(values),
            Value::Map(pairs) => list(pairs.into_iter().flat_map(|(key, of)| [key, of]).collect()),
            text => Reply::Bytes(bytes(&text)),
        }
    }
}

impl Guard {
    /// Runs a command of the server if the lock is still held, in one step (`LOCK.IF`), and returns its reply: a holder
    /// that is late changes nothing. A command with a key, in a cluster in the slot of the lock, or `PUBLISH`; the
    /// words of it.
    ///
    /// ```no_run
    /// # async fn example(guard: redis_lock_client::Guard) -> Result<(), redis_lock_client::Error> {
    /// use redis_lock_client::Reply;
    ///
    /// assert_eq!(guard.execute(["INCRBY", "total", "100"]).await?, Reply::Integer(100));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Lost`] when the lock is no longer held: nothing has run. [`Error::Unheard`] when the command was sent,
    /// got no reply, and may have run. Otherwise it has not: the server refused it, or could not be reached.
    pub async fn execute<Word: AsRef<[u8]>>(
        &self,
        words: impl IntoIterator<Item = Word>,
    ) -> Result<Reply> {
        let (server, key) = (&self.hold.claim.server, self.key());
        let mut command = cmd("LOCK.IF");
        command.arg(key).arg(self.token());
        for word in words {
            command.arg(word.as_ref());
        }
        let probe = command::info(key, 0);
        match at_most_once(server, key, &probe, &command).await {
            Err(error) if error.has_code("FENCED") || error.has_code("WRONGTYPE") => {
                // Readers may get another token while they hold the lock, and the type may be that of the command's own
                // key.
                let is_proof =
                    error.has_code("FENCED") && self.hold.claim.kind != Kind::Lock(Mode::Read);
                // False as well where the server does not say.
                match is_proof || matches!(self.renew(None).await, Ok(false)) {
                    true => Err(self.taken()),
                    false => Err(error),
                }
            }
            reply => reply.map(Reply::of),
        }
    }

    /// The loss that a reply has proved.
    fn taken(&self) -> Error {
        self.hold.notice.lose(LostReason::Taken);
        Error::Lost(LostReason::Taken)
    }

    /// Renews the hold, and replaces the text beside it. False when the server does not have the hold.
    async fn renew(&self, note: Option<&[u8]>) -> Result<bool> {
        let hold = &self.hold;
        let lease = (!self.is_bound).then(|| hold.lease());
        let renewed = renew_once(&hold.claim, lease, hold.token, note).await?;
        if let Some((sent, lease)) = renewed.zip(lease) {
            hold.confirm(sent, lease);
        }
        Ok(renewed.is_some())
    }

    /// Replaces the text beside the hold, which [`Lock::note`](crate::Lock::note) sets at first. It renews the lease as
    /// well.
    ///
    /// # Errors
    /// [`Error::Lost`] when the lock is no longer held; when the server cannot be reached, or refuses: the lock is not
    /// exclusive, the text is longer than 256 bytes.
    pub async fn set_note(&self, note: impl AsRef<[u8]>) -> Result<()> {
        check_note(note.as_ref())?;
        if !self.renew(Some(note.as_ref())).await? {
            return Err(self.taken());
        }
        self.hold.claim.changed();
        Ok(())
    }
}
