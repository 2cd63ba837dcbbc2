//! One inference on one loaded version: deadline, class, validation, router, response.
//!
//! Hot path.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use models::EffectiveConfig;
use models::engine::{Cancelled, RequestDetails, Response, ResponseSink};
use node::batching;
use node::catalog::{Catalog, Loaded, Trial};
use node::reason::{Reason, Refusal};
use node::request_log::Entry;
use oip::{InferRequest, InferResponse, Parameter, Parameters, RequestedOutput, Tensor};
use router::{Answer, Job, Timing};
use router_core::{Class, FamilyId, TimeoutAction};

use crate::service::cached::{self, Lookup};
use crate::service::mirror;
use crate::service::sequence;
use crate::service::sink::{Sink, SinkEnd};
use crate::service::{Answered, RequestContext};
use crate::validate;

/// Value of the parameter `class` of a request that runs only on lanes that no other request wants.
const BEST_EFFORT: &str = "best_effort";

/// How a request is served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// `None`: best effort.
    pub class: Option<NonZeroU32>,
    pub deadline: Option<Instant>,
    pub timeout_action: TimeoutAction,
}

/// A request that is a step of another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepOf {
    /// Those of the whole request.
    pub terms: Terms,
    pub part: PartOf,
}

/// What a request is a step of.
#[derive(Clone, Copy, Debug)]
pub(super) enum PartOf {
    /// An ensemble.
    Ensemble(router::Stage),
    /// A family, of which its model is a variant.
    Family(FamilyId),
}

impl PartOf {
    fn stage(self) -> Option<router::Stage> {
        match self {
            Self::Ensemble(stage) => Some(stage),
            Self::Family(_) => None,
        }
    }

    fn family(self) -> Option<FamilyId> {
        match self {
            Self::Ensemble(_) => None,
            Self::Family(family) => Some(family),
        }
    }
}

/// The terms of a request: those of the whole request for a step, or else by its parameters and the settings of its model.
pub(super) fn terms(
    config: &EffectiveConfig,
    parameters: &Parameters,
    passes_on: bool,
    (context, step): (&RequestContext, Option<StepOf>),
) -> Result<Terms, Refusal> {
    if let Some(step) = step {
        return Ok(step.terms);
    }
    let class = class(config, parameters, passes_on)?;
    let (deadline, timeout_action) = deadline(config, class, parameters, context)?;
    Ok(Terms { class, deadline, timeout_action })
}

pub(super) async fn attempt(
    catalog: &Arc<Catalog>,
    loaded: &Loaded,
    request: InferRequest,
    context: &RequestContext,
    (sink, step): (Option<(Arc<Sink>, SinkEnd)>, Option<StepOf>),
    (mut entry, trial): (Option<&mut Entry>, &mut Option<Trial>),
) -> Result<Answered, Refusal> {
    let config = loaded.config();
    let Terms { class, deadline, timeout_action } =
        terms(&config, &request.parameters, loaded.takes_requests, (context, step))?;
    if let Some(entry) = &mut entry {
        (entry.class, entry.best_effort) = (class.map_or(0, NonZeroU32::get), class.is_none());
        entry.objective = deadline.map(|deadline| deadline.saturating_duration_since(context.arrived));
    }
    validate::outputs(&loaded.client, request.outputs.as_deref())?;
    let mirrored = trial.as_ref().and_then(Trial::mirror).map(|mirror| (mirror, request.inputs.clone()));
    let mut valid = validate::inputs(&loaded.client, request.inputs)?;
    let (named, parameters) = (request.outputs.as_deref(), &request.parameters);
    let lookup = cached::look_up(catalog, loaded, &valid.member.inputs, named, parameters, context).await;
    let missed = match lookup {
        Lookup::Hit(response) => {
            trial.take().into_iter().for_each(Trial::disregard);
            let response = complete(loaded, request.id, request.outputs, response);
            return Ok(Answered { response, timing: Timing::default() });
        }
        Lookup::Miss(key, took) => Some((key, took)),
        Lookup::Off => None,
    };
    let rows = valid.member.rows;
    if let Some(entry) = &mut entry {
        entry.rows = rows;
    }
    let sequence = sequence::step(loaded, &request.parameters, rows)?;
    let padding = loaded.padding.as_ref();
    let padded = padding.and_then(|padding| Some((padding, padding.pad(&mut valid.member.inputs)?)));
    if padded.is_some() {
        valid.bytes = valid.member.inputs.iter().flatten().map(|tensor| tensor.data.len() as u64).sum();
    }
    let mut member = valid.member;
    let (sink, sink_end) = sink.unzip();
    let _watch = loaded.takes_requests.then(|| {
        let cancelled = Cancelled::default();
        let asked = unsigned(&request.parameters, "timeout").ok().flatten();
        member.details = Some(Arc::new(RequestDetails {
            id: request.id.clone(),
            parameters: request.parameters.clone(),
            outputs: request.outputs.as_ref().map(|list| list.iter().map(|one| one.name.clone()).collect()),
            timeout_us: asked.unwrap_or(0),
            cancelled: cancelled.clone(),
            responses: sink.map(|sink| sink as Arc<dyn ResponseSink>),
        }));
        CancelOnDrop(cancelled)
    });
    let job = Job {
        model: loaded.id,
        class: class.map_or(Class::BEST_EFFORT, |class| batching::class(class.get())),
        tenant: context.tenant.number,
        shape: loaded.shapes.key(&member.inputs),
        member,
        bytes: valid.bytes,
        deadline,
        timeout_action,
        sequence,
        gather: context.gather,
        stage: step.and_then(|step| step.part.stage()),
        family: step.and_then(|step| step.part.family()),
    };
    let answer = catalog.submit(loaded, job).await?;
    if let Some(trace) = context.trace.as_ref().filter(|_| step.is_none()) {
        trace.ran(answer.admitted, &answer.timing);
    }
    if let Some(entry) = entry {
        entry.timing = answer.timing;
        entry.record = Some(answer.record);
        entry.before_queue = answer.admitted.saturating_duration_since(context.arrived);
    }
    if let Some(sink_end) = sink_end {
        sink_end.over(&loaded.name).await?;
    }
    let total = context.arrived.elapsed();
    let met = deadline.map(|deadline| Instant::now() <= deadline);
    trial.take().into_iter().for_each(|trial| trial.answered(met != Some(false)));
    loaded.metrics.record_answer(&answer.timing, total, met);
    if step.is_none() {
        catalog.tenants().answered(context.tenant, met);
    }
    if answer.timing.leads_batch {
        loaded.metrics.record_batch(answer.timing.batch_rows);
    }
    loaded.statistics.answered(rows, &answer.timing, total, met);
    let Answer { mut response, timing, .. } = answer;
    if let Some((padding, padded)) = padded {
        let failed =
            |reason| Refusal::new(Reason::EngineFailed, format!("model `{}`: {reason}", loaded.name));
        response.outputs = padding.restore(padded, response.outputs).map_err(failed)?;
    }
    if let Some((mirror, inputs)) = mirrored {
        mirror::run(Arc::clone(catalog), mirror, inputs, response.clone());
    }
    if let Some(missed) = missed {
        cached::remember(catalog, loaded, missed, &response);
    }
    Ok(Answered { response: complete(loaded, request.id, request.outputs, response), timing })
}

