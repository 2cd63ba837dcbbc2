//! Requests of pipelines: which stages of them run, and what comes of each.

use std::collections::{BTreeMap, VecDeque};

use invariant::expected;
use router_core::pipeline::{Progress, StageCosts};
use router_core::{
    Arrival, Class, Event, ModelId, ModelSpec, Nanos, Outcome, PipelineId, PipelineSpec, PipelineStage,
    Position, Reason, RequestId, ShapeKey, Split, Tenant,
};
use workload::{Deadlines, ObjectiveSplit, Offered, Workload};

use super::Simulation;
use crate::error::{Breach, SimError};
use crate::inflight::{Part, Request};
use crate::objectives::{Divided, STEPS};
use crate::report::ChosenSplit;

/// A part of a stage that ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartEnd {
    pub request: RequestId,
    pub flow: u32,
    pub stage: u32,
    pub outcome: Outcome,
    pub reason: Reason,
}

/// An unfinished request of a pipeline.
#[derive(Debug)]
struct Flow {
    request: Request,
    /// Its number among the requests of its pipeline.
    number: u64,
    progress: Progress,
    /// Parts of each stage that have not ended.
    left: Vec<u32>,
    /// Rows that came of each stage.
    rows: Vec<u32>,
    running: Vec<RequestId>,
    /// Whether it ended, while parts of it still run.
    ended: bool,
}

/// All pipelines of a workload, and their unfinished requests.
#[derive(Debug, Default)]
pub(super) struct Pipelines {
    /// By number in the list of models.
    pub specs: BTreeMap<u32, PipelineSpec>,
    /// Most rows of a batch of each model.
    largest: Vec<u32>,
    /// Those of which the division was chosen.
    pub planned: Vec<u32>,
    pub ended: VecDeque<PartEnd>,
    flows: Vec<Option<Flow>>,
    free: Vec<u32>,
    begun: BTreeMap<u32, u64>,
}

impl Pipelines {
    /// `divided`: how objectives are divided, if that is known already. `models` are the models as the router knows them.
    pub fn new(
        workload: &Workload,
        models: &[ModelSpec],
        divided: &BTreeMap<u32, Divided>,
        planned: Vec<u32>,
    ) -> Result<Self, SimError> {
        let mut specs = BTreeMap::new();
        for (number, model, pipeline) in workload.pipelines() {
            if pipeline.split == ObjectiveSplit::Plan {
                invariant::violated!("sim.split_not_chosen");
            }
            let rows = pipeline.mean_rows();
            let costs = |stage: &workload::PipelineStage, rows: f64| {
                let points = models.get(stage.model as usize).map(|model| &model.profile);
                let times: Vec<(u32, Nanos)> =
                    points.into_iter().flatten().map(|point| (point.rows, point.time)).collect();
                StageCosts::new(&times, rows, Nanos(model.slo), STEPS)
            };
            let Divided { graph, shares } = match divided.get(&number) {
                Some(known) => known.clone(),
                None => Divided::new(model, pipeline, costs).map_err(SimError::Workload)?,
            };
            let stages = pipeline.stages.iter().zip(&rows).zip(shares);
            let stages = stages.map(|((stage, &rows), share)| PipelineStage {
                model: ModelId(stage.model),
                rows,
                share: share.max(f64::MIN_POSITIVE),
            });
            let split = match pipeline.deadlines {
                Deadlines::EndToEnd => Split::EndToEnd,
                Deadlines::Static => Split::Static,
                Deadlines::PerStage => Split::PerStage,
            };
            let spec = PipelineSpec { pipeline: PipelineId(number), stages: stages.collect(), graph, split };
            specs.insert(number, spec);
        }
        let largest = models.iter().map(|model| model.max_batch).collect();
        Ok(Self { specs, largest, planned, ..Self::default() })
    }

    /// The number of the model that a request runs on.
    pub fn model_of(&self, request: &Request) -> u32 {
        match request.part {
            Part::Variant(variant) => variant,
            Part::Stage { stage, .. } => {
                let stages = self.specs.get(&request.model).map(|spec| &spec.stages);
                let stage = stages.and_then(|stages| stages.get(stage as usize));
                expected!(stage, "sim.part_of_unknown_stage").map_or(request.model, |stage| stage.model.0)
            }
            Part::None | Part::Stable { .. } | Part::Canary | Part::Mirror => request.model,
        }
    }

