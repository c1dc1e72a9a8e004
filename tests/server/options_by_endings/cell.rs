//! A cell of the table: a form that waits between a holder and another waiter, the steps that endings are made of, and
//! what must hold at the end.

use crate::common::{wait_for, Conn, Reply, TestServer};
use crate::options_by_endings::forms::{self, Form, Kind};

/// The hash tag of all keys and of the channel: in a cluster they are in one slot.
pub const TAG: &str = "{cell}";

/// The user of the request under test, and the owners.
const USER: &str = "tester";
pub const HOLDER: &str = "holder";
pub const OWNER: &str = "owner";
const NEXT: &str = "next";

/// How long a place is kept, in milliseconds: some cells outlast it, each ends after it.
const GRACE: &str = "2";

/// The server of a row, and the connections of all its cells.
pub struct Table {
    pub server: TestServer,
    pub admin: Conn,
    is_cluster: bool,
    cells: usize,
}

/// What the client of a request gets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Outcome {
    Granted,
    /// Nil, or `timeout`; of a latch 0.
    TimedOut,
    /// The same, of which a ticket gets no message.
    Withdrawn,
    /// An error, or `failed`, with this code for parked clients, and this one for tickets.
    Failed(&'static str, &'static str),
    /// The connection is closed; a ticket gets no message.
    Gone,
}

/// The same code for parked clients and tickets.
pub fn failed(code: &'static str) -> Outcome {
    Outcome::Failed(code, code)
}

impl Table {
    pub fn new() -> Table {
        let options = [
            "--lock.queue-grace",
            GRACE,
            "--lock.final-time",
            "1",
            "--hz",
            "200",
        ];
        // No windows for clients that poll: they put off grants beside strings.
        let options = [&options[..], &["--lock.free-after", "0"]].concat();
        Table::on(TestServer::with(&options), false)
    }

    /// On this node of a cluster, which has `lock.string-holders`.
    pub fn of_cluster(node: TestServer) -> Table {
        Table::on(node, true)
    }

    fn on(server: TestServer, is_cluster: bool) -> Table {
        let admin = server.conn();
        Table {
            server,
            admin,
            is_cluster,
            cells: 0,
        }
    }

    pub fn forms(&mut self) -> Vec<Form> {
        forms::all(&mut self.admin)
    }

    /// A connection of the user under test, which may do everything, and its id.
    fn login(&mut self) -> (Conn, i64) {
        let line = format!("ACL SETUSER {USER} reset on nopass ~* &* +@all");
        assert_eq!(self.admin.line(&line).text(), "OK");
        let mut conn = self.server.conn();
        assert_eq!(conn.line(&format!("AUTH {USER} any")).text(), "OK");
        let id = conn.id();
        (conn, id)
    }

    /// A cell whose clients are connected.
    pub fn cell<'a>(&'a mut self, form: &'a Form) -> Cell<'a> {
        self.cells += 1;
        if !self.is_cluster {
            let strings = if form.is_behind_string { "yes" } else { "no" };
            self.admin
                .line(&format!("CONFIG SET lock.string-holders {strings}"));
        }
        let (asker, asker_id) = self.login();
        let mut subscriber = self.server.conn();
        let subscribe = if self.is_cluster {
            "SSUBSCRIBE"
        } else {
            "SUBSCRIBE"
        };
        subscriber.line(&format!("{subscribe} {TAG}channel"));
        Cell {
            form,
            key: format!("{TAG}:{}", self.cells),
            asker,
            asker_id,
            subscriber: Some(subscriber),
            next: self.server.conn(),
            does_next_wait: false,
            others: Vec::new(),
            table: self,
        }
    }
}

/// One form, and one ending.
pub struct Cell<'a> {
    pub table: &'a mut Table,
    pub form: &'a Form,
    key: String,
    /// The client of the request under test.
    pub asker: Conn,
    pub asker_id: i64,
    pub subscriber: Option<Conn>,
    /// A parked client behind it.
    next: Conn,
    does_next_wait: bool,
    /// Connections that stay open until the end.
    pub others: Vec<Conn>,
}

