//! `instance_group.rate_limiter`: what a running batch holds.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use oip::proto::ModelConfig;

use super::problems::Problems;

/// Resources that each running batch of a model holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateLimiter {
    /// How much of each, by name.
    pub resources: BTreeMap<String, NonZeroU32>,
    /// A model of priority 2 gets half as many batches as one of priority 1 when both wait for a resource. 0 means 1.
    pub priority: u32,
}

/// The rate limiter of all instance groups. Lanes are not tied to a group, so the groups must agree.
pub(super) fn rate_limiter(source: &ModelConfig, problems: &mut Problems<'_>) -> RateLimiter {
    let mut limiters = Vec::with_capacity(source.instance_group.len());
    for (index, group) in source.instance_group.iter().enumerate() {
        let given = group.rate_limiter.clone().unwrap_or_default();
        let mut limiter = RateLimiter { priority: given.priority, ..RateLimiter::default() };
        for (nth, resource) in given.resources.into_iter().enumerate() {
            let path = |field: &str| format!("instance_group[{index}].rate_limiter.resources[{nth}]{field}");
            let Some(count) = NonZeroU32::new(resource.count) else { continue };
            if resource.name.is_empty() {
                problems.add(&path(".name"), "is missing".to_owned());
            } else if limiter.resources.insert(resource.name.clone(), count).is_some() {
                problems
                    .add(&path(""), format!("names `{}` a second time: expected one count", resource.name));
            }
        }
        if limiters.first().is_some_and(|first| *first != limiter) {
            let path = format!("instance_group[{index}].rate_limiter");
            problems.add(&path, "differs from that of the first group: expected the same in all".to_owned());
        }
        limiters.push(limiter);
    }
    limiters.into_iter().next().unwrap_or_default()
}
