//! The page of a run: the times, the guarantees of each peer, and the limits of the comparison.

use std::io::{self, Write};
use std::process::Command;
use std::time::Instant;

use super::process::said;
use super::works::{Work, WORKS};
use super::{About, Contestant, PEERS, ROUNDS};
use crate::report::{command_line, kernel, wrapped, Section};
use crate::server::cores;
use crate::stats::{quantile, Summary};

/// The whole page, as Markdown.
pub fn of(contestants: &[Contestant], left_out: &[String], load: &str) -> io::Result<String> {
    let Some(base) = contestants
        .first()
        .filter(|one| one.peer.about().name == PEERS[0].0)
    else {
        let nothing = "without the module there is nothing to compare with";
        return Err(io::Error::other(nothing));
    };
    let mut page = format!("# Beside other locks\n\n{}\n", intro(load)?);
    for (index, work) in WORKS.iter().enumerate() {
        let rows = contestants
            .iter()
            .map(|one| row(one.peer.about(), &one.took[index], &base.took[index]));
        page += &timing(*work, rows.collect()).markdown();
    }
    let mut abouts: Vec<&About> = contestants.iter().map(|one| one.peer.about()).collect();
    abouts.dedup_by_key(|about| (about.kept, about.ends));
    page += &promises(&abouts).markdown();
    page += &fairness(left_out, median_sync_us()?).markdown();
    Ok(wrapped(&page))
}

fn intro(load: &str) -> io::Result<String> {
    let date = said(Command::new("date").arg("+%F"))?;
    let system = kernel();
    let pinned = match cores() {
        1 => "one core for the servers and the load".into(),
        cores => format!(
            "{cores} cores, the servers pinned to core 0, the load allowed on {}",
            own_cores()
        ),
    };
    Ok(format!(
        "One lock, taken and handed off, in the module and in servers that are used for locks today. \
         `make bench-peers` measures anew and writes this page: `{}`, {date}, {system}; {pinned}. \
         The load average was {load} before the start.\n\n\
         Microseconds, median and 99th percentile over the samples of {ROUNDS} rounds. In every round \
         each peer does all works, alternately forwards and backwards; a first round is discarded. \
         *Rounds* is the smallest and the largest median of a round; *against the module* the median, over the \
         rounds, of the ratio of the times. **Read the guarantees \
         beside it**: a lock on disk, or on several machines, differs from one in memory.",
        command_line(),
    ))
}

/// The cores that this process may run on: "1", "0-3".
fn own_cores() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.unwrap_or("?").trim().to_string()
}

/// The load of the last minute: whether other programs used the machine, too.
pub fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("?").to_string()
}

fn timing(work: Work, rows: Vec<Vec<String>>) -> Section {
    let text = match work {
        Work::Pair => {
            "One client, one call after the other: both calls with their replies, without contention."
        }
        Work::HandOff(_) => {
            "From the sending of the holder's release to the reading of the next waiter's grant. Before \
             every sample the server confirms that all of them wait."
        }
    };
    let columns = [
        "",
        "median",
        "p99",
        "rounds",
        "against the module",
        "samples",
        "the lock is",
    ];
    Section {
        title: work.title(),
        text: text.into(),
        columns: columns.map(String::from).into(),
        rows,
        remarks: Vec::new(),
        notes: Vec::new(),
        image: None,
    }
}

/// A peer's line for one work, by round and sample, compared with the same rounds of another peer.
fn row(about: &About, took: &[Vec<f64>], base: &[Vec<f64>]) -> Vec<String> {
    let all = took.concat();
    let at = |part| quantile(&all, part).unwrap_or(f64::NAN);
    let medians = |rounds: &[Vec<f64>]| -> Vec<f64> {
        let median = |round: &Vec<f64>| quantile(round, 0.5);
        rounds.iter().filter_map(median).collect()
    };
    let (own, others) = (medians(took), medians(base));
    let ratios: Vec<f64> = own
        .iter()
        .zip(&others)
        .map(|(own, base)| own / base)
        .collect();
    let (rounds, ratio) = match (Summary::of(&own), Summary::of(&ratios)) {
        (Some(own), Some(ratio)) => (
            format!("{:.0} .. {:.0}", own.min, own.max),
            format!("{:.2}", ratio.median),
        ),
        _ => Default::default(),
    };
    vec![
        about.name.into(),
        format!("{:.0}", at(0.5)),
        format!("{:.0}", at(0.99)),
        rounds,
        ratio,
        all.len().to_string(),
        about.kept.into(),
    ]
}

