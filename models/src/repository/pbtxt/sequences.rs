//! `sequence_batching`: control inputs, state and the bounds of sequences.

use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::num::NonZeroU32;
use std::path::{Component, Path};
use std::time::Duration;

use bytes::Bytes;
use oip::Datatype;
use oip::proto::model_sequence_batching::control::Kind;
use oip::proto::model_sequence_batching::initial_state::StateData;
use oip::proto::model_sequence_batching::{Control, State, StrategyChoice};
use oip::proto::{DataType, ModelDynamicBatching, ModelSequenceBatching};

use super::datatype;
use super::problems::Problems;

const PATH: &str = "sequence_batching";
/// Triton's default of `max_sequence_idle_microseconds`.
const IDLE: Duration = Duration::from_secs(1);

/// How a model runs sequences of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceBatching {
    /// A sequence without requests for this long ends.
    pub idle: Duration,
    /// Sequences that run at a time on each lane; `None`: as many as the largest batch has rows.
    pub per_lane: Option<NonZeroU32>,
    /// Inputs that the server sets.
    pub controls: Vec<ControlInput>,
    /// Tensors that the server keeps from one request of a sequence to the next.
    pub states: Vec<StateTensor>,
}

/// An input that tells the model where in its sequence a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlInput {
    /// Name of the input.
    pub input: String,
    /// What it says.
    pub signal: Signal,
    /// Its element type.
    pub datatype: Datatype,
}

/// What a control input says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Whether the request is the first of its sequence.
    Start(FalseTrue),
    /// Whether the request is the last of its sequence.
    End(FalseTrue),
    /// Whether the row holds a request.
    Ready(FalseTrue),
    /// The id of the sequence.
    CorrelationId,
}

/// The elements for false and true, little-endian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FalseTrue(pub Vec<u8>, pub Vec<u8>);

/// An output that becomes an input of the next request of the sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateTensor {
    /// Input that receives it.
    pub input: String,
    /// Output that returns it.
    pub output: String,
    /// Its element type.
    pub datatype: Datatype,
    /// Dimensions at the start of a sequence, without the batch.
    pub initial: Vec<u64>,
    /// Its elements at the start of a sequence. `None`: zeros.
    pub file: Option<StateFile>,
    /// Whether the file declares the output, so that clients get it too.
    pub is_returned: bool,
}

/// A file in the folder `initial_state` of the model.
#[derive(Clone, PartialEq, Eq)]
pub struct StateFile {
    /// Its name.
    pub name: String,
    /// Its content. `None`: it was not read, because the configuration does not come from a repository.
    pub data: Option<Bytes>,
}

impl fmt::Debug for StateFile {
    /// Shows a hash of the content, so that a changed file is a changed setting.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut hasher = DefaultHasher::new();
        self.data.hash(&mut hasher);
        write!(f, "{} ({:016x})", self.name, hasher.finish())
    }
}

/// Reads the files of initial states.
///
/// # Errors
/// The field, and what is wrong with the file.
pub(in super::super) fn read_state_files(
    sequences: &mut SequenceBatching,
    read: impl Fn(&Path) -> Result<Bytes, String>,
) -> Result<(), (String, String)> {
    for state in &mut sequences.states {
        let Some(file) = &mut state.file else { continue };
        let field = format!("config.pbtxt: {PATH}.state `{}`: initial_state.data_file", state.input);
        if !Path::new(&file.name).components().all(|part| matches!(part, Component::Normal(_))) {
            let reason = "expected a file in the folder `initial_state` of the model";
            return Err((field, format!("is `{}`: {reason}", file.name)));
        }
        let inner = Path::new("initial_state").join(&file.name);
        file.data = Some(read(&inner).map_err(|reason| (field, reason))?);
    }
    Ok(())
}

pub(super) fn sequences(
    batching: &ModelSequenceBatching,
    declared_outputs: &[&str],
    problems: &mut Problems<'_>,
) -> SequenceBatching {
    let idle = batching.max_sequence_idle_microseconds;
    let per_lane = match &batching.strategy_choice {
        Some(StrategyChoice::Oldest(oldest)) => {
            let most = u32::try_from(oldest.max_candidate_sequences);
            if most.is_err() {
                let path = format!("{PATH}.oldest.max_candidate_sequences");
                problems.add(&path, format!("is {}: expected 0 or more", oldest.max_candidate_sequences));
            }
            most.ok().and_then(NonZeroU32::new)
        }
        Some(StrategyChoice::Direct(_)) | None => None,
    };
    let mut controls: Vec<ControlInput> = Vec::new();
    for (index, input) in batching.control_input.iter().enumerate() {
        let path = format!("{PATH}.control_input[{index}]");
        let (1, Some(control)) = (input.control.len(), input.control.first()) else {
            problems.add(&format!("{path}.control"), format!("has {}: expected 1", input.control.len()));
            continue;
        };
        let Some((signal, datatype)) = signal(&format!("{path}.control[0]"), control, problems) else {
            continue;
        };
        let same =
            |other: &ControlInput| std::mem::discriminant(&other.signal) == std::mem::discriminant(&signal);
        if controls.iter().any(same) {
            problems.add(&path, "has a kind that another input has: expected each kind once".to_owned());
            continue;
        }
        controls.push(ControlInput { input: input.name.clone(), signal, datatype });
    }
    let states = batching.state.iter().enumerate();
    let states = states.filter_map(|(index, tensor)| {
        state(&format!("{PATH}.state[{index}]"), tensor, declared_outputs, problems)
    });
    let states = states.collect();
    let idle = if idle == 0 { IDLE } else { Duration::from_micros(idle) };
    SequenceBatching { idle, per_lane, controls, states }
}

