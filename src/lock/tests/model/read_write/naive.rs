//! The contract of `READ` and `WRITE`, as plainly as it can be written: lists that are searched from end to end.

mod tickets;

use crate::lock::tests::model::tickets::{Ends, Hearing, Ticket};
use crate::lock::tests::model::Reply;
use crate::lock::Mode;

#[derive(Debug, Clone)]
struct Hold {
    owner: String,
    mode: Mode,
    count: u32,
    end_ms: i64,
    /// Which grant this is.
    grant: u32,
}

#[derive(Debug, Clone)]
struct Request {
    conn: u64,
    mode: Mode,
    lease_ms: i64,
    until_ms: Option<u64>,
    ticket: Option<Ticket>,
}

#[derive(Debug, Clone)]
struct Place {
    owner: String,
    request: Option<Request>,
    kept_until_ms: u64,
    /// The order of the queue.
    rank: i64,
    /// The mode of the ticket that left it when its wait ran out, and that is not counted yet.
    timed_out: Option<Mode>,
}

/// A grant in flight.
#[derive(Debug, Clone)]
struct InFlight {
    conn: u64,
    owner: String,
    grant: u32,
    rank: i64,
}

#[derive(Debug)]
pub struct Naive {
    grace_ms: u64,
    wall_ms: i64,
    mono_ms: u64,
    holds: Vec<Hold>,
    places: Vec<Place>,
    in_flight: Vec<InFlight>,
    undelivered: Vec<InFlight>,
    grants: u32,
    arrivals: i64,
    firsts: i64,
    pub replies: Vec<(u64, Reply)>,
    pub messages: Vec<(Ticket, Reply)>,
    pub ends: Ends,
    pub hearing: Hearing,
}

impl Naive {
    pub fn new(grace_ms: u64, wall_ms: i64) -> Naive {
        Naive {
            grace_ms,
            wall_ms,
            mono_ms: 0,
            holds: Vec::new(),
            places: Vec::new(),
            in_flight: Vec::new(),
            undelivered: Vec::new(),
            grants: 0,
            arrivals: 0,
            firsts: 0,
            replies: Vec::new(),
            messages: Vec::new(),
            ends: Ends::default(),
            hearing: Hearing::default(),
        }
    }

    fn live(&self) -> Vec<&Hold> {
        let holds = self.holds.iter();
        holds.filter(|hold| hold.end_ms > self.wall_ms).collect()
    }

    fn find(&self, owner: &str, mode: Mode) -> Option<usize> {
        self.holds
            .iter()
            .position(|hold| hold.owner == owner && hold.mode == mode && hold.end_ms > self.wall_ms)
    }

    pub fn holders(&self) -> Vec<(String, Mode, u32, i64)> {
        let live = self.live().into_iter();
        let mut holders: Vec<_> = live
            .map(|hold| (hold.owner.clone(), hold.mode, hold.count, hold.end_ms))
            .collect();
        holders.sort();
        holders
    }

    pub fn queue(&self) -> Vec<(String, Mode)> {
        let mut places: Vec<_> = self.places.iter().collect();
        places.sort_by_key(|place| place.rank);
        let live = places.into_iter();
        live.filter_map(|place| Some((place.owner.clone(), place.request.as_ref()?.mode)))
            .collect()
    }

    /// Whether this is compatible with the present holds.
    fn is_compatible(&self, owner: &str, mode: Mode) -> bool {
        self.live().iter().all(|hold| match (hold.mode, mode) {
            (Mode::Read, Mode::Read) => true,
            _ => hold.owner == owner,
        })
    }

    fn is_holder(&self, owner: &str) -> bool {
        self.live().iter().any(|hold| hold.owner == owner)
    }

    pub fn acquire(
        &mut self,
        owner: &str,
        (conn, ticket): (u64, Option<Ticket>),
        writes: bool,
        (lease_ms, wait, once): (i64, Option<Option<u64>>, bool),
    ) -> Reply {
        let mode = if writes { Mode::Write } else { Mode::Read };
        let request = Request {
            conn,
            mode,
            lease_ms,
            until_ms: wait.flatten().map(|ms| self.mono_ms + ms),
            ticket,
        };
        let is_upgrade = writes
            && self.find(owner, Mode::Read).is_some()
            && self.find(owner, Mode::Write).is_none();
        let is_compatible = self.is_compatible(owner, mode);
        if is_compatible {
            self.ask();
        }
        // A holder does not queue.
        if self.is_holder(owner) && is_compatible {
            self.claim(owner);
            self.grant(owner, mode, lease_ms, once);
            self.granted_at_once(owner, mode);
            self.take_over(owner, mode);
            return Reply::Granted;
        }
        if is_compatible && self.queue().is_empty() {
            self.claim(owner);
            self.grant(owner, mode, lease_ms, once);
            self.granted_at_once(owner, mode);
            if let Some(at) = self.places.iter().position(|place| place.owner == owner) {
                let place = self.places.remove(at);
                self.give_up(&place);
            }
            return Reply::Granted;
        }
        if wait.is_none() {
            if is_compatible {
                self.hand_off();
            }
            return Reply::Refused;
        }
        if is_upgrade && self.another_upgrades(owner) {
            return Reply::Error("DEADLOCK of two upgrades");
        }
        self.park(owner, request, is_upgrade);
        if is_compatible {
            self.hand_off();
        }
        Reply::Parked
    }

