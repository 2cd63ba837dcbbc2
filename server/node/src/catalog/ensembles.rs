//! Ensembles: versions without sessions, which run other models.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use models::{Dim, Ensemble, EnsembleStep, ModelFiles, Signature, TensorSpec};
use oip::Datatype;
use router_core::pipeline::Graph;
use router_core::{FamilyId, ModelId, PipelineId, PipelineSpec};
use tokio_util::task::TaskTracker;

use super::Catalog;
use super::activation::Activation;
use super::families::{self, ServedFamily};
use super::load::limit_of;
use super::pipelines;
use super::refusal_report::RefusalReport;
use super::served_ensemble::ServedEnsemble;
use super::shapes::Shapes;
use super::statistics::Statistics;
use super::validation::Planned;
use super::version::{Loaded, Settings};
use super::votes::ServedVote;
use crate::reason::{Reason, Refusal};

/// Name of the engine of ensembles.
pub const ENSEMBLE: &str = "ensemble";

impl Catalog {
    /// What the router is to know of an ensemble of which a request holds these versions. `None`: it knows it. A request may hold the
    /// canary of a model, so the versions that serve by default decide.
    pub fn changed_pipeline(
        &self,
        served: &ServedEnsemble,
        held: impl Iterator<Item = ModelId>,
    ) -> Option<PipelineSpec> {
        if served.knows(held) {
            return None;
        }
        let members = served.ensemble.steps.iter().map(|step| Some(self.member(step).ok()?.id));
        served.changed(&members.collect::<Option<Vec<_>>>()?)
    }

    /// The version that a step runs by default.
    fn member(&self, step: &EnsembleStep) -> Result<Arc<Loaded>, Refusal> {
        self.find(&step.model, step.version.map(|version| version.to_string()).as_deref())
    }

    /// Models that are to be loaded before one, those of inner ensembles first. None for models that are no ensembles.
    ///
    /// # Errors
    /// Ensembles run each other in a circle.
    pub(super) fn members_to_load(
        &self,
        name: &str,
        members: &BTreeSet<String>,
    ) -> Result<Vec<String>, Refusal> {
        let (mut ordered, mut path) = (Vec::new(), vec![name.to_owned()]);
        self.add_members(members, &mut path, &mut ordered)?;
        Ok(ordered)
    }

    fn add_members(
        &self,
        members: &BTreeSet<String>,
        path: &mut Vec<String>,
        ordered: &mut Vec<String>,
    ) -> Result<(), Refusal> {
        for member in members {
            if path.contains(member) {
                let message = format!("ensembles run each other: {} -> {member}", path.join(" -> "));
                return Err(Refusal::new(Reason::LoadFailed, message));
            }
            if ordered.contains(member) || !self.serving(member).is_empty() {
                continue;
            }
            path.push(member.clone());
            self.add_members(&self.source.members(member), path, ordered)?;
            path.pop();
            ordered.push(member.clone());
        }
        Ok(())
    }

    /// Makes an ensemble ready. Its models are loaded already.
    pub(super) fn admit_ensemble(&self, planned: Planned, files: &ModelFiles) -> Result<Arc<Loaded>, String> {
        let ensemble = Ensemble::of(files).map_err(|error| error.to_string())?;
        let members = ensemble.steps.iter().enumerate().map(|(number, step)| {
            let found = self.member(step).map_err(|refusal| format!("step {number}: {}", refusal.message))?;
            if found.decoupled {
                let problem = "may give any number of responses: expected a model that gives one";
                return Err(format!("step {number}: model `{}` {problem}", step.model));
            }
            if found.ensemble.as_ref().is_some_and(|served| served.family.is_some()) {
                let problem = "is a family: expected one of its variants";
                return Err(format!("step {number}: `{}` {problem}", step.model));
            }
            Ok(found)
        });
        let members = members.collect::<Result<Vec<_>, String>>()?;
        let signatures: Vec<&Signature> = members.iter().map(|member| &*member.client).collect();
        check_tensors(planned.config.name.as_str(), &ensemble, &signatures)?;
        let graph = Graph::new(ensemble.after()).map_err(|error| error.to_string())?;
        let Planned { config, labels, version, hash, file_bytes, .. } = planned;
        let id = self.take_id();
        let signature = Arc::new(ensemble.signature());
        let (name, version) = (config.name.as_str().to_owned(), version.0);
        let settings = self.source.pipeline_settings(&name);
        let shares = match settings {
            Some(settings) => pipelines::shares(settings, &ensemble, &graph)?,
            None => graph.even_shares(),
        };
        let split = settings.map(|settings| settings.deadlines).unwrap_or_default();
        let family = self.source.family_settings(&name).map(|settings| {
            let variants = members.iter().map(|member| (member.name.as_str(), member.hash));
            let qualities = families::qualities(variants, |variant| self.source.quality(variant));
            let qualities = qualities.map_err(|problem| format!("families.{name}.{problem}"))?;
            if let Some(other) =
                members.iter().find(|member| member.ensemble.is_some() || member.config().sequences.is_some())
            {
                let problem = "is an ensemble, or takes sequences: expected a model of independent requests";
                return Err(format!("families.{name}.variants: `{}` {problem}", other.name));
            }
            let family = ServedFamily::new(FamilyId(id.0), qualities, settings);
            family.check().map_err(|problem| format!("families.{name}.{problem}"))?;
            Ok::<_, String>(family)
        });
        let family = family.transpose()?;
        let voters =
            members.iter().map(|member| (member.name.as_str(), member.hash, member.client.max_batch));
        let vote = ServedVote::of(&ensemble, &voters.collect::<Vec<_>>(), |model| self.source.quality(model));
        let vote = vote.map_err(|problem| format!("pipelines.{name}.vote: {problem}"))?;
        let kind = if family.is_some() { "a family" } else { "an ensemble" };
        let served = ServedEnsemble::new(ensemble, graph, PipelineId(id.0), (shares, split), (family, vote));
        tracing::info!(model = %name, version, steps = served.ensemble.steps.len(), "ready: {kind}");
        Ok(Arc::new(Loaded {
            id,
            load: self.next_load(),
            caches: config.caches_responses() && self.response_cache().is_on(),
            metrics: self.metrics_of(&config, version),
            name,
            version,
            shapes: Shapes::new(&signature),
            client: Arc::clone(&signature),
            signature,
            activation: Activation::new(None, limit_of(&config, self.environment.queue_limit)),
            settings: ArcSwap::from_pointee(Settings { config: Arc::new(config), labels: Arc::new(labels) }),
            hash,
            file_bytes,
            engine: ENSEMBLE,
            takes_requests: false,
            decoupled: false,
            ensemble: Some(Box::new(served)),
            lanes: Mutex::default(),
            reference: None,
            prepared: None,
            padding: None,
            measured: Vec::new(),
            measured_shapes: BTreeMap::new(),
            measured_cores: 0,
            load_time: std::time::Duration::ZERO,
            memory: Mutex::default(),
            statistics: Statistics::default(),
            refusals: RefusalReport::default(),
            users: TaskTracker::new(),
        }))
    }
}

