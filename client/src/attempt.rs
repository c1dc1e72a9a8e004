//! An acquisition that is under way: a wait, and what becomes of it. Granted, it is a guard. Given up, it is undone.

use std::time::Duration;

use tokio::time::Instant;

use crate::clock::Moment;
use crate::command::{self, Claim};
use crate::error::Result;
use crate::guard::{Guard, Leftovers};
use crate::release::{First, Undo};
use crate::terms::Terms;
use crate::turn::Turn;
use crate::wait::{Request, Wait};

/// A request for a terms. Dropped before the grant, it withdraws the wait, and gives back what may have
/// been granted to it meanwhile.
pub(crate) struct Attempt<'a> {
    terms: &'a Terms,
    claim: Claim,
    wait: Wait,
    turn: Turn,
    is_granted: bool,
}

impl Attempt<'_> {
    pub(crate) fn new(terms: &Terms, turn: Turn) -> Attempt<'_> {
        let claim = terms.claim();
        let request = Request {
            key: claim.key.clone(),
            command: command::acquire(&claim, terms.lease, Duration::ZERO),
            longest_slice: terms.longest_slice(),
            certain: terms.told_after(),
        };
        Attempt {
            wait: Wait::new(&terms.server, request),
            claim,
            terms,
            turn,
            is_granted: false,
        }
    }

    /// Asks until the lock is granted, or the end has come.
    pub(crate) async fn run(mut self, end: Option<Instant>) -> Result<Option<Guard>> {
        let granted = self.wait.run(end).await?;
        Ok(granted.map(|(token, sent)| self.granted(token, sent)))
    }

    fn granted(mut self, token: u64, sent: Moment) -> Guard {
        self.is_granted = true;
        let leftovers = Leftovers {
            acquires_until: self.wait.under_way_until(),
            releases_until: None,
            turn: std::mem::take(&mut self.turn),
        };
        Guard::new(self.terms, self.claim.clone(), token, sent, leftovers)
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.is_granted {
            return;
        }
        let under_way_until = self.wait.under_way_until();
        let under_way_until = under_way_until.filter(|until| Instant::now() < *until);
        // A wait that has ended keeps its place for a while, for the owner to ask again. An owner of this acquisition
        // alone will not. One whom others know may have been granted the lock meanwhile.
        let keeps_place = self.wait.was_parked() && !self.turn.is_known();
        let has_left = keeps_place || under_way_until.is_some();
        let undo = Undo {
            server: self.terms.server.clone(),
            claim: self.claim.clone(),
            lease: self.terms.lease,
            first: if has_left {
                First::Everything
            } else {
                First::Nothing
            },
            acquires_until: under_way_until,
            releases_until: None,
            turn: std::mem::take(&mut self.turn),
            parked: self.wait.take_parked(),
        };
        undo.start();
    }
}
