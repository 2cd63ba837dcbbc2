//! Requests to ensembles: each step is a request to its model, with the deadline of the whole.
//!
//! A step starts as soon as its tensors are there. Tensors stay in memory and are not copied.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use gpulet::Member;
use models::EnsembleStep;
use node::catalog::{Catalog, Loaded, ServedEnsemble, Trial};
use node::reason::{Reason, Refusal};
use node::request_log::{Entry, StageEntry};
use oip::{Datatype, InferRequest, InferResponse, InputTensor, Parameter, Tensor, TensorData};
use router_core::pipeline::Progress;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::infer::{PartOf, StepOf, Terms, attempt, select, terms};
use super::{Answered, RequestContext, Timing, family, vote};
use crate::validate;

/// Parameters of a request that hold for the whole, and not for each step.
const OF_THE_WHOLE: [&str; 3] = ["timeout", "priority", "class"];

/// A request under way.
struct Flow<'a> {
    catalog: &'a Arc<Catalog>,
    served: &'a ServedEnsemble,
    /// The versions of the steps, held until the request has ended.
    members: Vec<(Arc<Loaded>, TaskTrackerToken)>,
    /// Of the request, for each step.
    id: String,
    parameters: Vec<(String, Parameter)>,
    context: &'a RequestContext,
    terms: Terms,
    /// Stages that ended, by their end. `None`: no record of the request is kept.
    ended: Option<Mutex<Vec<StageEntry>>>,
}

/// Runs a request on the models of an ensemble. `step`: it is a step of another ensemble.
pub(super) async fn run(
    catalog: &Arc<Catalog>,
    (loaded, served): (&Loaded, &ServedEnsemble),
    request: InferRequest,
    (context, step): (&RequestContext, Option<StepOf>),
    (mut entry, trial): (Option<&mut Entry>, &mut Option<Trial>),
) -> Result<Answered, Refusal> {
    if let Some(of) = &served.family {
        return family::run(catalog, (loaded, served, of), request, (context, step), (entry, trial)).await;
    }
    let config = loaded.config();
    let terms = terms(&config, &request.parameters, false, (context, step))?;
    let Terms { class, deadline, .. } = terms;
    validate::outputs(&loaded.client, request.outputs.as_deref())?;
    let valid = validate::inputs(&loaded.client, request.inputs)?;
    let rows = valid.member.rows;
    if let Some(entry) = &mut entry {
        (entry.class, entry.best_effort) = (class.map_or(0, NonZeroU32::get), class.is_none());
        entry.objective = deadline.map(|deadline| deadline.saturating_duration_since(context.arrived));
        entry.rows = rows;
    }
    let mut tensors: BTreeMap<String, Tensor> = BTreeMap::new();
    tensors.extend(valid.member.inputs.into_iter().flatten().map(|tensor| (tensor.name.clone(), tensor)));
    let hold = |step: &EnsembleStep| {
        let version = step.version.map(|version| version.to_string());
        let held = catalog.hold(&step.model, version.as_deref(), context.tenant.number)?;
        held.trial.into_iter().for_each(Trial::disregard);
        Ok((held.loaded, held.user))
    };
    let members = served.ensemble.steps.iter().map(hold).collect::<Result<Vec<_>, Refusal>>()?;
    if let Some(spec) = catalog.changed_pipeline(served, members.iter().map(|(loaded, _)| loaded.id)) {
        catalog.router().pipeline_up(spec).await;
    }
    if let Some(of) = &served.vote {
        let held = |step: usize| members.get(step).map(|(held, _)| (held.name.as_str(), held.hash));
        vote::check(of, &loaded.name, held)?;
    }
    let mut parameters = request.parameters;
    parameters.retain(|(name, _)| !OF_THE_WHOLE.contains(&name.as_str()));
    let ended = entry.is_some().then(Mutex::default);
    let flow = Flow { catalog, served, members, id: request.id.clone(), parameters, context, terms, ended };
    let timing = flow.steps(&mut tensors).await;
    let outputs = timing.and_then(|timing| Ok((timing, flow.outputs(&mut tensors)?)));
    if let (Some(entry), Some(ended)) = (entry, flow.ended) {
        entry.pipeline = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        entry.timing = outputs.as_ref().map(|(timing, _)| *timing).unwrap_or_default();
    }
    let (timing, outputs) = outputs?;
    let total = context.arrived.elapsed();
    let met = deadline.map(|deadline| Instant::now() <= deadline);
    trial.take().into_iter().for_each(|trial| trial.answered(met != Some(false)));
    loaded.metrics.record_answer(&timing, total, met);
    loaded.statistics.answered(rows, &timing, total, met);
    if step.is_none() {
        catalog.tenants().answered(context.tenant, met);
    }
    let response = InferResponse {
        model_name: loaded.name.clone(),
        model_version: loaded.version.to_string(),
        id: request.id,
        parameters: Vec::new(),
        outputs: select(outputs, request.outputs),
    };
    Ok(Answered { response, timing })
}

