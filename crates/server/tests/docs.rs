//! The generated pages say what the code says, and the rules for Prometheus fire when they should.

use std::{env, path::Path, process::Command};

use windlass_testkit::docs::{compare_page, states_page};

#[test]
fn the_page_on_states_is_up_to_date() {
    compare_page("states.md", &states_page());
}

/// `docs/prometheus/windlass.test.yml` is played by Prometheus' own tool.
#[test]
fn the_rules_for_prometheus_fire_when_they_should() {
    let tool = env::var("WINDLASS_PROMTOOL").unwrap_or_else(|_| "promtool".to_owned());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/prometheus");
    let ran = Command::new(&tool)
        .args(["test", "rules", "windlass.test.yml"])
        .current_dir(folder)
        .output();
    let ran =
        ran.unwrap_or_else(|why| panic!("{tool}: {why}. Run scripts/promtool, which installs it"));
    let told = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(ran.status.success(), "{}{}", told(&ran.stdout), told(&ran.stderr));
}
