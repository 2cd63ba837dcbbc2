//! The `tract` engine: ONNX models in pure Rust, built in.
//!
//! tract optimises a graph for given input shapes, so a session keeps one plan for each combination of input shapes, and
//! evicts the least recently used one. Making a plan takes from milliseconds to seconds, so the number of rows is never
//! part of the shapes. A batch runs on one plan with a symbolic batch if that was measured to be faster than one row at a
//! time, else one row at a time. In the second case the measured profile shows that batching gains nothing, and the
//! batching policy does not wait for larger batches.
//!
//! A plan runs on the thread that calls it; `LoadOptions::threads` has no effect here.

mod inference;
mod plan;
mod rows;
mod value;

use std::time::Duration;

use oip::{Datatype, Tensor};
use tract_onnx::model::Onnx;
use tract_onnx::prelude::{InferenceModel, TractError};
use tract_onnx::tract_hir::internal::TVec;
use tract_onnx::{onnx, pb};

use super::guard::guarded;
use super::{Batch, Content, Engine, Libraries, Prepared, RunError, Session};
use crate::batching;
use crate::onnx::{Graph, has_steady_time};
use crate::stopwatch::Stopwatch;
use crate::{EngineFailure, Format, LoadOptions, Signature, sample};
pub(crate) use inference::infer_types;
use plan::{Plan, PlanCache};

/// Name of this engine.
pub const NAME: &str = "tract";

/// The engine.
pub(crate) const ENGINE: Engine = Engine {
    name: NAME,
    platform: "tract_onnx",
    format: Format::Onnx,
    runs_on_gpus: false,
    takes_undecoded: false,
    load,
};

fn load(
    model: &Prepared<'_>,
    _libraries: &Libraries<'_>,
    options: &LoadOptions,
) -> Result<Box<dyn Session>, EngineFailure> {
    let Content::Onnx { graph: Some(graph), bytes, .. } = &model.content else {
        return Err(failure(None, "takes only ONNX models"));
    };
    check_datatypes(&model.signature)?;
    let template = guarded(|| parse(graph, model.files.folder().and_then(|folder| folder.to_str())))
        .map_err(|error| blame(graph, &error))?;
    let mut session = TractSession {
        model: graph.model.clone(),
        signature: model.signature.clone(),
        template,
        batch_plan: None,
        plans: PlanCache::new(options.plan_cache),
        steady: has_steady_time(model.files, bytes, Some(graph), &model.signature),
    };
    session.prepare(graph)?;
    Ok(Box::new(session))
}

struct TractSession {
    model: String,
    signature: Signature,
    template: InferenceModel,
    /// Serves every number of rows at once; only where that was measured to pay.
    batch_plan: Option<Plan>,
    /// Plans for one row of a batched model, for whole requests of another.
    plans: PlanCache,
    /// Whether every batch of a size takes about as long.
    steady: bool,
}

impl TractSession {
    /// Makes at least one plan now, so that what tract cannot do is known at load and not at the first request.
    fn prepare(&mut self, graph: &Graph) -> Result<(), EngineFailure> {
        if self.signature.has_fixed_inputs() {
            let shapes = sample::shapes(&self.signature, 1);
            let plan = guarded(|| plan::concrete(&self.template, &self.signature, &shapes));
            self.plans.insert(shapes, plan.map_err(|error| blame(graph, &error))?);
            if self.signature.max_batch > 1 {
                self.batch_plan = self.worthwhile_batch_plan();
            }
            return Ok(());
        }
        let Err(first) = guarded(|| plan::analyse(&self.template)) else { return Ok(()) };
        let mut errors = vec![first];
        for extent in sample::EXTENTS {
            let shapes = sample::shapes(&self.signature, extent);
            match guarded(|| plan::concrete(&self.template, &self.signature, &shapes)) {
                Ok(plan) => {
                    self.plans.insert(shapes, plan);
                    return Ok(());
                }
                Err(error) => errors.push(error),
            }
        }
        let mut failures = errors.iter().map(|error| blame(graph, error));
        let named = failures.find(|failure| failure.operator.is_some());
        Err(named.unwrap_or_else(|| blame(graph, errors.first().map_or("", String::as_str))))
    }

