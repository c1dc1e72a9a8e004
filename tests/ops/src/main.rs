//! `make test-ops`: the files of `ops/` with Debian's exporter and Prometheus and a server under load.
//!
//! Prometheus scrapes the exporter by `ops/prometheus.yml` (the target, the interval and the path of the rules are
//! replaced) while clients use every command. Then every query of the dashboard must have data, every rule must be
//! evaluated without an error, and every figure of `INFO lock` must be in Prometheus under its name. With `--save` the
//! results of the queries are written to `tests/ops/figures.json`, from which docs/dashboard.svg is drawn.

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod files;
mod http;
mod load;
mod scene;

use std::collections::BTreeSet;
use std::time::Duration;

use redis_lock_harness::page;
use serde_json::{json, Value};

use crate::files::Query;
use crate::scene::Scene;

/// Figures that this load does not move: bugs, failures, races, and Redisson's clients.
const UNMOVED: [&str; 9] = [
    "redis_lock_panics_total",
    "redis_lock_replication_failures_total",
    "redis_lock_writes_refused_total",
    "redis_lock_horizons_implausible_total",
    "redis_lock_session_losses_total",
    "redis_lock_grants_undone_total",
    "redis_lock_tickets_failed_total",
    "redis_lock_tickets_unheard_total",
    "redis_lock_windows_total",
];

/// The time of the load. Rates are over ten seconds, with a scrape each second.
const LOAD: Duration = Duration::from_secs(40);
const RATE: &str = "10s";

fn main() {
    let save = std::env::args().any(|arg| arg == "--save");
    let scene = Scene::start();
    let fields = scene.fields();
    scene.exporter_has(&fields);
    scene.telegraf_has(&fields);
    scene.telegraf_sends(&fields);
    eprintln!(
        "lock-ops: {} figures, {} s of load",
        fields.len(),
        LOAD.as_secs()
    );
    let (from, to) = load::run(&scene, LOAD);
    scene.prometheus_has();
    scene.rules_are_evaluated();
    let figures = figures(&scene, (from, to));
    if save {
        let text = serde_json::to_string(&figures).expect("JSON") + "\n";
        let path = page::root().join("tests/ops/figures.json");
        redis_lock_harness::replace_file(&path, text.as_bytes()).expect("tests/ops/figures.json");
    }
    println!("lock-ops: the exporter, the rules and the dashboard agree with INFO lock");
}

/// Runs every query of the dashboard.
///
/// # Panics
/// When one has no data, or only zeros though the load moves its figures, or names an unknown figure.
fn figures(scene: &Scene, (from, to): (f64, f64)) -> Value {
    let known = scene.metrics();
    let mut panels: Vec<Value> = Vec::new();
    let mut faults = Vec::new();
    for query in files::queries(&files::dashboard()) {
        let lines = match scene.range(&expression(&query), (from, to)) {
            Ok(lines) => lines,
            Err(error) => {
                faults.push(format!("{query:?}: {error}"));
                continue;
            }
        };
        if let Some(fault) = fault(&query, &lines, &known) {
            faults.push(format!("{}: {fault}: {}", query.panel, query.expr));
        }
        let panel = panels
            .iter()
            .position(|panel| panel["title"] == query.panel.as_str());
        let panel = panel.unwrap_or_else(|| {
            panels.push(json!({"title": query.panel, "unit": query.unit, "lines": []}));
            panels.len() - 1
        });
        let shown = panels[panel]["lines"].as_array_mut().expect("lines");
        for (labels, points) in lines {
            let name = match query.legend.strip_prefix("{{") {
                Some(label) => labels[label.trim_end_matches('}')]
                    .as_str()
                    .unwrap_or_default(),
                None => &query.legend,
            };
            let points: Vec<_> = points
                .iter()
                .map(|(at, value)| json!([(at - from).round(), rounded(*value)]))
                .collect();
            shown.push(json!({"name": name, "points": points}));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    json!({"server": scene.server_name(), "seconds": to - from, "panels": panels})
}

/// Four significant digits: the figures are for a picture.
fn rounded(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let unit = 10_f64.powi(3 - value.abs().log10().floor() as i32);
    (value * unit).round() / unit
}

fn expression(query: &Query) -> String {
    let expr = query.expr.replace("$__rate_interval", RATE);
    expr.replace("$job", ".+").replace("$instance", ".+")
}

/// What is wrong with the result of a query.
fn fault(
    query: &Query,
    lines: &[scene::Series],
    known: &BTreeSet<scene::Metric>,
) -> Option<String> {
    let named = files::named(&query.expr);
    let is_known = |name: &&String| known.iter().any(|metric| metric.0 == **name);
    if let Some(unknown) = named.iter().find(|name| !is_known(name)) {
        return Some(format!("no figure of INFO lock is {unknown}"));
    }
    let values = || lines.iter().flat_map(|(_, points)| points);
    if values().next().is_none() {
        return Some("no data".into());
    }
    let is_still = |name: &String| UNMOVED.contains(&name.as_str());
    let may_be_zero = !named.is_empty() && named.iter().any(is_still);
    let is_zero = values().all(|(_, value)| *value == 0.0);
    (is_zero && !may_be_zero).then(|| "only zeros".into())
}
