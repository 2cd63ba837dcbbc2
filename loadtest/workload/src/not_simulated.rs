//! Settings of models that a server knows and the simulator and the planner do not. They are refused by name: figures
//! without them would be wrong and look right.

use units::{Fault, parse_toml};

/// Something that a server has and the simulator does not.
struct Missing {
    /// Keys that would enable it.
    keys: &'static [&'static str],
    what: &'static str,
    remedy: &'static str,
}

const MISSING: [Missing; 3] = [
    Missing {
        keys: &[
            "sequence_batching",
            "sequences",
            "sequence",
            "direct",
            "oldest",
            "max_candidate_sequences",
            "max_sequence_idle",
            "max_sequence_idle_microseconds",
        ],
        what: "sequences",
        remedy: "their requests count as independent ones",
    },
    Missing {
        keys: &["rate_limiter", "rate_limit", "resources"],
        what: "rate limiter",
        remedy: "to measure it, set it on a server and run `tessera load`",
    },
    Missing {
        keys: &[
            "default_queue_policy",
            "priority_queue_policy",
            "queue_policy",
            "timeout_action",
            "default_timeout_microseconds",
            "allow_timeout_override",
        ],
        what: "queue policies such as `DELAY`",
        remedy: "requests that miss their deadline are dropped; to measure a policy, set it on a server and run `tessera load`",
    },
];

/// Why a key is refused, if it is a setting of a server that is not simulated.
pub fn not_simulated(key: &str) -> Option<String> {
    let missing = MISSING.iter().find(|missing| missing.keys.contains(&key))?;
    Some(format!(
        "the simulator and the planner have no {}: remove the key; {}",
        missing.what, missing.remedy
    ))
}

/// Reads a workload or problem file. Settings that are not simulated are refused by name.
///
/// # Errors
/// As [`parse_toml`].
pub fn parse_document<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Fault> {
    parse_toml(text).map_err(|mut fault: Fault| {
        let key = fault.field.rsplit('.').next().unwrap_or_default();
        if fault.problem.starts_with("unknown key")
            && let Some(problem) = not_simulated(key)
        {
            fault.problem = problem;
        }
        fault
    })
}