/// A tensor of an ensemble, and who says what it is.
struct Seen<'a> {
    datatype: Datatype,
    dims: Vec<Dim>,
    by: &'a str,
}

/// Checks that each step has the tensors of its model, and that all that take or give a tensor agree on it.
fn check_tensors(name: &str, ensemble: &Ensemble, members: &[&Signature]) -> Result<(), String> {
    let own = ensemble.signature();
    let mut seen: BTreeMap<&str, Seen<'_>> = BTreeMap::new();
    for (_, spec) in own.tensors() {
        let by = Seen { datatype: spec.datatype, dims: spec.dims.clone(), by: name };
        seen.insert(spec.name.as_str(), by);
    }
    let renamed: BTreeSet<&str> = ensemble.sources.keys().map(String::as_str).collect();
    seen.retain(|tensor, _| !renamed.contains(tensor));
    for ((number, step), member) in ensemble.steps.iter().enumerate().zip(members) {
        let model = &step.model;
        if !ensemble.free_rows && ensemble.max_batch > member.max_batch {
            return Err(format!(
                "max_batch_size is {}, but model `{model}` takes {} rows at most: expected no more than that",
                ensemble.max_batch, member.max_batch
            ));
        }
        let sides =
            [("input_map", &step.inputs, &member.inputs), ("output_map", &step.outputs, &member.outputs)];
        for (map, mapped, specs) in sides {
            for (tensor_of_model, tensor) in mapped {
                let Some(spec) = specs.iter().find(|spec| spec.name == *tensor_of_model) else {
                    let known: Vec<String> = specs.iter().map(|spec| format!("`{}`", spec.name)).collect();
                    let expected = known.join(", ");
                    return Err(format!(
                        "step {number}: {map}: model `{model}` has no `{tensor_of_model}`: expected one of {expected}"
                    ));
                };
                agree(tensor, spec, model, &mut seen)?;
            }
        }
        let missing =
            member.inputs.iter().find(|spec| !spec.optional && !step.inputs.contains_key(&spec.name));
        if let Some(missing) = missing {
            let problem = "is missing: expected the name of a tensor of the ensemble";
            return Err(format!(
                "step {number}: input_map: input `{}` of model `{model}` {problem}",
                missing.name
            ));
        }
        check_condition(number, step, member)?;
    }
    Ok(())
}

fn check_condition(number: usize, step: &EnsembleStep, member: &Signature) -> Result<(), String> {
    let Some(condition) = &step.answer_if else { return Ok(()) };
    let found = member.outputs.iter().find(|spec| spec.name == *condition);
    if found.is_some_and(|spec| spec.datatype == Datatype::Bool) {
        return Ok(());
    }
    Err(format!(
        "step {number}: answer_if: expected a BOOL output of model `{}`, got `{condition}`",
        step.model
    ))
}

fn agree<'a>(
    tensor: &'a str,
    spec: &TensorSpec,
    model: &'a str,
    seen: &mut BTreeMap<&'a str, Seen<'a>>,
) -> Result<(), String> {
    let Some(other) = seen.get(tensor) else {
        seen.insert(tensor, Seen { datatype: spec.datatype, dims: spec.dims.clone(), by: model });
        return Ok(());
    };
    if other.datatype != spec.datatype {
        return Err(format!(
            "tensor `{tensor}`: `{}` has {}, and model `{model}` has {}: expected one type",
            other.by, other.datatype, spec.datatype
        ));
    }
    let fits = |(one, two): (&Dim, &Dim)| *one == Dim::Free || *two == Dim::Free || one == two;
    if other.dims.len() != spec.dims.len() || !other.dims.iter().zip(&spec.dims).all(fits) {
        let shown =
            |dims: &[Dim]| dims.iter().map(|dim| dim.to_wire().to_string()).collect::<Vec<_>>().join(",");
        return Err(format!(
            "tensor `{tensor}`: `{}` has shape [{}], and model `{model}` has [{}]: expected one shape",
            other.by,
            shown(&other.dims),
            shown(&spec.dims)
        ));
    }
    Ok(())
}
