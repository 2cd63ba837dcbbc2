//! What a new request of each model would meet: the figures by which a picker of endpoints compares servers.

use serde::Serialize;

use super::admission::{least_time, row_time_of};
use crate::{ModelId, Nanos, Router};

/// What a request of one row of this model would meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ModelBacklog {
    /// The model.
    pub model: ModelId,
    /// Models with the same number share their lanes.
    pub pool: u32,
    /// Lanes that run it. 0: requests are refused.
    pub lanes: u32,
    /// Time until one of these lanes is free; zero if one is.
    pub free_in: Nanos,
    /// Lane time of all rows that wait for these lanes, in batches of the size with the highest throughput.
    pub backlog: Nanos,
    /// Lane time of one more row in such a batch. Zero if no batch was ever measured.
    pub row_time: Nanos,
    /// Time of a batch of one row, rarely exceeded. Zero if no batch was ever measured.
    pub single_time: Nanos,
    /// Rows of this model that wait.
    pub queued: u64,
    /// Largest batch in rows.
    pub max_batch: u32,
}

impl Router {
    /// The backlog of every model that takes requests, by model number. Takes time in proportion to models and queues.
    pub fn backlogs(&self) -> Vec<ModelBacklog> {
        let serving = || self.models.iter().filter(|(_, model)| !model.retiring);
        let mut by_pool = vec![0_u64; self.pools.slots()];
        let mut backlogs: Vec<ModelBacklog> = serving()
            .filter_map(|(id, model)| {
                let pool = self.pools.get(model.pool)?;
                let counts = model.queues.iter().filter(|(key, _)| !key.class.is_best_effort());
                let rows = counts.filter_map(|(_, slot)| self.queues.get(*slot));
                let queued = rows.map(|queue| u64::from(queue.rows)).sum::<u64>();
                let row_bytes = if model.row_bytes == 0 { model.profiled_row_bytes } else { model.row_bytes };
                let row_time = row_time_of(model, pool, row_bytes);
                if let Some(backlog) = by_pool.get_mut(model.pool as usize) {
                    *backlog = backlog.saturating_add(row_time.saturating_mul(queued));
                }
                let is_free = !pool.free.is_empty() || pool.up.is_empty();
                let free_in =
                    pool.ends.first().filter(|_| !is_free).map_or(0, |end| end.at.since(self.now).0);
                Some(ModelBacklog {
                    model: id,
                    pool: model.pool,
                    lanes: pool.up.len(),
                    free_in: Nanos(free_in),
                    backlog: Nanos::ZERO,
                    row_time: Nanos(row_time),
                    single_time: least_time(model, pool, 1, row_bytes),
                    queued,
                    max_batch: model.max_batch,
                })
            })
            .collect();
        for model in &mut backlogs {
            model.backlog = Nanos(by_pool.get(model.pool as usize).copied().unwrap_or_default());
        }
        backlogs
    }
}
