//! Conditions of a status.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Condition of every kind: what the spec asks for is in force.
pub const READY: &str = "Ready";

/// Condition of a pool: it has the devices that the models need.
pub const SUFFICIENT: &str = "Sufficient";

/// Longest message that is written, bytes. Kubernetes allows 32,768.
const MESSAGE_MAX: usize = 1_024;

/// What a condition says now.
#[derive(Clone, Copy, Debug)]
pub struct Finding<'a> {
    /// Its type, such as [`READY`].
    pub kind: &'a str,
    /// Whether it holds. `None`: not known.
    pub holds: Option<bool>,
    /// One word in camel case for programs.
    pub reason: &'a str,
    /// A sentence for people.
    pub message: &'a str,
    /// Generation of the spec that this is about.
    pub generation: Option<i64>,
}

/// Sets a condition. The time of its last transition only changes if its status does.
pub fn set(conditions: &mut Vec<Condition>, finding: Finding<'_>, now: Timestamp) {
    let status = match finding.holds {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    };
    let before = conditions.iter().position(|condition| condition.type_ == finding.kind);
    let before = before.map(|place| conditions.remove(place));
    let since = before.filter(|before| before.status == status).map(|before| before.last_transition_time);
    let mut message = finding.message.to_owned();
    message.truncate(message.floor_char_boundary(MESSAGE_MAX));
    conditions.push(Condition {
        type_: finding.kind.to_owned(),
        status: status.to_owned(),
        reason: finding.reason.to_owned(),
        message,
        observed_generation: finding.generation,
        last_transition_time: since.unwrap_or(Time(now)),
    });
    conditions.sort_by(|left, right| left.type_.cmp(&right.type_));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_changes_with_the_status_only() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let finding =
            |holds, message| Finding { kind: READY, holds, reason: "Tried", message, generation: Some(3) };
        let mut conditions = Vec::new();
        set(&mut conditions, finding(Some(false), "no copies"), at(10));
        set(&mut conditions, finding(Some(false), "1 of 2 copies"), at(20));
        assert_eq!(conditions.len(), 1);
        assert_eq!(conditions[0].message, "1 of 2 copies");
        assert_eq!(conditions[0].last_transition_time.0, at(10));
        set(&mut conditions, finding(Some(true), "2 of 2 copies"), at(30));
        assert_eq!(conditions[0].last_transition_time.0, at(30));
        let long = "ä".repeat(MESSAGE_MAX);
        set(&mut conditions, finding(None, &long), at(40));
        assert_eq!((conditions[0].status.as_str(), conditions[0].message.len()), ("Unknown", MESSAGE_MAX));
    }
}
