//! What the files of `ops/` say.

use std::collections::BTreeSet;

use redis_lock_harness::page;
use serde_json::Value;

/// A query of the dashboard.
#[derive(Debug, Clone)]
pub struct Query {
    /// The title of its panel.
    pub panel: String,
    /// The unit of its panel, in the words of Grafana.
    pub unit: String,
    /// The name of its line; a template when it is in braces.
    pub legend: String,
    /// The expression, with Grafana's variables.
    pub expr: String,
}

/// The dashboard.
pub fn dashboard() -> Value {
    serde_json::from_str(&page::text("ops/redis-lock.dashboard.json")).expect("JSON")
}

/// The panels that have queries.
pub fn panels(dashboard: &Value) -> Vec<&Value> {
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    panels.filter(|panel| panel["type"] != "row").collect()
}

/// All queries of the dashboard.
pub fn queries(dashboard: &Value) -> Vec<Query> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let mut queries = Vec::new();
    for panel in panels(dashboard) {
        for target in panel["targets"].as_array().expect("targets") {
            queries.push(Query {
                panel: text(&panel["title"]),
                unit: text(&panel["fieldConfig"]["defaults"]["unit"]),
                legend: text(&target["legendFormat"]),
                expr: text(&target["expr"]),
            });
        }
    }
    queries
}

/// The metrics of the module that a text names, less the `redis_` before them.
pub fn named(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_part(c));
    let names = words.filter_map(|word| word.strip_prefix("redis_"));
    let ours = names.filter(|name| name.starts_with("lock_") && *name != "lock_");
    ours.map(ToString::to_string).collect()
}

/// The script in `telegraf.conf`.
pub fn telegraf_script() -> String {
    let conf = page::text("ops/telegraf.conf");
    let script = conf.split("\"\"\"").nth(1).expect("a script");
    script.replace("\\\\", "\\")
}

/// `telegraf.conf` for a server at this port, with an output.
pub fn telegraf_config(port: u16) -> String {
    const AGENT: &str = "\n[agent]\n  omit_hostname = true\n";
    const OUTPUT: &str = "[[outputs.file]]\n  files = [\"stdout\"]\n  data_format = \"influx\"\n";
    let conf = page::text("ops/telegraf.conf");
    assert!(conf.contains("localhost:6379"));
    let conf = conf.replace("localhost:6379", &format!("127.0.0.1:{port}"));
    [&conf, AGENT, OUTPUT].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_panel_explains_itself() {
        let dashboard = dashboard();
        let mut ids = BTreeSet::new();
        for panel in dashboard["panels"].as_array().expect("panels") {
            assert!(ids.insert(panel["id"].as_u64()), "{panel}: its id is taken");
        }
        for panel in panels(&dashboard) {
            for part in ["title", "description", "datasource", "gridPos"] {
                assert!(!panel[part].is_null(), "{part} of {panel}");
            }
            let unit = &panel["fieldConfig"]["defaults"]["unit"];
            assert!(unit.is_string(), "the unit of {panel}");
        }
    }

    #[test]
    fn no_two_panels_overlap() {
        let dashboard = dashboard();
        let mut taken = BTreeSet::new();
        for panel in dashboard["panels"].as_array().expect("panels") {
            let at = |part: &str| panel["gridPos"][part].as_u64().expect("a number");
            assert!(at("x") + at("w") <= 24, "{panel}");
            for x in at("x")..at("x") + at("w") {
                for y in at("y")..at("y") + at("h") {
                    assert!(taken.insert((x, y)), "{panel}");
                }
            }
        }
    }

    #[test]
    fn every_query_is_limited_to_the_chosen_servers() {
        for query in queries(&dashboard()) {
            let selectors = query.expr.matches('{').count();
            let limited = query
                .expr
                .matches("{job=~\"$job\", instance=~\"$instance\"");
            assert!(selectors > 0 && selectors == limited.count(), "{query:?}");
            let rates = query.expr.matches("rate(").count();
            let intervals = query.expr.matches("[$__rate_interval]").count();
            assert_eq!(rates, intervals, "{query:?}");
        }
    }

    /// promtool runs these tests; here: that no alert is without them.
    #[test]
    fn every_alert_has_a_test_that_raises_it_and_one_that_does_not() {
        let (rules, tests) = (
            page::text("ops/redis-lock.rules.yml"),
            page::text("ops/redis-lock.rules.test.yml"),
        );
        let operations = page::text("docs/OPERATIONS.md");
        let alerts = rules
            .lines()
            .filter_map(|line| line.trim().strip_prefix("- alert: "));
        let mut count = 0;
        for alert in alerts {
            count += 1;
            let name = format!("alertname: {alert}\n");
            let after: Vec<_> = tests.split(&name).skip(1).collect();
            let quiet = |text: &&&str| text.trim_start().starts_with("exp_alerts: []");
            let silent = after.iter().filter(quiet).count();
            assert!(silent > 0 && silent < after.len(), "{alert}");
            assert!(
                operations.contains(&format!("`{alert}`")),
                "{alert} in docs/OPERATIONS.md"
            );
        }
        assert!(count > 0);
    }

    #[test]
    fn names_are_found_in_expressions() {
        let expr = "sum(rate(redis_lock_busy{a=\"b\"}[5m])) + redis_up + redis_lock_sem_busy";
        let names: Vec<_> = named(expr).into_iter().collect();
        assert_eq!(names, ["lock_busy", "lock_sem_busy"]);
    }
}