    fn insert(&mut self, flow: Flow) -> u32 {
        if let Some(slot) = self.free.pop()
            && let Some(place) = self.flows.get_mut(slot as usize)
        {
            *place = Some(flow);
            return slot;
        }
        self.flows.push(Some(flow));
        u32::try_from(self.flows.len() - 1).unwrap_or(u32::MAX)
    }

    fn flow(&mut self, slot: u32) -> Option<&mut Flow> {
        self.flows.get_mut(slot as usize).and_then(Option::as_mut)
    }

    /// Forgets a request that ended once none of its parts runs.
    fn settle(&mut self, slot: u32) {
        let done = self.flow(slot).is_some_and(|flow| flow.ended && flow.running.is_empty());
        if done && let Some(place) = self.flows.get_mut(slot as usize) {
            *place = None;
            self.free.push(slot);
        }
    }
}

impl Simulation {
    /// How the objectives of pipelines are divided that have `split = "plan"`.
    pub(crate) fn chosen_splits(&self) -> Vec<ChosenSplit> {
        let chosen = |number: &u32| {
            let spec = self.pipelines.specs.get(number)?;
            let model = self.workload.models.get(*number as usize)?;
            let pipeline = model.pipeline.as_ref()?;
            let shares = pipeline.stages.iter().zip(&spec.stages);
            Some(ChosenSplit {
                pipeline: model.name.clone(),
                deadlines: pipeline.deadlines,
                shares: shares.map(|(stage, spec)| (stage.name.clone(), spec.share)).collect(),
            })
        };
        self.pipelines.planned.iter().filter_map(chosen).collect()
    }

    pub(super) fn flow_arrives(&mut self, offered: &Offered, deadline: Option<Nanos>) -> Result<(), Breach> {
        let Some(spec) = self.pipelines.specs.get(&offered.model) else {
            invariant::violated!("sim.arrival_of_unknown_pipeline");
            return Ok(());
        };
        let stages = spec.graph.len();
        let request = Request {
            arrived: self.now,
            deadline,
            model: offered.model,
            tenant: offered.tenant,
            rows: 1,
            part: Part::None,
        };
        let progress = Progress::new(&spec.graph);
        let number = self.pipelines.begun.entry(offered.model).or_default();
        let flow = Flow {
            request,
            number: *number,
            progress,
            left: vec![0; stages],
            rows: vec![0; stages],
            running: Vec::new(),
            ended: false,
        };
        *number += 1;
        self.figures.came(&request);
        let slot = self.pipelines.insert(flow);
        self.start_stages(slot, true)
    }

    pub(super) fn stage_part_ended(&mut self, end: PartEnd) -> Result<(), Breach> {
        let PartEnd { request, flow: slot, stage, outcome, reason } = end;
        let flow = expected!(self.pipelines.flow(slot), "sim.part_of_unknown_flow");
        let Some(flow) = flow else { return Ok(()) };
        flow.running.retain(|running| *running != request);
        if flow.ended {
            self.pipelines.settle(slot);
            return Ok(());
        }
        if outcome != Outcome::Done {
            return self.flow_ends(slot, outcome, reason);
        }
        if let Some(left) = flow.left.get_mut(stage as usize) {
            *left = left.saturating_sub(1);
            if *left > 0 {
                return Ok(());
            }
        }
        self.stage_ended(slot, stage)?;
        self.start_stages(slot, false)
    }

    /// All parts of a stage ended: draws what comes of it.
    fn stage_ended(&mut self, slot: u32, stage: u32) -> Result<(), Breach> {
        let flow = expected!(self.pipelines.flow(slot), "sim.unknown_flow");
        let Some(flow) = flow else { return Ok(()) };
        let (model, number) = (flow.request.model, flow.number);
        let rows = flow.rows.get(stage as usize).copied().unwrap_or_default();
        let described = self.workload.models.get(model as usize);
        let drawn = described.and_then(|described| {
            let pipeline = described.pipeline.as_ref()?;
            Some(pipeline.draw((self.workload.seed, &described.name), number, stage, rows))
        });
        let (answers, rows) = drawn.unwrap_or((false, rows));
        let flow = expected!(self.pipelines.flow(slot), "sim.unknown_flow");
        let Some(flow) = flow else { return Ok(()) };
        flow.progress.end(stage);
        if let Some(own) = flow.rows.get_mut(stage as usize) {
            *own = rows;
        }
        if answers { self.flow_ends(slot, Outcome::Done, Reason::Answered) } else { Ok(()) }
    }