impl Cell<'_> {
    /// The first key. (Braces: the keys beside it are in its slot.)
    pub fn key(&self) -> String {
        format!("{}:a", self.key)
    }

    /// The second key of requests for many.
    pub fn second(&self) -> String {
        format!("{}:b", self.key)
    }

    /// Runs a line as the administrator; `$K` is the key.
    pub fn run(&mut self, line: &str) -> Reply {
        let line = line
            .replace("$K", &self.key())
            .replace("$L", &self.second());
        self.table.admin.line(&line)
    }

    /// Runs a script as the administrator.
    pub fn run_script(&mut self, script: &str) -> Reply {
        let script = script
            .replace("$K", &self.key())
            .replace("$L", &self.second());
        self.table.admin.run(["EVAL", &script, "0"])
    }

    /// The keys beside the locks or the permits, for a `DEL`.
    pub fn beside(&self) -> String {
        let names = ["timeout", "rwlock_token", "owner:rwlock_timeout:1"];
        let keys = [self.key(), self.second()];
        let each = keys
            .iter()
            .flat_map(|key| names.map(|name| format!("{key}:{name}")));
        each.collect::<Vec<_>>().join(" ")
    }

    /// Waits until the connection of the request under test has ended.
    pub fn wait_until_gone(&mut self) {
        let line = format!("CLIENT LIST ID {}", self.asker_id);
        wait_for("the end of the connection", || {
            self.run(&line).text().is_empty()
        });
    }

    /// Runs these lines as one transaction.
    pub fn run_at_once(&mut self, lines: &[&str]) -> Vec<Reply> {
        self.run("MULTI");
        for line in lines {
            assert_eq!(self.run(line).text(), "QUEUED", "{line}");
        }
        self.run("EXEC").list()
    }

    /// The mode of those who wait before and behind.
    fn mode(&self) -> &'static str {
        match self.form.has_mode() {
            true => " WRITE",
            false => "",
        }
    }

    /// The holder takes it.
    pub fn take(&mut self) {
        let line = match self.form.kind {
            _ if self.form.is_behind_string => "SET $K value PX 600000".into(),
            Kind::Lock | Kind::Many => {
                format!("LOCK.ACQUIRE $K {HOLDER} PX 600000{}", self.mode())
            }
            Kind::Semaphore => {
                let permits = self.permits();
                format!("SEM.ACQUIRE $K {HOLDER} COUNT {permits} LIMIT {permits} PX 600000")
            }
            Kind::Latch => "LATCH.SET $K 1".into(),
        };
        let taken = self.run(&line);
        assert!(!taken.is_nil() && !taken.is_error(), "{line}: {taken:?}");
    }

    /// The permits of the semaphore: as many as the request under test asks for.
    fn permits(&self) -> usize {
        1 + usize::from(self.form.has("COUNT"))
    }

    /// The line by which the holder gives it back.
    pub fn giving(&self) -> String {
        match self.form.kind {
            _ if self.form.is_behind_string => "DEL $K".into(),
            Kind::Lock | Kind::Many => format!("LOCK.RELEASE $K {HOLDER}"),
            Kind::Semaphore => format!("SEM.RELEASE $K {HOLDER}"),
            Kind::Latch => "LATCH.DOWN $K".into(),
        }
    }

    /// Makes the semaphore again, which is gone with its key.
    pub fn make_semaphore(&mut self) {
        if self.form.kind == Kind::Semaphore {
            self.run(&format!("SEM.SET $K {}", self.permits()));
        }
    }

    /// The holder gives it back.
    pub fn give(&mut self) {
        let line = self.giving();
        assert!(!self.run(&line).is_error(), "{line}");
    }

    /// The line by which this owner releases, or withdraws.
    pub fn releasing(&self, owner: &str) -> String {
        match self.form.kind {
            Kind::Lock => format!("LOCK.RELEASE $K {owner}"),
            Kind::Many => format!("LOCK.MRELEASE 2 $K $L {owner}"),
            Kind::Semaphore => format!("SEM.RELEASE $K {owner}"),
            Kind::Latch => panic!("a latch has no owners"),
        }
    }

    /// The line with which this owner asks, without options.
    pub fn asking(&self, kind: Kind, owner: &str) -> String {
        match kind {
            Kind::Lock => format!("LOCK.ACQUIRE $K {owner}"),
            Kind::Many => format!("LOCK.MACQUIRE 2 $K $L {owner}"),
            Kind::Semaphore => format!("SEM.ACQUIRE $K {owner}"),
            Kind::Latch => "LATCH.WAIT $K".into(),
        }
    }

    /// The request under test, by this command.
    pub fn request(&self, kind: Kind, block: &str) -> String {
        let options = self.form.options.iter().flatten();
        let options = options.map(|word| format!(" {word}")).collect::<String>();
        let notify = match self.form.is_ticket {
            true => " NOTIFY {cell}channel tag",
            false => "",
        };
        let line = format!(
            "{}{options} BLOCK {block}{notify}",
            self.asking(kind, OWNER)
        );
        line.replace("$K", &self.key())
            .replace("$L", &self.second())
    }

    /// Whether its form is that of a reply with the holder.
    fn first_of(&self, reply: Reply) -> Reply {
        match self.form.has("WITHHOLDER") && reply.is_array() {
            true => reply.list().remove(0),
            false => reply,
        }
    }

    fn waits(&mut self) -> u64 {
        let info = self.table.admin.line("INFO lock").text();
        let kinds = ["waiters", "sem_waiters", "latch_waiters", "tickets"];
        kinds
            .iter()
            .map(|name| crate::common::stat_in(&info, name))
            .sum()
    }

    pub fn wait_for_waits(&mut self, count: u64) {
        wait_for(&format!("{count} waits"), || self.waits() == count);
    }

    /// Sends the request under test, and waits until it waits.
    pub fn ask(&mut self, block: &str) {
        let before = self.waits();
        let line = self.request(self.form.kind, block);
        self.asker.send_line(&line);
        if self.form.is_ticket {
            self.expect_queued();
        } else if block == "0" {
            self.wait_for_waits(before + 1);
        }
    }

    pub fn expect_queued(&mut self) {
        let queued = self.asker.recv();
        assert!(!queued.is_error(), "{queued:?}");
        assert_eq!(self.first_of(queued).text(), "QUEUED");
    }

    /// The request is granted at once.
    pub fn ask_for_free(&mut self) {
        let line = self.request(self.form.kind, "0");
        let reply = self.asker.line(&line);
        let reply = self.first_of(reply);
        assert!(is_granted(&reply), "{line}: {reply:?}");
    }

    /// Another client asks, and parks behind.
    pub fn next_asks(&mut self) {
        let before = self.waits();
        let limit = if self.form.kind == Kind::Semaphore {
            format!(" LIMIT {}", self.permits())
        } else {
            String::new()
        };
        let line = format!(
            "{}{}{limit} BLOCK 0",
            self.asking(self.form.kind, NEXT),
            self.mode()
        );
        let line = line
            .replace("$K", &self.key())
            .replace("$L", &self.second());
        self.next.send_line(&line);
        self.wait_for_waits(before + 1);
        self.does_next_wait = true;
    }

    /// A holder, the request under test, and one behind it.
    pub fn queue(&mut self) {
        self.take();
        self.ask("0");
        self.next_asks();
    }

    /// The next message of the channel.
    pub fn message(&mut self) -> String {
        let message = self.subscriber.as_mut().expect("a subscriber").recv();
        message.list()[2].text()
    }

    /// Asserts what the client of the request under test gets.
    pub fn expect(&mut self, outcome: Outcome) {
        self.expect_by(self.form.is_ticket, outcome);
    }

    /// The same by a message, or by a reply.
    pub fn expect_by(&mut self, is_ticket: bool, outcome: Outcome) {
        if !is_ticket {
            return self.expect_reply(outcome);
        }
        match outcome {
            Outcome::Granted => {
                let message = self.message();
                assert!(
                    message.starts_with("granted ") && message.ends_with(" tag"),
                    "{message}"
                );
            }
            Outcome::TimedOut => assert_eq!(self.message(), "timeout tag"),
            Outcome::Failed(_, code) => assert_eq!(self.message(), format!("failed {code} tag")),
            Outcome::Withdrawn | Outcome::Gone => {}
        }
    }

    fn expect_reply(&mut self, outcome: Outcome) {
        if outcome == Outcome::Gone {
            return assert!(self.asker.is_closed());
        }
        let reply = self.asker.recv();
        let reply = match outcome {
            Outcome::Failed(..) => reply,
            _ => self.first_of(reply),
        };
        check(self.form, &reply, outcome);
    }

    /// Asserts what the client behind gets.
    pub fn expect_next(&mut self, outcome: Outcome) {
        let reply = self.next.recv();
        check(self.form, &reply, outcome);
        self.does_next_wait = false;
    }

    /// Asserts that the owner is the only holder.
    pub fn expect_only_holder(&mut self, owner: &str) {
        match self.form.kind {
            Kind::Latch => {}
            Kind::Semaphore => {
                let held = self.run("SEM.INFO $K").field("held").expect("a number");
                let permits = if owner == NEXT { 1 } else { self.permits() };
                assert_eq!(held.int(), permits as i64);
            }
            Kind::Lock | Kind::Many => {
                let holders = self.run("LOCK.INFO $K").field("holders").expect("holders");
                let owners: Vec<_> = holders
                    .list()
                    .iter()
                    .map(|holder| holder.field("owner").expect("an owner").text())
                    .collect();
                assert_eq!(owners, [owner]);
            }
        }
    }

    /// The request under test was granted: only its owner holds the lock. It is released, to the one behind.
    pub fn release(&mut self) {
        if self.form.holds() {
            self.expect_only_holder(OWNER);
            let line = self.releasing(OWNER);
            assert!(self.run(&line).int() > 0, "{line}");
        }
    }

    /// The holder gives it back: the request under test is granted, and ends.
    pub fn give_and_pass_on(&mut self) {
        self.give();
        self.expect(Outcome::Granted);
        self.release();
    }

    /// What an ending of the first key has left of a request for two.
    pub fn end_second(&mut self, end: impl FnOnce(&mut Self)) {
        if self.form.kind == Kind::Many {
            end(self);
        }
    }

    /// The one behind is granted it, if it still waits, and releases it.
    pub fn pass_on(&mut self) {
        if std::mem::take(&mut self.does_next_wait) {
            let reply = self.next.recv();
            check(self.form, &reply, Outcome::Granted);
            if self.form.holds() {
                self.expect_only_holder(NEXT);
                let line = self.releasing(NEXT);
                assert!(self.run(&line).int() > 0, "{line}");
            }
        }
    }

    /// The same; then all clients are new, and nothing is held.
    pub fn pass_on_and_reconnect(&mut self) {
        self.pass_on();
        (self.asker, self.asker_id) = self.table.login();
        self.next = self.table.server.conn();
    }

    /// Leaves the cell while its clients wait.
    pub fn leave(self) -> Clients {
        Clients {
            asker: self.asker,
            next: self.next,
            _subscriber: self.subscriber,
        }
    }

    /// What is left of the cell ends. Then everything is at rest.
    pub fn finish(mut self) {
        self.pass_on();
        if self.form.kind == Kind::Semaphore {
            // All permits are free again, and their number stays.
            if self.run("EXISTS $K").int() == 1 {
                let line = format!("SEM.ACQUIRE $K all COUNT {}", self.permits());
                let all = self.run(&line);
                assert!(!all.is_nil() && !all.is_error(), "{line}: {all:?}");
                assert_eq!(self.run("SEM.RELEASE $K all").int(), 1);
            }
            self.run("DEL $K");
        }
        let Cell {
            table,
            form,
            asker,
            subscriber,
            next,
            others,
            ..
        } = self;
        drop((asker, subscriber, next, others));
        let Table { server, admin, .. } = table;
        let rest = server.is_at_rest(admin);
        assert!(rest.is_ok(), "{form:?}: {}", rest.unwrap_err());
        server.check_counters();
    }
}

