//! How busy each lane was lately, and with what.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::catalog::Loaded;

/// What a share weighs one second later.
const KEPT: f64 = 0.9;

/// Shares of time by lane and model.
#[derive(Default)]
pub struct LaneUse {
    /// Time in the engine since the start, by lane and load.
    before: BTreeMap<(u32, u64), Duration>,
    shares: BTreeMap<u32, BTreeMap<String, f64>>,
}

impl LaneUse {
    /// Adds the batches that ended in the last `second`.
    pub fn sample(&mut self, models: &[Arc<Loaded>], second: Duration) {
        let mut now = BTreeMap::new();
        let mut ran: BTreeMap<u32, BTreeMap<&str, Duration>> = BTreeMap::new();
        for loaded in models {
            for batches in loaded.statistics.lane_batches() {
                *now.entry((batches.lane, loaded.load)).or_insert(Duration::ZERO) += batches.compute;
            }
            for (key @ (lane, _), total) in now.iter().filter(|((_, load), _)| *load == loaded.load) {
                let since = total.saturating_sub(self.before.get(key).copied().unwrap_or_default());
                *ran.entry(*lane).or_default().entry(&loaded.name).or_default() += since;
            }
        }
        for (lane, models) in ran {
            let shares = self.shares.entry(lane).or_default();
            for (name, time) in models {
                let share = time.as_secs_f64() / second.as_secs_f64().max(1e-3);
                let known = shares.entry(name.to_owned()).or_insert(0.0);
                *known = KEPT * *known + (1.0 - KEPT) * share;
            }
        }
        let names: std::collections::BTreeSet<&str> =
            models.iter().map(|loaded| loaded.name.as_str()).collect();
        self.shares.values_mut().for_each(|shares| shares.retain(|name, _| names.contains(name.as_str())));
        self.before = now;
    }

    /// Parts of its time that a lane ran each model.
    pub fn of(&self, lane: u32) -> Vec<(String, f64)> {
        let shares = self.shares.get(&lane);
        shares.into_iter().flatten().map(|(name, share)| (name.clone(), share.min(1.0))).collect()
    }

    /// Forgets lanes that do not exist any more.
    pub fn keep(&mut self, exists: impl Fn(u32) -> bool) {
        self.shares.retain(|lane, _| exists(*lane));
    }
}