    /// A plan with a symbolic batch, if it answers several rows sooner than the one-row plan does one after the
    /// other. tract chooses worse kernels for shapes it does not know, which costs convolutional models up to
    /// five times the time, while small dense models gain.
    fn worthwhile_batch_plan(&mut self) -> Option<Plan> {
        const ROWS: usize = 4;
        let shapes = sample::shapes(&self.signature, 1);
        let one = sample::row(&self.signature, 1, 0)?;
        let many = sample::join(&std::array::from_fn::<_, ROWS, _>(|_| one.clone()));
        let template = &self.template;
        let single = self
            .plans
            .get_or_make(shapes, |shapes| plan::concrete(template, &self.signature, shapes))
            .ok()?;
        let alone = fastest(|| run_plan(single, &one, &self.signature))?;
        if alone > SLOW_ROW {
            return None;
        }
        let made = guarded(|| plan::symbolic_batch(template, &self.signature));
        let plan = made
            .inspect_err(|error| tracing::debug!(model = self.model, error, "batch cannot be symbolic"))
            .ok()?;
        if mixes_rows(single, &plan, &self.signature)? {
            // Whether rows are batched must not depend on how long they took: the loader's check decides.
            return Some(plan);
        }
        let together = fastest(|| run_plan(&plan, &many, &self.signature))?;
        let one_by_one = alone.saturating_mul(ROWS as u32);
        tracing::debug!(model = self.model, ?together, ?one_by_one, rows = ROWS, "measured a symbolic batch");
        (together < one_by_one).then_some(plan)
    }

    fn run_whole(&mut self, batch: &Batch) -> Result<Vec<Tensor>, String> {
        if let Some(plan) = self.batch_plan.as_ref().filter(|_| batch.rows > 1) {
            return run_plan(plan, batch, &self.signature);
        }
        let shapes = batch.inputs.iter().flatten().map(|tensor| tensor.shape.extents().to_vec()).collect();
        let (template, signature) = (&self.template, &self.signature);
        let plan =
            guarded(|| self.plans.get_or_make(shapes, |shapes| plan::concrete(template, signature, shapes)))?;
        run_plan(plan, batch, signature)
    }

    /// A plan that ran at load and fails now fails because of what the request holds: shapes it chose, or
    /// whole numbers that the graph uses as indices.
    fn run_error(&self, error: String) -> RunError {
        let message = format!("model `{}`: engine `{NAME}`: {error}", self.model);
        if self.signature.depends_on_values() { RunError::Input(message) } else { RunError::Engine(message) }
    }
}