/// The clients of a cell that has been left while they wait.
pub struct Clients {
    asker: Conn,
    next: Conn,
    _subscriber: Option<Conn>,
}

impl Clients {
    pub fn expect_reply(&mut self, form: &Form, outcome: Outcome) {
        check(form, &self.asker.recv(), outcome);
    }

    pub fn expect_next(&mut self, form: &Form, outcome: Outcome) {
        check(form, &self.next.recv(), outcome);
    }
}

/// Whether a reply is a token, tokens, or the 1 of a latch.
fn is_granted(reply: &Reply) -> bool {
    match reply.is_array() {
        true => reply.list().iter().all(|token| token.int() > 0),
        false => reply.maybe_int().is_some_and(|token| token > 0),
    }
}

fn check(form: &Form, reply: &Reply, outcome: Outcome) {
    let is_it = match outcome {
        Outcome::Granted => is_granted(reply),
        Outcome::TimedOut | Outcome::Withdrawn => match form.kind {
            Kind::Latch => reply.maybe_int() == Some(0),
            _ => reply.is_nil(),
        },
        Outcome::Failed(code, _) => reply.is_error() && reply.error().starts_with(code),
        Outcome::Gone => false,
    };
    assert!(is_it, "{form:?}: {reply:?} instead of {outcome:?}");
}
