//! A roll-out of a new version, as the server tells it, for people.

use node::output;
use serde::Deserialize;

/// The roll-out of a model.
#[derive(Deserialize)]
pub struct Rollout {
    model: String,
    state: String,
    cause: Option<String>,
    tenant: Option<String>,
    stable: Version,
    canary: Version,
    share: f64,
    bake_s: f64,
    missing_samples: u64,
    compare: bool,
    figures: Figures,
}

#[derive(Deserialize)]
struct Version {
    version: u64,
    digest: String,
}

#[derive(Deserialize)]
struct Figures {
    elapsed_s: f64,
    stable: Endings,
    canary: Endings,
    compared: u64,
    disagreed: u64,
}

#[derive(Deserialize)]
struct Endings {
    requests: u64,
    missed: u64,
    failed: u64,
}

/// Characters of a digest that people compare.
const DIGEST: usize = 12;

impl Rollout {
    /// Its state, and a row for each version.
    pub fn text(&self) -> String {
        let (model, old, new) = (&self.model, self.stable.version, self.canary.version);
        let after = self.figures.elapsed_s;
        let cause = self.cause.as_deref().unwrap_or("no reason given");
        let tenant = self.tenant.as_ref().map(|tenant| format!(" (tenant {tenant})")).unwrap_or_default();
        let mut text = match self.state.as_str() {
            "baking" => format!(
                "{model}: version {new} gets {:.1} % of the requests, for {after:.0} s of at least {:.0} s\n",
                100.0 * self.share,
                self.bake_s
            ),
            "promoted" => format!("{model}: version {new} was promoted after {after:.0} s: {cause}\n"),
            _ => format!(
                "{model}: version {new} was rolled back to {old} after {after:.0} s: {cause}{tenant}\n"
            ),
        };
        if self.state == "baking" && self.missing_samples > 0 {
            let what = if self.compare { "requests or comparisons" } else { "requests" };
            text += &format!("{} more {what} are needed before it is promoted\n", self.missing_samples);
        }
        let row = |what: &str, version: &Version, endings: &Endings| {
            let in_time = endings.requests.saturating_sub(endings.missed);
            let attainment = match endings.requests {
                0 => "-".to_owned(),
                requests => format!("{:.2}", 100.0 * in_time as f64 / requests as f64),
            };
            let digest = version.digest.chars().take(DIGEST).collect();
            let (requests, failed) = (endings.requests.to_string(), endings.failed.to_string());
            vec![what.to_owned(), version.version.to_string(), digest, requests, attainment, failed]
        };
        let Figures { stable, canary, compared, disagreed, .. } = &self.figures;
        let rows = [row("stable", &self.stable, stable), row("canary", &self.canary, canary)];
        text += "\n";
        text += &output::table(&["", "version", "digest", "requests", "in time %", "failed"], rows);
        if self.compare {
            text += &format!("\n{disagreed} of {compared} compared outputs differ\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(state: &str, missing: u64) -> String {
        let version = |version: u64| json!({ "version": version, "digest": "0123456789abcdef" });
        let rollout: Rollout = serde_json::from_value(json!({
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
        rollout.text()
    }

    #[test]
    fn the_state_and_both_versions_are_told() {
        let baking = text("baking", 500);
        for part in
            ["version 2 gets 10.0 %", "500 more requests or comparisons", "99.00", "0123456789ab ", "3 of 40"]
        {
            assert!(baking.contains(part), "{part}: {baking}");
        }
        assert!(!text("baking", 0).contains("more requests"));
        let back = text("rolled_back", 0);
        assert!(
            back.starts_with("m: version 2 was rolled back to 1 after 12 s: more fail (tenant search)"),
            "{back}"
        );
        assert!(text("promoted", 0).starts_with("m: version 2 was promoted after 12 s"));
    }
}