impl Flow<'_> {
    /// Runs the steps, each as soon as its tensors are there. Returns the sums of their times.
    async fn steps(&self, tensors: &mut BTreeMap<String, Tensor>) -> Result<Timing, Refusal> {
        let (steps, graph) = (&self.served.ensemble.steps, &self.served.graph);
        let (mut progress, mut running) = (Progress::new(graph), FuturesUnordered::new());
        let (mut timing, mut is_first) = (Timing { leads_batch: true, ..Timing::default() }, true);
        loop {
            for number in progress.start(graph) {
                let Some(step) = steps.get(number as usize) else { continue };
                running.push(self.step(number, step, inputs_of(step, tensors)?, is_first));
                is_first = false;
            }
            let Some(ended) = running.next().await else { break };
            let (number, outputs, took) = ended?;
            progress.end(number);
            timing.queue += took.queue;
            timing.batch_wait += took.batch_wait;
            timing.compute += took.compute;
            timing.hand_back += took.hand_back;
            let Some(step) = steps.get(number as usize) else { continue };
            let answers = step.answer_if.as_ref().is_some_and(|condition| holds(&outputs, condition));
            for output in outputs {
                if let Some(name) = step.outputs.get(&output.name) {
                    tensors.insert(name.clone(), Tensor { name: name.clone(), ..output });
                }
            }
            if answers {
                // The others are cancelled as their futures are dropped.
                progress.stop();
                break;
            }
        }
        Ok(timing)
    }

    async fn step(
        &self,
        number: u32,
        step: &EnsembleStep,
        inputs: Vec<Tensor>,
        is_first: bool,
    ) -> Result<(u32, Vec<Tensor>, Timing), Refusal> {
        let Some((loaded, _)) = self.members.get(number as usize) else {
            return Err(Refusal::new(Reason::Internal, "a step of the ensemble has no model"));
        };
        // Tensors of a model without batches are one row.
        let first = inputs.first().filter(|_| loaded.client.max_batch > 0);
        let rows = first.and_then(|input| input.shape.extents().first().copied()).unwrap_or(1);
        let started = self.context.arrived.elapsed();
        let ran = self.rows(number, step, (loaded, rows), inputs, is_first).await;
        if let Some(ended) = &self.ended {
            let timing = ran.as_ref().map(|(_, timing)| *timing).unwrap_or_default();
            let parts = match (rows, self.largest(loaded)) {
                (0, Some(_)) => 0,
                (rows, Some(largest)) => rows.div_ceil(largest),
                (_, None) => 1,
            };
            let entry = StageEntry {
                name: step.name.as_str().into(),
                model: loaded.name.as_str().into(),
                version: loaded.version,
                rows: u32::try_from(rows).unwrap_or(u32::MAX),
                parts: u32::try_from(parts).unwrap_or(u32::MAX),
                started,
                ended: self.context.arrived.elapsed(),
                timing,
                reason: ran.as_ref().err().map(|refusal| refusal.reason),
            };
            ended.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
        }
        let (outputs, timing) = ran?;
        Ok((number, outputs, timing))
    }

    /// Most rows of a request to a model. `None`: requests are not divided.
    fn largest(&self, loaded: &Loaded) -> Option<u64> {
        let largest = u64::from(loaded.client.max_batch);
        (self.served.ensemble.free_rows && largest > 0).then_some(largest)
    }

    /// Runs the rows of a step, in parts if they are more than its model takes.
    async fn rows(
        &self,
        number: u32,
        step: &EnsembleStep,
        (loaded, rows): (&Loaded, u64),
        inputs: Vec<Tensor>,
        is_first: bool,
    ) -> Result<(Vec<Tensor>, Timing), Refusal> {
        let Some(largest) = self.largest(loaded).filter(|largest| !(1..=*largest).contains(&rows)) else {
            return self.part(number, step, loaded, inputs, is_first).await;
        };
        if rows == 0 {
            return Ok((without_rows(loaded), Timing::default()));
        }
        let parts = divided(inputs, rows, largest).map_err(|reason| wrong_rows(step, &reason))?;
        let parts = parts.into_iter().enumerate();
        let parts = parts.map(|(at, inputs)| self.part(number, step, loaded, inputs, is_first && at == 0));
        let parts = futures_util::future::try_join_all(parts).await?;
        let timing = parts.first().map(|(_, timing)| *timing).unwrap_or_default();
        let outputs = parts.into_iter().map(|(outputs, _)| outputs).collect();
        let outputs = joined(outputs).map_err(|reason| wrong_rows(step, &reason))?;
        Ok((outputs, timing))
    }

    async fn part(
        &self,
        number: u32,
        step: &EnsembleStep,
        loaded: &Loaded,
        inputs: Vec<Tensor>,
        is_first: bool,
    ) -> Result<(Vec<Tensor>, Timing), Refusal> {
        let input = |tensor: Tensor| InputTensor {
            name: tensor.name,
            datatype: tensor.datatype,
            shape: tensor.shape,
            data: TensorData::Inline(tensor.data),
            parameters: Vec::new(),
        };
        let request = InferRequest {
            model_name: step.model.clone(),
            model_version: None,
            id: self.id.clone(),
            parameters: self.parameters.clone(),
            inputs: inputs.into_iter().map(input).collect(),
            outputs: None,
            binary_output: true,
        };
        let stage = router::Stage {
            pipeline: self.served.pipeline,
            stage: number,
            begun: self.context.arrived,
            is_first,
        };
        let of = StepOf { terms: self.terms, part: PartOf::Ensemble(stage) };
        let mut trial = None;
        let ended = match &loaded.ensemble {
            Some(inner) => {
                let call =
                    run(self.catalog, (loaded, inner), request, (self.context, Some(of)), (None, &mut trial));
                Box::pin(call).await
            }
            None => {
                let entry = (None, &mut trial);
                attempt(self.catalog, loaded, request, self.context, (None, Some(of)), entry).await
            }
        };
        let Answered { response, timing } = ended.inspect_err(|refusal| {
            loaded.refused(refusal.reason);
            loaded.statistics.failed(self.context.arrived.elapsed());
        })?;
        Ok((response.outputs.into_iter().map(|(tensor, _)| tensor).collect(), timing))
    }

    /// The outputs of the request, in the order of the ensemble.
    fn outputs(&self, tensors: &mut BTreeMap<String, Tensor>) -> Result<Vec<Tensor>, Refusal> {
        let ensemble = &self.served.ensemble;
        if let Some(vote) = &self.served.vote {
            tensors.extend(vote::decide(vote, tensors)?.map(|tensor| (tensor.name.clone(), tensor)));
        }
        let mut outputs = Vec::with_capacity(ensemble.outputs.len());
        for output in &ensemble.outputs {
            let own = [output.name.clone()];
            let sources = ensemble.sources.get(&output.name).map_or(&own[..], Vec::as_slice);
            let found = sources.iter().find_map(|source| tensors.get(source).cloned());
            let missing = || {
                let message = format!("output `{}`: the steps that answered did not write it", output.name);
                Refusal::new(Reason::EngineFailed, message)
            };
            outputs.push(Tensor { name: output.name.clone(), ..found.ok_or_else(missing)? });
        }
        Ok(outputs)
    }
}