impl Session for TractSession {
    fn run(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError> {
        if batch.rows <= 1 || self.signature.max_batch == 0 || self.batch_plan.is_some() {
            return self.run_whole(batch).map_err(|error| self.run_error(error));
        }
        let rows = rows::split(batch).map_err(RunError::Input)?;
        let answers = rows.iter().map(|row| self.run_whole(row)).collect::<Result<Vec<_>, _>>();
        rows::join(answers.map_err(|error| self.run_error(error))?).map_err(|error| self.run_error(error))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn engine(&self) -> &'static str {
        NAME
    }

    fn runs_on_any_thread(&self) -> bool {
        self.steady
    }
}

/// Whether a row's answer is another one where the plan for several rows gives it; `None` if one of them does not run.
fn mixes_rows(single: &Plan, several: &Plan, signature: &Signature) -> Option<bool> {
    let rows = [sample::row(signature, 1, 0)?, sample::row(signature, 1, 1)?];
    let alone = [run_plan(single, &rows[0], signature).ok()?, run_plan(single, &rows[1], signature).ok()?];
    let together = run_plan(several, &sample::join(&rows), signature).ok()?;
    Some(batching::same_rows(signature, &alone, &together).is_err())
}

/// Runs a plan. A missing or ill-formed input is reported as an error like any other.
fn run_plan(plan: &Plan, batch: &Batch, signature: &Signature) -> Result<Vec<Tensor>, String> {
    let given = batch.inputs.iter().zip(&signature.inputs);
    let values = given
        .map(|(tensor, spec)| match tensor {
            Some(tensor) => value::to_tract(tensor),
            None => Err(format!("input `{}`: is missing", spec.name)),
        })
        .collect::<Result<TVec<_>, String>>()?;
    let outputs = guarded(|| plan.run(values))?;
    if outputs.len() != signature.outputs.len() {
        return Err(format!("gave {} outputs: expected {}", outputs.len(), signature.outputs.len()));
    }
    outputs
        .into_iter()
        .zip(&signature.outputs)
        .map(|(output, spec)| value::from_tract(output, spec))
        .collect()
}

/// A row that takes longer than this keeps the core busy by itself; it is not worth the time of measuring
/// whether a batch would be faster.
const SLOW_ROW: Duration = Duration::from_millis(50);

/// The shortest of a few runs; `None` if one fails.
fn fastest(mut run: impl FnMut() -> Result<Vec<Tensor>, String>) -> Option<Duration> {
    const RUNS: usize = 3;
    let mut shortest = Duration::MAX;
    for _ in 0..RUNS {
        let started = Stopwatch::start();
        run().ok()?;
        shortest = shortest.min(started.elapsed());
        if shortest > SLOW_ROW {
            break;
        }
    }
    Some(shortest)
}

fn parse(graph: &Graph, folder: Option<&str>) -> Result<InferenceModel, TractError> {
    let parser: Onnx = onnx().with_ignore_output_shapes(true).with_ignore_value_info(true);
    if let Some(node) = unknown_node(&parser, graph) {
        return Err(TractError::msg(format!("node `{}`: operator is not implemented", node_name(node))));
    }
    let parsed = parser.parse(&graph.proto, folder)?;
    if let Some(name) = parsed.unresolved_inputs.first() {
        return Err(TractError::msg(format!("tensor `{name}` is used but never made")));
    }
    Ok(parsed.model)
}

fn unknown_node<'a>(parser: &Onnx, graph: &'a Graph) -> Option<&'a pb::NodeProto> {
    let nodes = graph.proto.graph.as_ref().map(|g| g.node.as_slice()).unwrap_or_default();
    nodes.iter().find(|node| !parser.op_register.0.contains_key(&node.op_type))
}

/// The name that tract gives to a node.
fn node_name(node: &pb::NodeProto) -> &str {
    if node.name.is_empty() { node.output.first().map_or("", String::as_str) } else { &node.name }
}

fn check_datatypes(signature: &Signature) -> Result<(), EngineFailure> {
    for (kind, spec) in signature.tensors() {
        if spec.datatype == Datatype::Bf16 {
            return Err(failure(None, &format!("{kind} `{}` is BF16, which tract does not have", spec.name)));
        }
    }
    Ok(())
}

fn failure(operator: Option<String>, reason: &str) -> EngineFailure {
    EngineFailure { engine: NAME, operator, reason: reason.to_owned() }
}

/// Finds the graph node that an error message of tract quotes, and names its operator.
fn blame(graph: &Graph, error: &str) -> EngineFailure {
    let nodes = graph.proto.graph.as_ref().map(|g| g.node.as_slice()).unwrap_or_default();
    let quoted = nodes.iter().find(|node| {
        let name = node_name(node);
        !name.is_empty()
            && [format!("\"{name}\""), format!("`{name}`"), format!("node {name} (")]
                .iter()
                .any(|form| error.contains(form.as_str()))
    });
    failure(quoted.map(|node| node.op_type.clone()), error)
}
