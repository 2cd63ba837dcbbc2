//! Requests to families: the router chooses a variant for each.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;

use node::batching;
use node::catalog::{Catalog, Held, Loaded, Quality, ServedEnsemble, ServedFamily, Trial};
use node::reason::{Reason, Refusal};
use node::request_log::{Entry, StageEntry};
use oip::{InferRequest, Parameter, Parameters, TensorData};
use router::{Timing, VariantQuery};
use router_core::{Class, FamilyRequest, ModelId, Nanos, millionths};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::infer::{PartOf, StepOf, Terms, attempt, terms};
use super::{Answered, RequestContext};

/// Least quality, from 0 to 1.
const QUALITY_MIN: &str = "quality_min";
/// Most lane time of the request, in milliseconds.
const COST_MAX: &str = "cost_max";
/// The variant that answers, whatever the load. In answers, the one that did.
const VARIANT: &str = "variant";
/// In answers, the measured quality of the variant.
const QUALITY: &str = "quality";

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Asked<'a> {
    quality_min: f64,
    lane_time_max: Nanos,
    variant: Option<&'a str>,
}

/// A variant that is served, held until the request has ended.
struct Served<'a> {
    loaded: Arc<Loaded>,
    _user: TaskTrackerToken,
    quality: &'a Quality,
}

/// Runs a request on a variant of a family. `step`: it is a step of an ensemble.
pub(super) async fn run(
    catalog: &Arc<Catalog>,
    (loaded, served, family): (&Loaded, &ServedEnsemble, &ServedFamily),
    request: InferRequest,
    (context, step): (&RequestContext, Option<StepOf>),
    (mut entry, trial): (Option<&mut Entry>, &mut Option<Trial>),
) -> Result<Answered, Refusal> {
    let config = loaded.config();
    let asked = asked(&request.parameters, (&loaded.name, served, family))?;
    let terms = terms(&config, &request.parameters, false, (context, step))?;
    let Terms { class, deadline, .. } = terms;
    if let Some(entry) = &mut entry {
        (entry.class, entry.best_effort) = (class.map_or(0, NonZeroU32::get), class.is_none());
        entry.objective = deadline.map(|deadline| deadline.saturating_duration_since(context.arrived));
    }
    let objective = config.slo.map(Nanos::from);
    let variants = hold(catalog, (&loaded.name, served, family), context, objective).await;
    let first = request.inputs.first().and_then(|input| input.shape.extents().first().copied());
    let rows = first.map_or(1, |rows| u32::try_from(rows).unwrap_or(u32::MAX));
    let chosen = match asked.variant {
        Some(pinned) => variants.iter().position(|one| one.loaded.name == pinned),
        None => {
            let wanted = FamilyRequest {
                family: family.id,
                quality_min: millionths(asked.quality_min),
                lane_time_max: asked.lane_time_max,
            };
            let class = class.map_or(Class::BEST_EFFORT, |class| batching::class(class.get()));
            let query = VariantQuery { wanted, class, rows, bytes: bytes_of(&request), deadline };
            let id = catalog.router().choose(query).await;
            variants.iter().position(|one| Some(one.loaded.id) == id)
        }
    };
    let Some(variant) = chosen.and_then(|place| variants.get(place)) else {
        return Err(none_suits((&loaded.name, rows), &asked, &variants));
    };
    let rows = if variant.loaded.client.max_batch > 0 { rows } else { 1 };
    let mut request = request;
    request.model_name.clone_from(&variant.loaded.name);
    request.model_version = None;
    request.parameters.retain(|(name, _)| ![QUALITY_MIN, COST_MAX, VARIANT].contains(&name.as_str()));
    let of = StepOf { terms, part: PartOf::Family(family.id) };
    let (started, mut none) = (context.arrived.elapsed(), None);
    let ends = (entry.as_deref_mut(), &mut none);
    let ended = attempt(catalog, &variant.loaded, request, context, (None, Some(of)), ends).await;
    if let Some(entry) = &mut entry {
        entry.pipeline = vec![StageEntry {
            name: variant.loaded.name.as_str().into(),
            model: variant.loaded.name.as_str().into(),
            version: variant.loaded.version,
            rows,
            parts: 1,
            started,
            ended: context.arrived.elapsed(),
            timing: ended.as_ref().map(|answered| answered.timing).unwrap_or_default(),
            reason: ended.as_ref().err().map(|refusal| refusal.reason),
        }];
    }
    let mut answered = ended.inspect_err(|refusal| {
        variant.loaded.refused(refusal.reason);
        variant.loaded.statistics.failed(context.arrived.elapsed());
    })?;
    let total = context.arrived.elapsed();
    let met = deadline.map(|deadline| Instant::now() <= deadline);
    trial.take().into_iter().for_each(|trial| trial.answered(met != Some(false)));
    // The batch is counted for the variant.
    let timing = Timing { leads_batch: false, ..answered.timing };
    loaded.metrics.record_answer(&timing, total, met);
    loaded.statistics.answered(rows, &timing, total, met);
    if step.is_none() {
        catalog.tenants().answered(context.tenant, met);
    }
    let response = &mut answered.response;
    (response.model_name, response.model_version) = (loaded.name.clone(), loaded.version.to_string());
    response.parameters.push((VARIANT.to_owned(), Parameter::String(variant.loaded.name.clone())));
    response.parameters.push((QUALITY.to_owned(), Parameter::Double(variant.quality.value)));
    Ok(answered)
}