    /// Starts the stages that can. Those without rows end at once.
    fn start_stages(&mut self, slot: u32, mut is_new: bool) -> Result<(), Breach> {
        loop {
            let Some(model) =
                self.pipelines.flow(slot).filter(|flow| !flow.ended).map(|flow| flow.request.model)
            else {
                return Ok(());
            };
            let spec = self.pipelines.specs.get(&model).cloned();
            let Some(spec) = expected!(spec, "sim.flow_of_unknown_pipeline") else { return Ok(()) };
            let flow = expected!(self.pipelines.flow(slot), "sim.unknown_flow");
            let Some(flow) = flow else { return Ok(()) };
            let ready = flow.progress.start(&spec.graph);
            if ready.is_empty() {
                let is_complete = flow.progress.is_complete();
                return if is_complete {
                    self.flow_ends(slot, Outcome::Done, Reason::Answered)
                } else {
                    Ok(())
                };
            }
            let mut empty = Vec::new();
            let mut arrivals = Vec::new();
            for stage in ready {
                if self.add_parts(slot, stage, &spec, &mut arrivals) == 0 {
                    empty.push(stage);
                }
            }
            let mut arrivals = arrivals.as_slice();
            if is_new && let Some((first, others)) = arrivals.split_first() {
                self.feed(Event::Arrive(*first))?;
                arrivals = others;
            }
            is_new = false;
            if !arrivals.is_empty() {
                self.feed(Event::StageDone(arrivals))?;
            }
            if empty.is_empty() {
                return Ok(());
            }
            for stage in empty {
                if self.pipelines.flow(slot).is_some_and(|flow| !flow.ended) {
                    self.stage_ended(slot, stage)?;
                }
            }
        }
    }

    /// Adds the requests of a stage, none with more rows than a batch of its model. Returns how many.
    fn add_parts(&mut self, slot: u32, stage: u32, spec: &PipelineSpec, arrivals: &mut Vec<Arrival>) -> u32 {
        let Some(described) = expected!(spec.stages.get(stage as usize), "sim.unknown_stage") else {
            return 0;
        };
        let model = self.workload.models.get(described.model.0 as usize);
        let largest =
            self.pipelines.largest.get(described.model.0 as usize).map_or(1, |largest| *largest).max(1);
        let row_bytes = model.map_or(0, |model| model.row_bytes);
        let Some(flow) = expected!(self.pipelines.flow(slot), "sim.unknown_flow") else { return 0 };
        let before = spec.graph.after(stage).iter().filter_map(|&before| flow.rows.get(before as usize));
        let rows = before.copied().max().unwrap_or(flow.request.rows);
        let parts = rows.div_ceil(largest);
        if let (Some(left), Some(own)) =
            (flow.left.get_mut(stage as usize), flow.rows.get_mut(stage as usize))
        {
            (*left, *own) = (parts, rows);
        }
        let request = Request { part: Part::Stage { flow: slot, stage }, ..flow.request };
        let pipeline = self.workload.models.get(request.model as usize);
        let class = Class::new(pipeline.map_or(0, |pipeline| pipeline.priority));
        let position = Position { pipeline: spec.pipeline, stage, begun: Nanos(request.arrived) };
        let mut rows_left = rows;
        for _ in 0..parts {
            let part = rows_left.min(largest);
            rows_left -= part;
            let id = self.requests.insert(Request { rows: part, ..request });
            if let Some(flow) = self.pipelines.flow(slot) {
                flow.running.push(id);
            }
            arrivals.push(Arrival {
                request: id,
                model: described.model,
                class,
                tenant: Tenant::new(request.tenant),
                shape: ShapeKey::default(),
                rows: part,
                bytes: row_bytes.saturating_mul(u64::from(part)),
                deadline: request.deadline,
                timeout_action: Default::default(),
                pipeline: Some(position),
            });
        }
        parts
    }

    /// A request ended: counts it, and cancels what runs of it.
    fn flow_ends(&mut self, slot: u32, outcome: Outcome, reason: Reason) -> Result<(), Breach> {
        let flow = expected!(self.pipelines.flow(slot), "sim.unknown_flow");
        let Some(flow) = flow else { return Ok(()) };
        flow.ended = true;
        flow.progress.stop();
        let (request, running) = (flow.request, flow.running.clone());
        self.figures.went(self.now, &request, outcome, reason);
        for part in running {
            self.feed(Event::Cancel(part))?;
        }
        self.pipelines.settle(slot);
        Ok(())
    }
}
