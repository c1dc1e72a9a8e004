//! The contract of docs/COMMANDS.md in its plainest form: for each key its holds and its waiters in order. The model
//! shares no code with the module, nor with the model of the module's core.
//!
//! The steps exclude any influence of time: a lease either outlasts the sequence or ends within its step, a wait either
//! has no limit or ends within its step, and places are kept either for ever or not at all.

use super::ops::{Acquire, Block, Conn, Key, Lease, Names, Op, Owner, CONNS, KEYS, SHORT};

/// The number of a grant; the player learns its token from the reply.
pub type Grant = usize;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hold {
    pub owner: Owner,
    pub count: i64,
    /// `None`: no TTL.
    pub lease: Option<Lease>,
    /// `None` for a Redisson client's hold.
    pub grant: Option<Grant>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum State {
    Absent,
    /// The token without a holder.
    Bare,
    Held(Hold),
    OtherHash,
    OtherType,
}

/// The expected reply to a connection.
#[derive(Debug, Clone, PartialEq)]
pub enum Expect {
    Int(i64),
    Nil,
    /// A token above all earlier ones.
    Fresh(Grant),
    /// The token of this grant again.
    Same(Grant),
    /// An error with this code.
    Error(&'static str),
    /// The first element, and the holder with its hold count.
    WithHolder(Box<Expect>, Option<(Owner, i64)>),
}

#[derive(Debug, Clone, Copy)]
struct Request {
    conn: Conn,
    lease: Lease,
    with_holder: bool,
}

/// A place in a queue; without a request it is kept for its owner.
#[derive(Debug, Clone, Copy)]
struct Place {
    owner: Owner,
    request: Option<Request>,
}

#[derive(Debug)]
pub struct Model {
    keeps_places: bool,
    pub states: [State; KEYS],
    queues: [Vec<Place>; KEYS],
    grants: usize,
    /// The replies of this step, by connection.
    answers: Vec<(Conn, Expect)>,
}

impl Model {
    pub fn new(keeps_places: bool) -> Model {
        Model {
            keeps_places,
            states: [State::Absent; KEYS],
            queues: Default::default(),
            grants: 0,
            answers: Vec::new(),
        }
    }

    /// The waiters of the key, in order.
    pub fn waiters(&self, key: Key) -> Vec<Owner> {
        let places = self.queues[key].iter();
        let live = places.filter(|place| place.request.is_some());
        live.map(|place| place.owner).collect()
    }

    pub fn is_parked(&self, conn: Conn) -> bool {
        (0..KEYS).any(|key| self.place_of(key, conn).is_some())
    }

    pub fn holder(&self, key: Key) -> Option<Hold> {
        match self.states[key] {
            State::Held(hold) => Some(hold),
            _ => None,
        }
    }

    /// Whether the contract defines the outcome: other clients do not make an owner that waits the holder, and
    /// Redisson's clients do not use a key that is no lock.
    pub fn defines(&self, op: Op) -> bool {
        let waits = |key: Key, owner| self.queues[key].iter().any(|place| place.owner == owner);
        match op {
            Op::RedissonTakes(key, owner, _) => self.is_lock(key) && !waits(key, owner),
            Op::RedissonGives(key, _) => self.is_lock(key),
            Op::Rename(key) => match self.states[key] {
                State::Held(hold) => !waits(1 - key, hold.owner),
                State::Absent => true,
                _ => self.queues[1 - key].is_empty(),
            },
            _ => true,
        }
    }

    fn is_lock(&self, key: Key) -> bool {
        !matches!(self.states[key], State::OtherHash | State::OtherType)
    }

    /// All replies of the step, that to the acting connection among them.
    pub fn step(&mut self, op: Op) -> Vec<(Conn, Expect)> {
        match op {
            Op::Acquire(conn, acquire) => self.acquire(conn, acquire),
            Op::Release(conn, key, owner, all, names) => {
                let answer = self.release(key, owner, all, names);
                self.answers.push((conn, answer));
            }
            Op::Renew(conn, key, owner, lease, names) => {
                let answer = self.renew(key, owner, lease, names);
                self.answers.push((conn, answer));
            }
            Op::Break(key, names, purge) => {
                let answer = self.break_lock(key, names, purge);
                self.answers.push((CONNS, answer));
            }
            Op::HangUp(conn) => self.leave(conn, None, self.keeps_places),
            Op::Unblock(conn, with_error) => {
                let answer = match with_error {
                    true => Expect::Error("UNBLOCKED"),
                    false => Expect::Nil,
                };
                self.leave(conn, Some(answer), self.keeps_places);
            }
            Op::Del(key) | Op::Expire(key) => self.states[key] = State::Absent,
            Op::Pexpire(key, lease) => self.set_ttl(key, Some(lease)),
            Op::Persist(key) => self.set_ttl(key, None),
            Op::Set(key) => self.states[key] = State::OtherType,
            Op::HsetOther(key) => {
                if self.states[key] != State::OtherType {
                    self.states[key] = State::OtherHash;
                }
            }
            Op::HdelHolder(key) => {
                if let Some(hold) = self.holder(key) {
                    self.states[key] = hold.grant.map_or(State::Absent, |_| State::Bare);
                }
            }
            Op::Rename(key) => {
                if self.states[key] != State::Absent {
                    self.states[1 - key] = std::mem::replace(&mut self.states[key], State::Absent);
                }
            }
            Op::FlushAll => self.states = [State::Absent; KEYS],
            Op::RedissonTakes(key, owner, lease) => self.redisson_takes(key, owner, lease),
            Op::RedissonGives(key, owner) => self.redisson_gives(key, owner),
        }
        (0..KEYS).for_each(|key| self.settle(key));
        std::mem::take(&mut self.answers)
    }

    fn acquire(&mut self, conn: Conn, acquire: Acquire) {
        let Acquire { key, owner, .. } = acquire;
        let block = match acquire.in_multi {
            true => Block::No,
            false => acquire.block,
        };
        let answer = match self.states[key] {
            State::OtherType => Expect::Error("WRONGTYPE"),
            State::OtherHash => Expect::Error("LOCKTYPE"),
            State::Held(hold) if hold.owner == owner => self.reenter(key, hold, acquire),
            State::Held(_) if block != Block::ForEver => {
                if block == Block::Briefly {
                    self.wait_until_timeout(conn, acquire);
                }
                self.shaped(key, acquire.with_holder, Expect::Nil)
            }
            State::Held(_) => return self.park(conn, acquire),
            State::Absent | State::Bare => {
                let token = self.grant(key, owner, acquire.lease);
                self.shaped(key, acquire.with_holder, token)
            }
        };
        self.answers.push((conn, answer));
    }

    fn reenter(&mut self, key: Key, mut hold: Hold, acquire: Acquire) -> Expect {
        hold.count += i64::from(!acquire.once);
        hold.lease = Some(
            hold.lease
                .map_or(acquire.lease, |now| now.max(acquire.lease)),
        );
        let token = match hold.grant {
            Some(grant) => Expect::Same(grant),
            None => {
                hold.grant = Some(self.new_grant());
                Expect::Fresh(self.grants)
            }
        };
        self.states[key] = State::Held(hold);
        self.shaped(key, acquire.with_holder, token)
    }

    fn new_grant(&mut self) -> Grant {
        self.grants += 1;
        self.grants
    }

    /// A new hold; the owner's place, with or without a request, is removed.
    fn grant(&mut self, key: Key, owner: Owner, lease: Lease) -> Expect {
        let grant = self.new_grant();
        self.queues[key].retain(|place| place.owner != owner);
        self.states[key] = State::Held(Hold {
            owner,
            count: 1,
            lease: Some(lease),
            grant: Some(grant),
        });
        Expect::Fresh(grant)
    }

    fn shaped(&self, key: Key, with_holder: bool, answer: Expect) -> Expect {
        match with_holder && !matches!(answer, Expect::Error(_)) {
            true => {
                let holder = self.holder(key).map(|hold| (hold.owner, hold.count));
                Expect::WithHolder(Box::new(answer), holder)
            }
            false => answer,
        }
    }

    fn answer(&mut self, key: Key, request: Request, answer: Expect) {
        let answer = self.shaped(key, request.with_holder, answer);
        self.answers.push((request.conn, answer));
    }

    /// Takes over the owner's own place, or appends one.
    fn park(&mut self, conn: Conn, acquire: Acquire) {
        let Acquire { key, owner, .. } = acquire;
        let request = Request {
            conn,
            lease: acquire.lease,
            with_holder: acquire.with_holder,
        };
        let own = self.queues[key].iter_mut().find(|p| p.owner == owner);
        match own.map(|place| place.request.replace(request)) {
            Some(Some(older)) => self.answer(key, older, Expect::Nil),
            Some(None) => {}
            None => self.queues[key].push(Place {
                owner,
                request: Some(request),
            }),
        }
    }

    /// A wait whose time ends leaves a kept place.
    fn wait_until_timeout(&mut self, conn: Conn, acquire: Acquire) {
        self.park(conn, acquire);
        self.vacate(acquire.key, conn, self.keeps_places);
    }

    fn place_of(&self, key: Key, conn: Conn) -> Option<usize> {
        let is_of = |place: &Place| place.request.is_some_and(|request| request.conn == conn);
        self.queues[key].iter().position(is_of)
    }

    fn vacate(&mut self, key: Key, conn: Conn, keep: bool) -> Option<Request> {
        let place = self.place_of(key, conn)?;
        let request = self.queues[key][place].request.take();
        if !keep {
            self.queues[key].remove(place);
        }
        request
    }

    fn leave(&mut self, conn: Conn, answer: Option<Expect>, keep: bool) {
        for key in 0..KEYS {
            let request = self.vacate(key, conn, keep);
            if let (Some(request), Some(answer)) = (request, answer.clone()) {
                self.answer(key, request, answer);
            }
        }
    }

    /// The hold that a command with this `TOKEN` concerns, or the reason why there is none.
    fn named(&self, key: Key, names: Names) -> Result<Option<Hold>, Expect> {
        match self.states[key] {
            State::OtherType => Err(Expect::Error("WRONGTYPE")),
            State::OtherHash => Err(Expect::Error("LOCKTYPE")),
            State::Held(hold) => Ok(Some(hold).filter(|hold| match names {
                Names::Nothing => true,
                Names::Present => hold.grant.is_some(),
                Names::Wrong => false,
            })),
            _ => Ok(None),
        }
    }

    fn release(&mut self, key: Key, owner: Owner, all: bool, names: Names) -> Expect {
        let named = match self.named(key, names) {
            Ok(named) => named.filter(|hold| hold.owner == owner),
            Err(error) => return error,
        };
        match named {
            Some(hold) if hold.count > 1 && !all => {
                let count = hold.count - 1;
                self.states[key] = State::Held(Hold { count, ..hold });
                Expect::Int(0)
            }
            Some(_) => {
                self.states[key] = State::Absent;
                Expect::Int(1)
            }
            None => {
                let holds = self.holder(key).is_some_and(|hold| hold.owner == owner);
                if names == Names::Nothing && !holds {
                    self.withdraw(key, owner);
                }
                Expect::Nil
            }
        }
    }

    fn withdraw(&mut self, key: Key, owner: Owner) {
        let place = self.queues[key].iter().position(|p| p.owner == owner);
        let place = place.map(|place| self.queues[key].remove(place));
        if let Some(request) = place.and_then(|place| place.request) {
            self.answer(key, request, Expect::Nil);
        }
    }

    fn renew(&mut self, key: Key, owner: Owner, lease: Lease, names: Names) -> Expect {
        match self.named(key, names) {
            Err(error) => error,
            Ok(Some(mut hold)) if hold.owner == owner => {
                hold.lease = Some(lease);
                if hold.grant.is_none() {
                    hold.grant = Some(self.new_grant());
                }
                self.states[key] = State::Held(hold);
                Expect::Int(1)
            }
            Ok(_) => Expect::Int(0),
        }
    }

    fn break_lock(&mut self, key: Key, names: Names, purge: bool) -> Expect {
        let named = match self.named(key, names) {
            Ok(named) => named,
            Err(error) => return error,
        };
        if purge && (named.is_some() || names == Names::Nothing) {
            for place in std::mem::take(&mut self.queues[key]) {
                if let Some(request) = place.request {
                    self.answer(key, request, Expect::Error("LOCKBROKEN"));
                }
            }
        }
        if named.is_some() {
            self.states[key] = State::Absent;
        }
        Expect::Int(named.is_some().into())
    }

    fn set_ttl(&mut self, key: Key, lease: Option<Lease>) {
        match &mut self.states[key] {
            State::Held(hold) => hold.lease = lease,
            // A key that is no lock may expire.
            state if lease == Some(SHORT) => *state = State::Absent,
            _ => {}
        }
    }

    fn redisson_takes(&mut self, key: Key, owner: Owner, lease: Lease) {
        match &mut self.states[key] {
            State::Held(hold) if hold.owner == owner => {
                hold.count += 1;
                hold.lease = Some(lease);
            }
            state @ State::Absent => {
                *state = State::Held(Hold {
                    owner,
                    count: 1,
                    lease: Some(lease),
                    grant: None,
                });
            }
            _ => {}
        }
    }

    fn redisson_gives(&mut self, key: Key, owner: Owner) {
        match &mut self.states[key] {
            State::Held(hold) if hold.owner == owner => {
                hold.count -= 1;
                hold.lease = Some(600_000);
                if hold.count == 0 {
                    self.states[key] = State::Absent;
                }
            }
            _ => {}
        }
    }

    /// Ends short leases, grants free locks to the first waiter, and sends all waiters of a key that is no lock away.
    fn settle(&mut self, key: Key) {
        loop {
            match self.states[key] {
                State::Held(hold) if hold.lease == Some(SHORT) => self.states[key] = State::Absent,
                State::Held(_) => return,
                State::OtherType => return self.send_away(key, "WRONGTYPE"),
                State::OtherHash => return self.send_away(key, "LOCKTYPE"),
                State::Absent | State::Bare => {
                    let mut places = self.queues[key].iter();
                    let first = places.find_map(|place| Some((place.owner, place.request?)));
                    let Some((owner, request)) = first else {
                        return;
                    };
                    let token = self.grant(key, owner, request.lease);
                    self.answer(key, request, token);
                }
            }
        }
    }

    fn send_away(&mut self, key: Key, code: &'static str) {
        let (live, kept): (Vec<Place>, Vec<Place>) = std::mem::take(&mut self.queues[key])
            .into_iter()
            .partition(|place| place.request.is_some());
        self.queues[key] = kept;
        for request in live.iter().filter_map(|place| place.request) {
            self.answer(key, request, Expect::Error(code));
        }
    }
}
