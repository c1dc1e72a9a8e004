//! An acquisition that is under way.
//!
//! It asks once without waiting, on the connection that all share. If the lock is not free it is parked in
//! the server, on a connection of its own, in slices that end before that connection would be given up. The
//! place in the queue is kept between them (`lock.queue-grace`), also when the connection breaks: the
//! request is sent again, with `ONCE`, by the same owner. What is given up is undone.

use std::time::Duration;

use tokio::time::{sleep, Instant};

use crate::call::Caller;
use crate::clock::Moment;
use crate::command::{self, Claim};
use crate::guard::{certain, Guard, Leftovers};
use crate::lock::Lock;
use crate::release::{First, Undo};
use crate::turn::Turn;
use crate::Result;

/// Between two attempts to reach a server: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A request for a lock. Dropped before the grant, it withdraws the wait, and gives back what may have
/// been granted to it meanwhile.
pub(crate) struct Attempt<'a> {
    lock: &'a Lock,
    claim: Claim,
    /// For a request that is answered at once, and for one that waits.
    quick: Caller,
    parked: Option<Caller>,
    /// Until when a request that was given up may be under way.
    under_way_until: Option<Instant>,
    turn: Turn,
    is_granted: bool,
}

impl Attempt<'_> {
    pub(crate) fn new(lock: &Lock, turn: Turn) -> Attempt<'_> {
        let claim = lock.claim();
        Attempt {
            quick: Caller::shared(&lock.server, &claim.key),
            parked: None,
            claim,
            lock,
            under_way_until: None,
            turn,
            is_granted: false,
        }
    }

    /// Asks until the lock is granted, or the end has come.
    pub(crate) async fn run(mut self, end: Option<Instant>) -> Result<Option<Guard>> {
        let left =
            |now: Instant| end.map_or(Duration::MAX, |end| end.saturating_duration_since(now));
        let mut slice = Duration::ZERO;
        let mut pause = FIRST_PAUSE;
        let mut failures = 0;
        loop {
            let sent = Moment::now();
            match self.ask(slice).await {
                Ok(Some(token)) if sent.elapsed() < certain(self.lock.lease) => {
                    return Ok(Some(self.granted(token, sent)));
                }
                // It took longer than the lease to get here: it may be over. What is left of it is asked for
                // anew, or given back.
                Ok(Some(_)) => {
                    self.under_way_until = Some(Instant::now() + self.lock.server.patience());
                    if failures > 0 && left(Instant::now()).is_zero() {
                        return Ok(None);
                    }
                    failures += 1;
                }
                Ok(None) if left(Instant::now()).is_zero() => return Ok(None),
                Ok(None) => pause = FIRST_PAUSE,
                Err(error) if !error.is_passing() => return Err(error),
                // A connection that breaks is worth a second attempt, however short the wait.
                Err(error) if failures > 0 && left(Instant::now()).is_zero() => return Err(error),
                Err(_) => {
                    failures += 1;
                    sleep(pause.min(left(Instant::now()).max(FIRST_PAUSE))).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
            slice = self.lock.longest_slice().min(left(Instant::now()));
        }
    }

    async fn ask(&mut self, slice: Duration) -> Result<Option<u64>> {
        let server = &self.lock.server;
        let command = command::acquire(&self.claim, self.lock.lease, slice);
        let caller = if slice.is_zero() {
            &mut self.quick
        } else {
            let waiting = || Caller::waiting(server, &self.claim.key);
            self.parked.get_or_insert_with(waiting)
        };
        let reply = caller.call(&command, slice + server.patience() / 2).await;
        if caller.was_unanswered() {
            self.under_way_until = Some(Instant::now() + server.patience());
        }
        command::granted(&reply?, server.name())
    }

    fn granted(mut self, token: u64, sent: Moment) -> Guard {
        self.is_granted = true;
        let leftovers = Leftovers {
            acquires_until: self.under_way_until,
            releases_until: None,
            turn: std::mem::take(&mut self.turn),
        };
        Guard::new(self.lock, self.claim.clone(), token, sent, leftovers)
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.is_granted {
            return;
        }
        let server = &self.lock.server;
        let now = Instant::now();
        let parked = self.parked.as_mut().is_some_and(Caller::was_unanswered);
        if self.quick.was_unanswered() || parked {
            self.under_way_until = Some(now + server.patience());
        }
        let under_way_until = self.under_way_until.filter(|until| now < *until);
        let undo = Undo {
            server: server.clone(),
            claim: self.claim.clone(),
            lease: self.lock.lease,
            first: under_way_until.map_or(First::Nothing, |_| First::Everything),
            acquires_until: under_way_until,
            releases_until: None,
            turn: std::mem::take(&mut self.turn),
            parked: self.parked.take(),
        };
        undo.start();
    }
}
