//! A model that takes sequences: which inputs the server adds, and what clients see.

use std::num::NonZeroU32;

use models::repository::{FalseTrue, SequenceBatching, Signal, StateTensor};
use models::{Dim, EffectiveConfig, Signature, TensorSpec};
use oip::{Datatype, Tensor};
use router::{SequenceModel, ServerInput, ServerValue, StateOutput, server_tensor};
use router_core::{Nanos, SequenceLimits};

/// A model's sequences, and the signature without the tensors of the server.
pub(super) struct Prepared {
    pub model: SequenceModel,
    pub client: Signature,
}

/// Matches `sequence_batching` with the graph. None if the model takes no sequences.
///
/// # Errors
/// A tensor that the graph does not have, or of another type or shape.
pub(super) fn prepare(
    config: &EffectiveConfig,
    signature: &Signature,
    lanes: usize,
    held: u32,
) -> Result<Option<Prepared>, String> {
    let Some(sequences) = &config.sequences else { return Ok(None) };
    let mut inputs = Vec::with_capacity(sequences.controls.len() + sequences.states.len());
    for control in &sequences.controls {
        let wrong = |reason: String| {
            format!("config.pbtxt: sequence_batching.control_input `{}`: {reason}", control.input)
        };
        let (position, spec) = find(&signature.inputs, &control.input).map_err(wrong)?;
        check_type(spec, control.datatype).map_err(wrong)?;
        let ones: Option<Vec<u64>> = spec.dims.iter().map(|dim| one_of(*dim)).collect();
        let ones = ones.ok_or_else(|| wrong("expected one element for each row".to_owned()))?;
        let tensor = |data: &[u8]| server_tensor(&spec.name, spec.datatype, &ones, data.to_vec());
        let both = |FalseTrue(off, on): &FalseTrue| [tensor(off), tensor(on)];
        let value = match &control.signal {
            Signal::Start(values) => ServerValue::Start(both(values)),
            Signal::End(values) => ServerValue::End(both(values)),
            Signal::Ready(FalseTrue(_, on)) => ServerValue::Ready(tensor(on)),
            Signal::CorrelationId => ServerValue::Id(tensor(&[])),
        };
        inputs.push(ServerInput { position, value });
    }
    let mut states = Vec::with_capacity(sequences.states.len());
    for (nth, state) in sequences.states.iter().enumerate() {
        let wrong = |tensor: &str| {
            let tensor = tensor.to_owned();
            move |reason: String| format!("config.pbtxt: sequence_batching.state `{tensor}`: {reason}")
        };
        let (position, spec) = find(&signature.inputs, &state.input).map_err(wrong(&state.input))?;
        let (_, output) = find(&signature.outputs, &state.output).map_err(wrong(&state.output))?;
        check_type(spec, state.datatype).map_err(wrong(&state.input))?;
        check_type(output, state.datatype).map_err(wrong(&state.output))?;
        let batch = (signature.max_batch > 0).then_some(1);
        let extents: Vec<u64> = batch.into_iter().chain(state.initial.iter().copied()).collect();
        let initial = start_of(state, spec, &extents).map_err(wrong(&state.input))?;
        inputs.push(ServerInput { position, value: ServerValue::State(nth, initial) });
        let (output, input) = (state.output.clone(), state.input.clone());
        states.push(StateOutput { output, input, is_returned: state.is_returned });
    }
    inputs.sort_by_key(|input| input.position);
    if let Some(twice) = inputs.windows(2).find_map(|pair| match pair {
        [one, other] if one.position == other.position => signature.inputs.get(one.position),
        _ => None,
    }) {
        return Err(format!(
            "config.pbtxt: sequence_batching: input `{}` is set twice: expected once",
            twice.name
        ));
    }
    let client = client_signature(signature, &inputs, &states);
    if signature.max_batch > 0 && client.inputs.is_empty() {
        return Err("config.pbtxt: sequence_batching: expected an input that clients send".to_owned());
    }
    let limits = limits(sequences, signature, lanes, held);
    Ok(Some(Prepared { model: SequenceModel { limits, inputs, states }, client }))
}

fn limits(sequences: &SequenceBatching, signature: &Signature, lanes: usize, held: u32) -> SequenceLimits {
    let each = sequences.per_lane.map_or(signature.max_batch.max(1), NonZeroU32::get);
    let lanes = u32::try_from(lanes.max(1)).unwrap_or(u32::MAX);
    SequenceLimits { slots: each.saturating_mul(lanes), held, idle: Nanos::from(sequences.idle) }
}