/// The variants that are served with the files whose quality was measured. Tells the router of them.
async fn hold<'a>(
    catalog: &Arc<Catalog>,
    (name, served, family): (&str, &ServedEnsemble, &'a ServedFamily),
    context: &RequestContext,
    objective: Option<Nanos>,
) -> Vec<Served<'a>> {
    let steps = served.ensemble.steps.iter().zip(&family.variants);
    let variants = steps.map(|(step, (hash, quality))| {
        let Held { loaded, trial, user } = catalog.hold(&step.model, None, context.tenant.number).ok()?;
        trial.into_iter().for_each(Trial::disregard);
        (loaded.hash == *hash).then_some(Served { loaded, _user: user, quality })
    });
    let variants: Vec<Option<Served<'a>>> = variants.collect();
    let models: Vec<Option<ModelId>> =
        variants.iter().map(|one| one.as_ref().map(|one| one.loaded.id)).collect();
    if let Some(spec) = family.changed(&models, objective) {
        for (step, _) in served.ensemble.steps.iter().zip(&models).filter(|(_, model)| model.is_none()) {
            tracing::warn!(family = name, variant = %step.model, "a family goes without it: it is not served, or with files whose quality was not measured");
        }
        catalog.router().family_up(spec).await;
    }
    variants.into_iter().flatten().collect()
}

/// What a request asks for.
fn asked<'a>(
    parameters: &'a Parameters,
    (name, served, family): (&str, &ServedEnsemble, &ServedFamily),
) -> Result<Asked<'a>, Refusal> {
    let wrong = |parameter: &str, expected: String| {
        Refusal::new(Reason::Malformed, format!("parameter `{parameter}`: {expected}"))
    };
    let find = |wanted: &str| parameters.iter().find(|(name, _)| name == wanted).map(|(_, value)| value);
    let number = |wanted: &str, expected: &str| match find(wanted) {
        None => Ok(None),
        Some(Parameter::Double(value)) => Ok(Some(*value)),
        Some(Parameter::Int(value)) => Ok(Some(*value as f64)),
        Some(_) => Err(wrong(wanted, format!("expected {expected}"))),
    };
    let best = family.best();
    let quality_min = number(QUALITY_MIN, "a number from 0 to 1")?.unwrap_or(family.quality_min);
    if !(0.0..=best).contains(&quality_min) {
        let expected =
            format!("expected 0 to {best}, the quality of the best variant of `{name}`, got {quality_min}");
        return Err(wrong(QUALITY_MIN, expected));
    }
    let cost_max = number(COST_MAX, "milliseconds of lane time")?;
    if let Some(cost) = cost_max.filter(|cost| !(*cost > 0.0 && cost.is_finite())) {
        return Err(wrong(COST_MAX, format!("expected milliseconds of lane time above 0, got {cost}")));
    }
    let variant = match find(VARIANT) {
        None => None,
        Some(Parameter::String(variant)) => {
            let known: Vec<&str> = served.ensemble.steps.iter().map(|step| step.model.as_str()).collect();
            if !known.contains(&variant.as_str()) {
                let expected = format!("expected a variant of `{name}`: {}", known.join(", "));
                return Err(wrong(VARIANT, expected));
            }
            Some(variant.as_str())
        }
        Some(_) => return Err(wrong(VARIANT, "expected the name of a variant".to_owned())),
    };
    let lane_time_max = cost_max.map_or(Nanos::NEVER, |millis| Nanos((millis * 1e6) as u64));
    Ok(Asked { quality_min, lane_time_max, variant })
}

/// Bytes of the inputs of a request.
fn bytes_of(request: &InferRequest) -> u64 {
    let bytes = request.inputs.iter().map(|input| match &input.data {
        TensorData::Inline(data) => data.len() as u64,
        TensorData::Shared(_) => 0,
    });
    bytes.sum()
}

fn none_suits((name, rows): (&str, u32), asked: &Asked<'_>, variants: &[Served<'_>]) -> Refusal {
    let largest = variants.iter().map(|one| match one.loaded.client.max_batch {
        0 => u32::MAX,
        largest => largest,
    });
    if let Some(largest) = largest.max().filter(|largest| rows > *largest) {
        let message = format!(
            "family `{name}`: {rows} rows: expected at most {largest}, the largest batch of its variants"
        );
        return Refusal::new(Reason::Malformed, message);
    }
    let quality = asked.quality_min;
    let message = match asked.variant {
        Some(variant) => format!("family `{name}`: the variant `{variant}` is not being served"),
        None if asked.lane_time_max == Nanos::NEVER => {
            format!("family `{name}`: no variant with a quality of at least {quality} is being served")
        }
        None => {
            let cost = asked.lane_time_max.0 as f64 / 1e6;
            format!(
                "family `{name}`: no variant with a quality of at least {quality} that takes at most {cost} ms ({COST_MAX}) is being served"
            )
        }
    };
    Refusal::new(Reason::ModelNotReady, message)
}