/// The tensors that a step takes, with the names that its model has for them.
fn inputs_of(step: &EnsembleStep, tensors: &BTreeMap<String, Tensor>) -> Result<Vec<Tensor>, Refusal> {
    let input = |(own, tensor): (&String, &String)| {
        let found = tensors.get(tensor).ok_or_else(|| {
            let message = format!("step of model `{}`: tensor `{tensor}` is missing", step.model);
            Refusal::new(Reason::EngineFailed, message)
        })?;
        Ok(Tensor { name: own.clone(), ..found.clone() })
    };
    step.inputs.iter().map(input).collect()
}

/// Whether a condition is true for all rows.
fn holds(outputs: &[Tensor], condition: &str) -> bool {
    let found = outputs.iter().find(|output| output.name == condition && output.datatype == Datatype::Bool);
    found.is_some_and(|output| output.data.iter().all(|value| *value != 0))
}

fn wrong_rows(step: &EnsembleStep, reason: &str) -> Refusal {
    Refusal::new(Reason::EngineFailed, format!("step of model `{}`: {reason}", step.model))
}

/// Outputs of a step that has no rows.
fn without_rows(loaded: &Loaded) -> Vec<Tensor> {
    let empty = |spec: &models::TensorSpec| {
        let rest = spec.dims.iter().skip(1).map(|dim| match dim {
            models::Dim::Fixed(extent) => *extent,
            models::Dim::Free => 0,
        });
        let extents: Vec<u64> = std::iter::once(0).chain(rest).collect();
        Tensor {
            name: spec.name.clone(),
            datatype: spec.datatype,
            shape: oip::Shape::from_extents(&extents),
            data: bytes::Bytes::new(),
        }
    };
    loaded.client.outputs.iter().map(empty).collect()
}

/// Tensors of `rows` rows as parts of at most `largest` rows.
fn divided(inputs: Vec<Tensor>, rows: u64, largest: u64) -> Result<Vec<Vec<Tensor>>, String> {
    let sizes = (0..rows.div_ceil(largest)).map(|part| largest.min(rows - part * largest));
    let members = sizes.map(|rows| Member::of(Vec::new(), u32::try_from(rows).unwrap_or(u32::MAX)));
    gpulet::scatter(inputs, &members.collect::<Vec<_>>())
}

/// The outputs of parts as those of one request.
fn joined(parts: Vec<Vec<Tensor>>) -> Result<Vec<Tensor>, String> {
    let member = |outputs: Vec<Tensor>| {
        let rows = outputs.first().and_then(|output| output.shape.extents().first().copied()).unwrap_or(0);
        Member::of(outputs.into_iter().map(Some).collect(), u32::try_from(rows).unwrap_or(u32::MAX))
    };
    let batch = gpulet::gather(&parts.into_iter().map(member).collect::<Vec<_>>())?;
    Ok(batch.inputs.into_iter().flatten().collect())
}
