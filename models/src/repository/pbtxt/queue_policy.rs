//! `default_queue_policy` and `priority_queue_policy`: what may wait, and for how long.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use oip::proto;
use oip::proto::model_queue_policy::TimeoutAction;

use super::problems::Problems;

/// Limits of the queued requests of one priority level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePolicy {
    /// Bound on queued requests; `None`: the server's.
    pub max_size: Option<NonZeroU32>,
    /// Timeout of requests, if there is one.
    pub default_timeout: Option<Duration>,
    /// Whether requests may bring a shorter timeout.
    pub timeout_override: bool,
    /// A request that waits longer than its timeout is served after the others of its level. Otherwise it is rejected.
    pub delays: bool,
}

impl Default for QueuePolicy {
    fn default() -> Self {
        Self { max_size: None, default_timeout: None, timeout_override: true, delays: false }
    }
}

impl QueuePolicy {
    pub(super) fn from_proto(
        path: &str,
        policy: &proto::ModelQueuePolicy,
        problems: &mut Problems<'_>,
    ) -> Self {
        let timeout = policy.default_timeout_microseconds;
        let action = TimeoutAction::try_from(policy.timeout_action);
        if action.is_err() {
            problems.add(&format!("{path}.timeout_action"), "expected REJECT or DELAY".to_owned());
        }
        Self {
            max_size: NonZeroU32::new(policy.max_queue_size),
            default_timeout: (timeout > 0).then(|| Duration::from_micros(timeout)),
            timeout_override: timeout == 0 || policy.allow_timeout_override,
            delays: action == Ok(TimeoutAction::Delay),
        }
    }

    /// The timeout of a request that asks for `asked`. As in Triton, a request can shorten the default and not extend it.
    pub fn timeout(&self, asked: Option<Duration>) -> Option<Duration> {
        let asked = asked.filter(|_| self.timeout_override);
        asked.into_iter().chain(self.default_timeout).min()
    }
}

/// The policies of the levels that have their own.
pub(super) fn by_level(
    batching: &proto::ModelDynamicBatching,
    problems: &mut Problems<'_>,
) -> BTreeMap<u32, QueuePolicy> {
    let path = "dynamic_batching.priority_queue_policy";
    let levels = batching.priority_levels;
    let mut policies = BTreeMap::new();
    for (&key, policy) in &batching.priority_queue_policy {
        match u32::try_from(key).ok().filter(|level| (1..=levels).contains(&u64::from(*level))) {
            Some(level) => drop(policies.insert(level, QueuePolicy::from_proto(path, policy, problems))),
            None if levels == 0 => {
                problems.add(path, format!("has level {key}: expected `priority_levels` to be set"));
            }
            None => problems.add(path, format!("has level {key}: expected 1 to {levels}")),
        }
    }
    policies
}