    fn another_upgrades(&self, owner: &str) -> bool {
        let mut places: Vec<_> = self.places.iter().filter(|p| p.request.is_some()).collect();
        places.sort_by_key(|place| place.rank);
        places.first().is_some_and(|first| {
            let writes = first
                .request
                .as_ref()
                .is_some_and(|r| r.mode == Mode::Write);
            writes && first.owner != owner && self.find(&first.owner, Mode::Read).is_some()
        })
    }

    fn park(&mut self, owner: &str, request: Request, is_upgrade: bool) {
        self.note_queued(&request);
        let at = self.places.iter().position(|place| place.owner == owner);
        let former = at.map(|at| self.places.remove(at));
        let rank = match (&former, is_upgrade) {
            (_, true) => {
                self.firsts += 1;
                -self.firsts
            }
            (Some(former), false) => former.rank,
            (None, false) => {
                self.arrivals += 1;
                self.arrivals
            }
        };
        if let Some(former) = former {
            self.ends.taken_over += u64::from(former.timed_out.is_some());
            former
                .request
                .iter()
                .for_each(|older| self.taken_over(older));
        }
        self.places.push(Place {
            owner: owner.into(),
            request: Some(request),
            kept_until_ms: 0,
            rank,
            timed_out: None,
        });
    }

    /// A newer request of the same owner and mode was granted past the queue.
    fn take_over(&mut self, owner: &str, mode: Mode) {
        let same = |place: &Place| {
            place.owner == owner && place.request.as_ref().is_some_and(|r| r.mode == mode)
        };
        if let Some(at) = self.places.iter().position(same) {
            let request = self.places.remove(at).request.unwrap();
            self.taken_over(&request);
        }
    }

    fn grant(&mut self, owner: &str, mode: Mode, lease_ms: i64, once: bool) {
        let end_ms = self.wall_ms + lease_ms;
        let wall_ms = self.wall_ms;
        self.holds.retain(|hold| hold.end_ms > wall_ms);
        match self.find(owner, mode) {
            Some(at) => {
                let hold = &mut self.holds[at];
                hold.count += u32::from(!once);
                hold.end_ms = hold.end_ms.max(end_ms);
            }
            None => {
                self.grants += 1;
                self.holds.push(Hold {
                    owner: owner.into(),
                    mode,
                    count: 1,
                    end_ms,
                    grant: self.grants,
                });
            }
        }
        self.stretch();
    }

    /// The lease of a writer lasts as long as its READ hold.
    fn stretch(&mut self) {
        let reads = self.holds.iter().filter(|hold| hold.mode == Mode::Read);
        let longest = reads.map(|hold| hold.end_ms).max().unwrap_or(0);
        for hold in self.holds.iter_mut().filter(|h| h.mode == Mode::Write) {
            hold.end_ms = hold.end_ms.max(longest);
        }
    }

    fn hand_off(&mut self) {
        loop {
            let Some((at, request)) = self.first_heard() else {
                return;
            };
            let owner = self.places[at].owner.clone();
            if !self.is_compatible(&owner, request.mode) {
                return;
            }
            let place = self.places.remove(at);
            let is_fresh = self.find(&owner, request.mode).is_none();
            self.grant(&owner, request.mode, request.lease_ms, false);
            self.granted(&request);
            if request.ticket.is_some() {
                // Its message is delivered at once.
                continue;
            }
            if is_fresh {
                self.in_flight.push(InFlight {
                    conn: request.conn,
                    owner,
                    grant: self.grants,
                    rank: place.rank,
                });
            } else {
                // An additional hold is not undone.
                self.in_flight.push(InFlight {
                    conn: request.conn,
                    owner,
                    grant: 0,
                    rank: 0,
                });
            }
        }
    }

    fn vacate(&mut self, at: usize) {
        let mut place = self.places.remove(at);
        place.request = None;
        place.kept_until_ms = self.mono_ms + self.grace_ms;
        match self.grace_ms > 0 {
            true => self.places.push(place),
            false => self.give_up(&place),
        }
    }

    /// A place goes: a ticket whose wait ran out there has not been continued in time.
    fn give_up(&mut self, place: &Place) {
        self.ends.timed_out += u64::from(place.timed_out.is_some());
    }

