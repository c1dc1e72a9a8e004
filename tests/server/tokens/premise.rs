//! The exact condition for tokens to rise over a promotion: the new primary has the last horizon, or its clock is less
//! than an hour behind the last token. Both sides of this bound. And the condition for a server that starts without any
//! horizon: its clock is above the last token.

use crate::common::clock::{fake_clock, set_clock};
use crate::common::replica::{follow, wait_until_in_sync, PROMPT_MASTER};
use crate::common::{wait_for, Conn, TestServer};

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;

/// Two servers with clocks of their own, separated after the first grant: the master continues to grant, and nothing of
/// that reaches the replica, which is promoted.
struct Parted {
    master: TestServer,
    promoted: TestServer,
    last: i64,
}

impl Parted {
    fn new() -> Parted {
        let (master, promoted) = (with_clock(), with_clock());
        follow(&promoted, &master);
        let last = grant(&mut master.conn());
        wait_until_in_sync(&promoted, &master);
        assert_eq!(promoted.conn().line("REPLICAOF NO ONE").text(), "OK");
        Parted {
            master,
            promoted,
            last,
        }
    }

    /// The master's clock advances, and it grants; returns whether it stored a new horizon for that.
    fn master_grants_at(&mut self, seconds: i64) -> bool {
        set_clock(&self.master, seconds);
        let mut conn = self.master.conn();
        wait_for_clock(&mut conn, seconds);
        let horizon = |conn: &mut Conn| conn.line("GET redis_lock:horizon").text();
        let before = horizon(&mut conn);
        for _ in 0..20 {
            let token = grant(&mut conn);
            assert!(token > self.last);
            self.last = token;
        }
        horizon(&mut conn) != before
    }

    /// The first token of the promoted server at this time of its clock.
    fn first_of_promoted_at(&self, seconds: i64) -> i64 {
        set_clock(&self.promoted, seconds);
        let mut conn = self.promoted.conn();
        wait_for_clock(&mut conn, seconds);
        grant(&mut conn)
    }
}

fn with_clock() -> TestServer {
    let mut server = TestServer::with(&PROMPT_MASTER);
    server.crash();
    fake_clock(&mut server);
    server.start_again();
    server
}

fn grant(conn: &mut Conn) -> i64 {
    let token = conn.line("LOCK.ACQUIRE k a PX 60000").int();
    assert_eq!(conn.line("LOCK.RELEASE k a").int(), 1);
    token
}

fn wait_for_clock(conn: &mut Conn, seconds: i64) {
    let true_now = || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.unwrap().as_secs() as i64
    };
    wait_for("the clock to be set", || {
        let shown: i64 = conn.line("TIME").list()[0].text().parse().unwrap();
        (shown - true_now() - seconds).abs() < 5
    });
}

#[test]
fn with_the_last_horizon_the_clock_may_be_any_time_behind() {
    let mut parted = Parted::new();
    assert!(
        !parted.master_grants_at(29 * MINUTE),
        "still the first horizon"
    );
    assert!(parted.first_of_promoted_at(-300 * HOUR) > parted.last);
}

#[test]
fn with_a_clock_less_than_an_hour_behind_any_number_of_horizons_may_be_lost() {
    let mut parted = Parted::new();
    for hours in 1..=3 {
        assert!(parted.master_grants_at(hours * HOUR), "a new horizon");
    }
    assert!(parted.first_of_promoted_at(2 * HOUR + MINUTE) > parted.last);
}

/// This is the limit of the guarantee: without either, no server can know the highest token.
#[test]
fn without_the_last_horizon_and_with_a_clock_further_behind_they_can_step_back() {
    let mut parted = Parted::new();
    assert!(parted.master_grants_at(3 * HOUR), "a new horizon");
    let first = parted.first_of_promoted_at(2 * HOUR - MINUTE);
    assert!(first < parted.last, "{first} is above {}", parted.last);
}

/// A server that started from data, and has granted since: for an hour its tokens are ahead of its clock.
fn started_from_data() -> TestServer {
    let mut server = with_clock();
    let mut conn = server.conn();
    grant(&mut conn);
    assert_eq!(conn.line("SAVE").text(), "OK");
    server.crash_and_restart();
    // The hour begins with the first grant: it reads the horizon.
    grant(&mut server.conn());
    server
}

/// The last token of a server by this clock, and its first one when it has lost all data and starts by that clock.
fn last_and_first_without_data(mut server: TestServer, last_at: i64, first_at: i64) -> (i64, i64) {
    let last = last_before_loss(&mut server, last_at, first_at);
    (last, grant(&mut server.conn()))
}

/// The last token of a server by this clock. It starts again without data by that clock.
fn last_before_loss(server: &mut TestServer, last_at: i64, first_at: i64) -> i64 {
    set_clock(server, last_at);
    let mut conn = server.conn();
    wait_for_clock(&mut conn, last_at);
    let last = grant(&mut conn);
    server.crash();
    // Without a snapshot where none was saved.
    let _ = std::fs::remove_file(server.dir().join("dump.rdb"));
    set_clock(server, first_at);
    server.start_again();
    let mut conn = server.conn();
    assert_eq!(conn.line("EXISTS redis_lock:horizon").int(), 0);
    last
}

#[test]
fn without_any_horizon_tokens_rise_if_the_last_ones_were_not_ahead_of_the_clock() {
    let (last, first) = last_and_first_without_data(with_clock(), 0, 0);
    assert!(first > last, "{first} is below {last}");
    let (last, first) = last_and_first_without_data(started_from_data(), 61 * MINUTE, 61 * MINUTE);
    assert!(first > last, "{first} is below {last}");
}

/// These are the limits: a server without any data cannot know that tokens were ahead of the clock.
#[test]
fn without_any_horizon_tokens_step_back_if_the_last_server_had_granted_from_data_for_less_than_an_hour(
) {
    for minutes in [0, 59] {
        let at = minutes * MINUTE;
        let (last, first) = last_and_first_without_data(started_from_data(), at, at);
        assert!(first < last, "{first} is above {last}");
    }
}

#[test]
fn without_any_horizon_tokens_step_back_with_a_clock_set_back() {
    let (last, first) = last_and_first_without_data(with_clock(), 0, -MINUTE);
    assert!(first < last, "{first} is above {last}");
    // While that server ran, its clock was set back: its tokens continued from the later time.
    let server = with_clock();
    let late = {
        set_clock(&server, HOUR);
        let mut conn = server.conn();
        wait_for_clock(&mut conn, HOUR);
        grant(&mut conn)
    };
    let (last, first) = last_and_first_without_data(server, 0, 0);
    assert!(last > late && first < last, "{first} is above {last}");
}

/// The remedy of docs/RELIABILITY.md, "Losses of power".
#[test]
fn a_horizon_that_is_set_by_hand_before_the_first_grant_replaces_a_lost_one() {
    let mut server = started_from_data();
    let last = last_before_loss(&mut server, 0, 0);
    let mut conn = server.conn();
    let seconds: i64 = conn.line("TIME").list()[0].text().parse().unwrap();
    let ahead = (seconds + HOUR) * 1_000_000;
    conn.line(&format!("SET redis_lock:horizon {ahead}"));
    let first = grant(&mut conn);
    assert!(first > last, "{first} is below {last}");
}
