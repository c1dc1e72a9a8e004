//! Other replies of the frequent commands: re-entry, renewal, refusal, beside scripts that do the same.

use std::io;

use crate::load::{step, Effort, Step};
use crate::points::{columns, cpu_us, per_s, Points, Work, PIPELINES};
use crate::report::Section;
use crate::scripts::Scripts;
use crate::server::Server;

/// The module's way and the scripts' way, by name.
const PAIRED: [(&str, &str); 4] = [
    ("re-entry: LOCK.ACQUIRE", "re-entry: EVALSHA"),
    ("re-entry: LOCK.ACQUIRE ONCE", "re-entry: EVALSHA"),
    ("renewal: LOCK.RENEW", "renewal: EVALSHA"),
    ("refusal: LOCK.ACQUIRE", "refusal: EVALSHA"),
];

/// The title of the section.
pub const TITLE: &str = "Re-entry, renewal, refusal";

/// Measures them all.
pub fn measure(effort: &Effort) -> io::Result<Vec<Section>> {
    let mut points = Points::default();
    for round in 0..effort.rounds {
        println!("re-entry, renewal, refusal: round {}", round + 1);
        let server = Server::pinned(&[], true)?;
        points.measure(&server, &works(&server)?, round, effort)?;
    }
    let mut rows = Vec::new();
    for pipeline in PIPELINES {
        for (module, scripts) in PAIRED {
            let scripts = points.get(scripts, pipeline)?;
            let module = points.get(module, pipeline)?;
            let mut row = module.cells();
            row.push(format!("{:.1}k", scripts.summary(per_s).median / 1_000.0));
            row.push(format!("{:.2}", scripts.summary(cpu_us).median));
            row.push(format!("{:.2}", module.ratio(scripts, per_s)));
            row.push(format!("{:.2}", module.ratio(scripts, cpu_us)));
            rows.push(row);
        }
    }
    Ok(vec![Section {
        title: TITLE.into(),
        text: "One command each, on locks that are held: by the caller, or for the refusal by another owner. No \
               AOF, no replica."
            .into(),
        columns: columns(
            "what",
            "command",
            &["EVALSHA/s", "EVALSHA µs", "commands/s : EVALSHA", "µs : EVALSHA"],
        ),
        rows,
        remarks: vec![points.busy()],
        notes: vec![
            "Re-entries are not released: the hold counts grow, for the module as for the script. With ONCE \
             nothing is counted; its peer is the script that counts."
                .into(),
            "The script's refusal replies the holder's time to live, the module's nil.".into(),
        ],
        image: None,
    }])
}

fn works(server: &Server) -> io::Result<Vec<Work>> {
    let scripts = Scripts::load(server)?;
    let acquire = |owner, reply| step(&["LOCK.ACQUIRE", "{k}", owner, "PX", "30000"], reply);
    let once = step(&["LOCK.ACQUIRE", "{k}", "{o}", "PX", "30000", "ONCE"], ":");
    let renew = step(&["LOCK.RENEW", "{k}", "{o}", "PX", "30000"], ":1");
    let own = || vec![acquire("{o}", ":")];
    let others = || vec![acquire("{p}", ":")];
    let work = |name, prepare: Vec<Step>, step| Work {
        name,
        prepare,
        steps: vec![step],
    };
    Ok(vec![
        work(PAIRED[0].0, own(), acquire("{o}", ":")),
        work(PAIRED[0].1, own(), scripts.take("$-1")),
        work(PAIRED[1].0, own(), once),
        work(PAIRED[2].0, own(), renew),
        work(PAIRED[2].1, own(), scripts.renew()),
        work(PAIRED[3].0, others(), acquire("{o}", "$-1")),
        work(PAIRED[3].1, others(), scripts.take(":")),
    ])
}
