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

/// The metrics of the module that a text names.
pub fn named(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_part(c));
    let ours = words.filter(|name| name.starts_with("redis_lock_") && *name != "redis_lock_");
    ours.map(ToString::to_string).collect()
}

/// The name that a figure of `INFO lock` has in Prometheus, with the bound of a histogram's bucket: in seconds, and a
/// counter ends with `_total`. The gauges are those of the first table of `INFO lock` in docs/COMMANDS.md.
pub fn metric(field: &str, gauges: &BTreeSet<String>) -> (String, Option<String>) {
    if let Some((name, bound)) = field.split_once("_ms_le_") {
        let seconds = bound
            .parse()
            .map(|ms: u32| (f64::from(ms) / 1_000.0).to_string());
        let bound = seconds.unwrap_or_else(|_| "+Inf".into());
        return (format!("redis_{name}_seconds_bucket"), Some(bound));
    }
    let ending = if field.contains("_ms") || gauges.contains(field) {
        ""
    } else {
        "_total"
    };
    let name = field.replace("_ms", "_seconds");
    (format!("redis_{name}{ending}"), None)
}

/// The gauges of docs/COMMANDS.md.
pub fn gauges() -> BTreeSet<String> {
    let page = page::text("docs/COMMANDS.md");
    let section = page.split("\n## INFO lock\n").nth(1).expect("INFO lock");
    let table = section.split("Counters since").next().unwrap_or_default();
    let cells = table.lines().filter_map(|line| line.split('|').nth(1));
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    names.map(|name| format!("lock_{name}")).collect()
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
            let anchor = alert.to_lowercase();
            assert!(
                operations.contains(&format!("<a id=\"{anchor}\"></a>`{alert}`")),
                "{alert} in docs/OPERATIONS.md"
            );
            let rule = rules.split(&format!("- alert: {alert}\n")).nth(1);
            let rule = rule.unwrap_or_default().split("- alert: ").next();
            let runbook =
                format!("runbook_url: https://redis-lock.invalid/docs/OPERATIONS.html#{anchor}\n");
            assert!(rule.unwrap_or_default().contains(&runbook), "{alert}");
        }
        assert!(count > 0);
    }

    #[test]
    fn the_containers_have_the_user_of_the_page_and_files_that_exist() {
        let operations = page::text("docs/OPERATIONS.md");
        let user = operations
            .lines()
            .find_map(|line| line.trim().strip_prefix("ACL SETUSER exporter "));
        let user = format!("\nuser exporter {}\n", user.expect("a user"));
        assert!(page::text("packaging/compose/server.conf").contains(&user));
        let compose = page::text("packaging/compose/compose.yaml");
        let mounted = compose.lines().filter_map(|line| line.split_once("./"));
        for path in mounted.filter_map(|(_, rest)| rest.split_once(':')) {
            let (directory, name) = ("packaging/compose", path.0.trim_start_matches("../"));
            let inside = page::root().join(directory).join(name).exists();
            assert!(inside || page::root().join(name).exists(), "{name}");
        }
    }

    #[test]
    fn names_are_found_in_expressions() {
        let expr = "sum(rate(redis_lock_busy{a=\"b\"}[5m])) + redis_up + redis_lock_sem_busy";
        let names: Vec<_> = named(expr).into_iter().collect();
        assert_eq!(names, ["redis_lock_busy", "redis_lock_sem_busy"]);
    }
}