/// The model's response as the client gets it.
fn complete(
    loaded: &Loaded,
    id: String,
    asked: Option<Vec<RequestedOutput>>,
    response: Response,
) -> InferResponse {
    InferResponse {
        model_name: loaded.name.clone(),
        model_version: loaded.version.to_string(),
        id,
        parameters: response.parameters,
        outputs: select(response.outputs, asked),
    }
}

/// Tells the model that its client has stopped waiting.
struct CancelOnDrop(Cancelled);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// The requested outputs in the model's order, with their parameters.
pub(super) fn select(
    outputs: Vec<Tensor>,
    asked: Option<Vec<RequestedOutput>>,
) -> Vec<(Tensor, oip::OutputParameters)> {
    let Some(mut asked) = asked else {
        return outputs.into_iter().map(|output| (output, oip::OutputParameters::default())).collect();
    };
    let wanted = |output: Tensor| {
        let position = asked.iter().position(|asked| asked.name == output.name)?;
        Some((output, asked.swap_remove(position).parameters))
    };
    outputs.into_iter().filter_map(wanted).collect()
}

/// A request parameter as a whole number of 0 or more.
fn unsigned(parameters: &Parameters, name: &str) -> Result<Option<u64>, Refusal> {
    let Some((_, value)) = parameters.iter().find(|(key, _)| key == name) else { return Ok(None) };
    let number = match value {
        Parameter::Int(number) => u64::try_from(*number).ok(),
        Parameter::Bool(_) | Parameter::Double(_) | Parameter::String(_) => None,
    };
    let wrong = || {
        Refusal::new(Reason::Malformed, format!("parameters.{name}: expected a whole number of 0 or more"))
    };
    number.ok_or_else(wrong).map(Some)
}

/// The deadline of a request of a class, and what happens if it cannot be met.
///
/// Arrival plus the request's `timeout` (in microseconds, 0 means none) or else the model's objective, which does not hold for best
/// effort, at most the transport's deadline. The client disconnects at the transport's deadline, so no request is delayed beyond it.
fn deadline(
    config: &EffectiveConfig,
    class: Option<NonZeroU32>,
    parameters: &Parameters,
    context: &RequestContext,
) -> Result<(Option<Instant>, TimeoutAction), Refusal> {
    let queue = config.queue_of(class.unwrap_or(config.default_class));
    let asked = unsigned(parameters, "timeout")?.filter(|micros| *micros > 0).map(Duration::from_micros);
    let own = queue.timeout(asked).map(|asked| config.timeout_max.map_or(asked, |max| asked.min(max)));
    let objective = config.slo.filter(|_| class.is_some());
    let (own, transport) = (own.or(objective), context.transport_timeout);
    let delays = queue.delays && own.is_some() && transport.is_none_or(|transport| own < Some(transport));
    let action = if delays { TimeoutAction::Delay } else { TimeoutAction::Reject };
    let span = [own, transport].into_iter().flatten().min();
    // A deadline too far in the future to be represented means none.
    Ok((span.and_then(|span| context.arrived.checked_add(span)), action))
}

/// `priority` 1 is the most urgent, 0 means the model's default (Triton's schedule policy extension). `None`: the request is of best
/// effort, because `class` or the model says so. With `passes_on`, the model gets the parameters, and another `class` is its own.
fn class(
    config: &EffectiveConfig,
    parameters: &Parameters,
    passes_on: bool,
) -> Result<Option<NonZeroU32>, Refusal> {
    let priority = unsigned(parameters, "priority")?.unwrap_or_default();
    let asked = parameters.iter().find(|(name, _)| name == "class").map(|(_, value)| value);
    let best_effort = match asked {
        None => config.best_effort,
        Some(Parameter::String(class)) if class == BEST_EFFORT => true,
        Some(_) if passes_on => config.best_effort,
        Some(_) => {
            let problem = format!("parameters.class: expected \"{BEST_EFFORT}\", or none");
            return Err(Refusal::new(Reason::Malformed, problem));
        }
    };
    Ok((!best_effort).then(|| config.class(priority)))
}
