//! A roll-out of a new version, as the server tells it, for people.

use node::catalog::{RolloutState, RolloutView, VersionView};
use node::output;
use version_rollout::Endings;

/// Characters of a digest that people compare.
const DIGEST: usize = 12;

/// The state of a roll-out in words.
pub fn word(state: RolloutState) -> &'static str {
    match state {
        RolloutState::Baking => "baking",
        RolloutState::Promoted => "promoted",
        RolloutState::RolledBack => "rolled back",
    }
}

/// The state of a roll-out, and a row for each version.
pub fn text(rollout: &RolloutView) -> String {
    let RolloutView { model, state, stable, canary, share, figures, missing_samples, .. } = rollout;
    let (old, new, word, after) =
        (stable.version, canary.version, word(*state), figures.elapsed.as_secs_f64());
    let cause = rollout.cause.as_deref().unwrap_or("no reason given");
    let tenant = rollout.tenant.as_ref().map(|tenant| format!(" (tenant {tenant})")).unwrap_or_default();
    let mut text = match state {
        RolloutState::Baking => format!(
            "{model}: version {new} gets {:.1} % of the requests, for {after:.0} s of at least {:.0} s\n",
            100.0 * share,
            rollout.bake_s
        ),
        RolloutState::Promoted => {
            format!("{model}: version {new} was {word} after {after:.0} s: {cause}\n")
        }
        RolloutState::RolledBack => {
            format!("{model}: version {new} was {word} to {old} after {after:.0} s: {cause}{tenant}\n")
        }
    };
    if *state == RolloutState::Baking && *missing_samples > 0 {
        let what = if rollout.compare { "requests or comparisons" } else { "requests" };
        text += &format!("{missing_samples} more {what} are needed before it is promoted\n");
    }
    let rows = [row("stable", stable, &figures.stable), row("canary", canary, &figures.canary)];
    text += "\n";
    text += &output::table(&["", "version", "digest", "requests", "in time %", "failed"], rows);
    if rollout.compare {
        text += &format!("\n{} of {} compared outputs differ\n", figures.disagreed, figures.compared);
    }
    text
}

fn row(what: &str, version: &VersionView, endings: &Endings) -> Vec<String> {
    let attainment = match endings.requests {
        0 => "-".to_owned(),
        _ => format!("{:.2}", 100.0 * endings.attainment()),
    };
    let digest = version.digest.chars().take(DIGEST).collect();
    let (requests, failed) = (endings.requests.to_string(), endings.failed.to_string());
    vec![what.to_owned(), version.version.to_string(), digest, requests, attainment, failed]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(state: &str, missing: u64) -> String {
        let version = |version: u64| json!({ "version": version, "digest": "0123456789abcdef" });
        let rollout: RolloutView = serde_json::from_value(json!({
            "model": "m", "state": state, "cause": "more fail", "tenant": "search",
            "stable": version(1), "canary": version(2), "share": 0.1, "bake_s": 600.0, "missing_samples": missing,
            "compare": true,
            "figures": {
                "elapsed_s": 12.0, "compared": 40, "disagreed": 3,
                "stable": { "requests": 900, "missed": 9, "failed": 0 },
                "canary": { "requests": 0, "missed": 0, "failed": 0 },
            },
        }))
        .unwrap();
        text(&rollout)
    }

    #[test]
    fn the_state_and_both_versions_are_told() {
        let baking = told("baking", 500);
        for part in
            ["version 2 gets 10.0 %", "500 more requests or comparisons", "99.00", "0123456789ab ", "3 of 40"]
        {
            assert!(baking.contains(part), "{part}: {baking}");
        }
        assert!(!told("baking", 0).contains("more requests"));
        let back = told("rolled_back", 0);
        assert!(
            back.starts_with("m: version 2 was rolled back to 1 after 12 s: more fail (tenant search)"),
            "{back}"
        );
        assert!(told("promoted", 0).starts_with("m: version 2 was promoted after 12 s"));
    }
}
