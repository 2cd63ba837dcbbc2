//! Known pipelines, and how much time their stages have.

use invariant::expected;

use crate::event::Arrival;
use crate::machine::Router;
use crate::machine::admission::least_time;
use crate::pipeline::{Pipeline, PipelineStage, Times};
use crate::{Nanos, PipelineId, PipelineSpec, Position};

impl Router {
    pub(super) fn pipeline_up(&mut self, spec: &PipelineSpec) {
        let Some(mut pipeline) = expected!(Pipeline::new(spec), "router.pipeline_without_stages") else {
            return;
        };
        if let Some(before) = self.pipelines.get(&spec.pipeline) {
            pipeline.keep_times_of(before);
        }
        self.pipelines.insert(spec.pipeline, pipeline);
    }

    pub(super) fn pipeline_down(&mut self, id: PipelineId) {
        self.pipelines.remove(&id);
    }

    /// The times of a request with a deadline. That of a pipeline needs time for its later stages too.
    pub(super) fn times_of(&self, arrival: &Arrival) -> Option<Times> {
        let deadline = arrival.deadline?;
        let alone = Times { due: deadline, latest: deadline, objective: deadline.since(self.now) };
        let Some(position) = arrival.pipeline else { return Some(alone) };
        let Some(pipeline) = self.pipelines.get(&position.pipeline) else { return Some(alone) };
        let objective = deadline.since(position.begun);
        let shortest = |stage: &PipelineStage| (self.shortest(stage), self.has_free_lane(stage));
        let rest = pipeline.rest(self.now, position.stage, objective, shortest);
        let latest = if rest > deadline { Nanos::ZERO } else { deadline.before(rest) };
        Some(pipeline.times(self.now, &position, deadline, latest))
    }

    /// A request of a stage ended after `time`. One that was dropped would have taken longer.
    pub(super) fn stage_took(&mut self, position: &Position, time: Nanos, is_dropped: bool) {
        let now = self.now;
        // It may have been forgotten while the request ran.
        let Some(pipeline) = self.pipelines.get(&position.pipeline) else { return };
        let least = pipeline.stage(position.stage).filter(|_| is_dropped).map(|stage| self.shortest(stage));
        if let Some(pipeline) = self.pipelines.get_mut(&position.pipeline) {
            pipeline.took(now, position.stage, time.after(least.unwrap_or_default()));
        }
    }

    /// Whether a request of a stage would start at once.
    fn has_free_lane(&self, stage: &PipelineStage) -> bool {
        let pool = self.model(stage.model).and_then(|model| self.pools.get(model.pool));
        pool.is_some_and(|pool| !pool.free.is_empty())
    }

    /// Time of a stage whose batches start at once, on all lanes of its model. Zero while unknown.
    fn shortest(&self, stage: &PipelineStage) -> Nanos {
        // It may have been unloaded.
        let Some(model) = self.model(stage.model) else { return Nanos::ZERO };
        let pool = self.pools.get(model.pool);
        let Some(pool) = expected!(pool, "router.model_of_unknown_pool") else { return Nanos::ZERO };
        let row_bytes = if model.row_bytes > 0 { model.row_bytes } else { model.profiled_row_bytes };
        let rows = stage.rows.ceil().clamp(0.0, f64::from(u32::MAX)) as u32;
        if rows == 0 {
            return Nanos::ZERO;
        }
        let batches = u64::from(rows.div_ceil(model.max_batch)).div_ceil(u64::from(pool.up.len().max(1)));
        let time = least_time(model, pool, rows.min(model.max_batch), row_bytes);
        Nanos(time.0.saturating_mul(batches))
    }
}