/// Requests of different sequences are batched like others.
pub(super) fn as_dynamic(batching: &ModelSequenceBatching) -> Option<ModelDynamicBatching> {
    let Some(StrategyChoice::Oldest(oldest)) = &batching.strategy_choice else { return None };
    Some(ModelDynamicBatching {
        preferred_batch_size: oldest.preferred_batch_size.clone(),
        max_queue_delay_microseconds: oldest.max_queue_delay_microseconds,
        ..ModelDynamicBatching::default()
    })
}

fn signal(path: &str, control: &Control, problems: &mut Problems<'_>) -> Option<(Signal, Datatype)> {
    let kind = Kind::try_from(control.kind).ok();
    if kind == Some(Kind::ControlSequenceCorrid) {
        let wanted = [
            DataType::TypeUint64,
            DataType::TypeInt64,
            DataType::TypeUint32,
            DataType::TypeInt32,
            DataType::TypeString,
        ];
        let known = wanted.into_iter().any(|known| known as i32 == control.data_type);
        let Some(datatype) = datatype(control.data_type).filter(|_| known) else {
            let expected = "expected TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 or TYPE_STRING";
            problems.add(&format!("{path}.data_type"), expected.to_owned());
            return None;
        };
        return Some((Signal::CorrelationId, datatype));
    }
    let [ints, floats, bools] =
        [control.int32_false_true.len(), control.fp32_false_true.len(), control.bool_false_true.len()];
    let values = match (ints, floats, bools) {
        (2, 0, 0) => pair(&control.int32_false_true, |value| value.to_le_bytes().to_vec())
            .map(|values| (values, Datatype::Int32)),
        (0, 2, 0) => pair(&control.fp32_false_true, |value| value.to_le_bytes().to_vec())
            .map(|values| (values, Datatype::Fp32)),
        (0, 0, 2) => pair(&control.bool_false_true, |value| vec![u8::from(value)])
            .map(|values| (values, Datatype::Bool)),
        _ => None,
    };
    let Some((values, datatype)) = values else {
        let reason = "expected two values in one of int32_false_true, fp32_false_true and bool_false_true";
        problems.add(path, reason.to_owned());
        return None;
    };
    let signal = match kind {
        Some(Kind::ControlSequenceStart) => Signal::Start(values),
        Some(Kind::ControlSequenceEnd) => Signal::End(values),
        _ => Signal::Ready(values),
    };
    Some((signal, datatype))
}

fn pair<T: Copy>(values: &[T], bytes: impl Fn(T) -> Vec<u8>) -> Option<FalseTrue> {
    match values {
        [off, on] => Some(FalseTrue(bytes(*off), bytes(*on))),
        _ => None,
    }
}

fn state(
    path: &str,
    state: &State,
    declared_outputs: &[&str],
    problems: &mut Problems<'_>,
) -> Option<StateTensor> {
    let given = state.initial_state.first();
    let dims = given.map_or(&state.dims, |initial| &initial.dims);
    let datatype = datatype(state.data_type).filter(|datatype| *datatype != Datatype::Bytes);
    if datatype.is_none() {
        problems.add(&format!("{path}.data_type"), "expected a type of numbers".to_owned());
    }
    if state.initial_state.len() > 1 {
        problems.add(&format!("{path}.initial_state"), "expected at most one".to_owned());
    }
    if given.is_some_and(|initial| initial.data_type != state.data_type) {
        let reason = "differs from that of the state: expected the same".to_owned();
        problems.add(&format!("{path}.initial_state[0].data_type"), reason);
    }
    if let Some(dim) = dims.iter().find(|&&dim| dim < -1 || dim == 0) {
        problems.add(&format!("{path}.dims"), format!("has {dim}: expected -1 or 1 and more"));
    }
    // As in Triton, a free dimension has one element before the model has set it.
    let initial = dims.iter().map(|&dim| u64::try_from(dim).unwrap_or(1)).collect();
    let file = given.and_then(|initial| match &initial.state_data {
        Some(StateData::DataFile(name)) => Some(StateFile { name: name.clone(), data: None }),
        Some(StateData::ZeroData(_)) | None => None,
    });
    Some(StateTensor {
        file,
        input: state.input_name.clone(),
        output: state.output_name.clone(),
        datatype: datatype?,
        initial,
        is_returned: declared_outputs.contains(&state.output_name.as_str()),
    })
}