fn promises(peers: &[&About]) -> Section {
    let promise = |about: &&About| {
        let About {
            name,
            version,
            kept,
            copies,
            ends,
            fencing,
        } = about;
        format!(
            "**{name}** ({version}). When granted, the lock is {kept}; {copies}. If its holder stops \
             answering it ends {ends}. Fencing number: {fencing}."
        )
    };
    Section {
        title: "Guarantees".into(),
        text: "All of them grant in the order of asking; the benchmark would hang if they did not."
            .into(),
        columns: Vec::new(),
        rows: Vec::new(),
        remarks: Vec::new(),
        notes: peers.iter().map(promise).collect(),
        image: None,
    }
}

fn fairness(left_out: &[String], sync: f64) -> Section {
    let mut notes: Vec<String> = [
        "Every server is alone: none of them replicates here. etcd and ZooKeeper are made for three \
         or five machines, and then wait for the network and the disks of a majority, too.",
        "Every server has one core. That is all that the module's server can use; etcd, the JVM and \
         PostgreSQL's processes (one per connection) would use more where there are more.",
        "Settings are the defaults, with etcd and ZooKeeper an fsync of every write (the JVM may use \
         512 MB). No lease is kept alive meanwhile: they are long enough.",
        "The clients are this program's own, the same for all: bytes prepared beforehand or nearly \
         so, one blocking socket per session, one thread. A client library costs its own time on top, \
         with each of them.",
        "A pair is two round trips, with ZooKeeper three (create, look at the children, delete). A \
         ZooKeeper client reads the children again after the message of its predecessor's end, and then \
         holds the lock: that round trip is part of the hand-off.",
        "etcd's waiter watches the key before its own, and the watch catches up every 100 ms. If that \
         key goes before, the waiter gets the message at that time. The row *etcd* has all \
         watches ready before every sample (that takes 100 ms, hence the few samples; then three writes \
         of another key, so that the disk is as active as with the others); *just asked* has the lock \
         given back as soon as all keys are in the queue.",
        "PostgreSQL's statements are prepared.",
        "Latency only: the total rate of all clients is not measured.",
    ]
    .map(String::from)
    .into();
    notes.insert(
        3,
        format!(
            "The disk: writing 4 KiB and `fdatasync` took {sync:.0} us (median) after the run."
        ),
    );
    let left_out = left_out.iter().map(|why| format!("Left out: {why}"));
    notes.extend(left_out);
    Section {
        title: "Limits of the comparison".into(),
        text: "No comparison of these is quite fair. The reasons:".into(),
        columns: Vec::new(),
        rows: Vec::new(),
        remarks: Vec::new(),
        notes,
        image: None,
    }
}

/// The time that the disk of the servers' directories takes to store 4 KiB safely.
fn median_sync_us() -> io::Result<f64> {
    let mut file = tempfile::tempfile()?;
    let mut took = Vec::new();
    for _ in 0..100 {
        let start = Instant::now();
        file.write_all(&[1; 4096])?;
        file.sync_data()?;
        took.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(quantile(&took, 0.5).unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: About = About {
        name: "peer",
        version: String::new(),
        kept: "here",
        copies: "",
        ends: "",
        fencing: "",
    };

    #[test]
    fn a_row_compares_round_with_round() {
        let took = [vec![20.0, 30.0, 40.0], vec![60.0]];
        let base = [vec![10.0], vec![20.0]];
        let row = row(&PEER, &took, &base);
        assert_eq!(row, ["peer", "40", "60", "30 .. 60", "3.00", "4", "here"]);
    }

    #[test]
    fn a_row_has_a_cell_for_every_column() {
        let row = row(&PEER, &[], &[]);
        assert_eq!(row.len(), timing(Work::Pair, Vec::new()).columns.len());
    }
}