    /// Which hold is meant; an error when that is not clear.
    fn meant(&self, owner: &str, mode: Option<Mode>) -> Result<Option<usize>, Reply> {
        let (read, write) = (self.find(owner, Mode::Read), self.find(owner, Mode::Write));
        match mode {
            None if read.is_some() && write.is_some() => Err(Reply::Error("READ or WRITE?")),
            None => Ok(read.or(write)),
            Some(Mode::Read) => Ok(read),
            Some(_) => Ok(write),
        }
    }

    pub fn release(&mut self, owner: &str, mode: Option<Mode>, all: bool) -> Reply {
        let at = match self.meant(owner, mode) {
            Ok(Some(at)) => at,
            Err(said) => return said,
            Ok(None) => {
                self.withdraw(owner, mode);
                return Reply::NotHeld;
            }
        };
        self.claim(owner);
        if self.holds[at].count > 1 && !all {
            self.holds[at].count -= 1;
            return Reply::StillHeld;
        }
        self.ask();
        self.holds.remove(at);
        self.hand_off();
        Reply::Freed
    }

    fn withdraw(&mut self, owner: &str, mode: Option<Mode>) {
        let Some(at) = self.places.iter().position(|place| place.owner == owner) else {
            return;
        };
        let waits_for = self.places[at].request.as_ref().map(|request| request.mode);
        if mode.is_some() && waits_for != mode {
            return;
        }
        let place = self.places.remove(at);
        self.give_up(&place);
        if let Some(request) = place.request {
            self.withdrawn(&request);
        }
    }

    pub fn renew(&mut self, owner: &str, mode: Option<Mode>, lease_ms: i64) -> Reply {
        let at = match self.meant(owner, mode) {
            Ok(Some(at)) => at,
            Err(said) => return said,
            Ok(None) => return Reply::Lost,
        };
        self.claim(owner);
        self.holds[at].end_ms = self.wall_ms + lease_ms;
        self.stretch();
        Reply::Renewed
    }

    pub fn break_lock(&mut self, purge: bool) -> Reply {
        if purge {
            for place in std::mem::take(&mut self.places) {
                self.give_up(&place);
                place
                    .request
                    .iter()
                    .for_each(|request| self.broken(request));
            }
        }
        if self.live().is_empty() {
            return Reply::NotHeld;
        }
        self.ask();
        self.holds.clear();
        self.hand_off();
        Reply::Broken
    }

    pub fn del(&mut self) {
        self.holds.clear();
    }

    /// The owner has used its grant: it is not undone.
    fn claim(&mut self, owner: &str) {
        self.in_flight.retain(|in_flight| in_flight.owner != owner);
        self.undelivered
            .retain(|in_flight| in_flight.owner != owner);
    }

    pub fn delivered(&mut self) {
        self.in_flight.clear();
    }

    pub fn disconnect(&mut self, conn: u64) {
        if let Some(at) = self
            .in_flight
            .iter()
            .position(|in_flight| in_flight.conn == conn)
        {
            let in_flight = self.in_flight.remove(at);
            self.undelivered.push(in_flight);
        } else {
            let waits = |place: &Place| place.request.as_ref().is_some_and(|r| r.blocks(conn));
            if let Some(at) = self.places.iter().position(waits) {
                self.vacate(at);
            }
        }
    }

    pub fn pass(&mut self, ms: u64) {
        self.mono_ms += ms;
        self.wall_ms += ms as i64;
    }

    pub fn alarm(&mut self) {
        for at in (0..self.places.len()).rev() {
            let place = &self.places[at];
            match &place.request {
                Some(request) if request.until_ms.is_some_and(|end| end <= self.mono_ms) => {
                    let request = request.clone();
                    self.time_out(at, &request);
                }
                None if place.kept_until_ms <= self.mono_ms => {
                    let place = self.places.remove(at);
                    self.give_up(&place);
                }
                _ => {}
            }
        }
        let lost = self.undelivered.iter();
        let grants: Vec<u32> = lost.map(|undo| undo.grant).collect();
        let is_lost = |hold: &&Hold| grants.contains(&hold.grant);
        let is_undo = self.live().into_iter().any(|hold| is_lost(&hold));
        if is_undo {
            self.ask();
        }
        for undo in std::mem::take(&mut self.undelivered) {
            let held = |hold: &Hold| hold.grant == undo.grant && hold.end_ms > self.wall_ms;
            if let Some(at) = self.holds.iter().position(held) {
                self.holds.remove(at);
                let is_known = self.places.iter().any(|place| place.owner == undo.owner);
                if !is_known && self.grace_ms > 0 {
                    self.places.push(Place {
                        owner: undo.owner,
                        request: None,
                        kept_until_ms: self.mono_ms + self.grace_ms,
                        rank: undo.rank,
                        timed_out: None,
                    });
                }
            }
        }
        if is_undo {
            self.hand_off();
        }
        while self.first_may_enter() {
            self.ask();
            self.hand_off();
        }
    }
}