/// Whether a model that keeps the state of sequences in its process can serve them on that many lanes.
///
/// # Errors
/// What has to change.
pub(super) fn check_process(engine: &str, lanes: usize, decoupled: bool, live: bool) -> Result<(), String> {
    let problem = if decoupled {
        "decoupled models are not supported".to_owned()
    } else if lanes > 1 {
        format!("it has {lanes} lanes, expected one: set `instance_group {{ count: 1 }}`")
    } else if live {
        "its lane may change, expected `partition.live = false`".to_owned()
    } else {
        return Ok(());
    };
    let reason = "the model keeps what it knows of a sequence in the process of its lane";
    Err(format!("config.pbtxt: sequence_batching: engine `{engine}`: {reason}: {problem}"))
}

fn find<'a>(specs: &'a [TensorSpec], name: &str) -> Result<(usize, &'a TensorSpec), String> {
    let found = specs.iter().enumerate().find(|(_, spec)| spec.name == name);
    found.ok_or_else(|| {
        let names: Vec<String> = specs.iter().map(|spec| format!("`{}`", spec.name)).collect();
        format!("is not in the model: expected one of {}", names.join(", "))
    })
}

fn check_type(spec: &TensorSpec, datatype: Datatype) -> Result<(), String> {
    if spec.datatype == datatype {
        return Ok(());
    }
    Err(format!("is {datatype}: the model has {} for `{}`", spec.datatype, spec.name))
}

fn one_of(dim: Dim) -> Option<u64> {
    match dim {
        Dim::Free | Dim::Fixed(1) => Some(1),
        Dim::Fixed(_) => None,
    }
}

/// A state at the start of a sequence.
fn start_of(state: &StateTensor, spec: &TensorSpec, extents: &[u64]) -> Result<Tensor, String> {
    let zeros = zeros(spec, extents)?;
    let Some(file) = &state.file else { return Ok(zeros) };
    let name = &file.name;
    let Some(data) = &file.data else {
        return Err(format!(
            "initial_state.data_file: `{name}` is read with a repository only: expected `zero_data` in a configuration that a load brings"
        ));
    };
    let (got, expected) = (data.len(), zeros.data.len());
    if got != expected {
        return Err(format!(
            "initial_state/{name} has {got} bytes: expected {expected} for dims {extents:?}"
        ));
    }
    Ok(Tensor { data: data.clone(), ..zeros })
}

fn zeros(spec: &TensorSpec, extents: &[u64]) -> Result<Tensor, String> {
    let fits = spec.dims.len() == extents.len()
        && spec.dims.iter().zip(extents).all(|(dim, extent)| match dim {
            Dim::Free => true,
            Dim::Fixed(fixed) => fixed == extent,
        });
    let dims = || spec.dims.iter().map(|dim| dim.to_wire().to_string()).collect::<Vec<_>>().join(",");
    if !fits {
        return Err(format!("has dims {extents:?} at the start of a sequence: the model has [{}]", dims()));
    }
    let elements = extents.iter().try_fold(1_u64, |product, extent| product.checked_mul(*extent));
    let bytes = elements.zip(spec.datatype.size()).and_then(|(count, size)| count.checked_mul(size as u64));
    let bytes = bytes.filter(|bytes| *bytes <= STATE_BYTES_MAX).and_then(|bytes| usize::try_from(bytes).ok());
    let bytes =
        bytes.ok_or_else(|| format!("has dims {extents:?}: expected at most {STATE_BYTES_MAX} bytes"))?;
    Ok(server_tensor(&spec.name, spec.datatype, extents, vec![0; bytes]))
}

/// Bytes of one state at the start of a sequence.
const STATE_BYTES_MAX: u64 = 1 << 30;

fn client_signature(signature: &Signature, inputs: &[ServerInput], states: &[StateOutput]) -> Signature {
    let own = |position: usize| inputs.iter().any(|input| input.position == position);
    let hidden = |name: &str| states.iter().any(|state| !state.is_returned && state.output == name);
    let kept = signature.inputs.iter().enumerate().filter(|(position, _)| !own(*position));
    Signature {
        inputs: kept.map(|(_, spec)| spec.clone()).collect(),
        outputs: signature.outputs.iter().filter(|spec| !hidden(&spec.name)).cloned().collect(),
        max_batch: signature.max_batch,
    }
}
