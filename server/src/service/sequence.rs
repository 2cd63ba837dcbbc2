//! Parameters of the sequence extension: `sequence_id`, `sequence_start` and `sequence_end`.

use models::repository::Signal;
use node::catalog::Loaded;
use node::reason::{Reason, Refusal};
use oip::{Datatype, Parameter, Parameters};
use router::SequenceStep;
use router_core::CorrelationId;

/// Parameter with the id of a sequence.
const ID: &str = "sequence_id";

/// The id that a request names, if it names one. 0 and the empty text mean none.
fn id(parameters: &Parameters) -> Result<Option<CorrelationId>, Refusal> {
    match parameters.iter().find(|(key, _)| key == ID).map(|(_, value)| value) {
        None => Ok(None),
        Some(Parameter::String(text)) => {
            Ok((!text.is_empty()).then(|| CorrelationId::Text(text.as_str().into())))
        }
        Some(Parameter::Int(number)) => {
            Ok((*number != 0).then(|| CorrelationId::Number(number.cast_unsigned())))
        }
        Some(Parameter::Bool(_) | Parameter::Double(_)) => {
            Err(malformed(format!("parameters.{ID}: expected a whole number or a text")))
        }
    }
}

/// Where in its sequence a request is; `None` if the model takes no sequences. Errors are worded as Triton's.
pub(super) fn step(
    loaded: &Loaded,
    parameters: &Parameters,
    rows: u32,
) -> Result<Option<SequenceStep>, Refusal> {
    let config = loaded.config();
    let Some(sequences) = &config.sequences else { return Ok(None) };
    let name = &loaded.name;
    if rows > 1 {
        let reason = "must specify batch-size 1 due to requirements of sequence batcher";
        return Err(malformed(format!("inference request to model '{name}' {reason}")));
    }
    let Some(id) = id(parameters)? else {
        let reason = "must specify a non-zero or non-empty correlation ID";
        return Err(malformed(format!("inference request to model '{name}' {reason}")));
    };
    let numbers = sequences
        .controls
        .iter()
        .any(|control| control.signal == Signal::CorrelationId && control.datatype != Datatype::Bytes);
    if numbers && matches!(id, CorrelationId::Text(_)) {
        return Err(malformed(format!(
            "parameters.{ID}: model `{name}` takes numbers, expected a whole number"
        )));
    }
    let (start, end) = (flag(parameters, "sequence_start")?, flag(parameters, "sequence_end")?);
    Ok(Some(SequenceStep { id, start, end }))
}

fn flag(parameters: &Parameters, name: &str) -> Result<bool, Refusal> {
    match parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value) {
        None => Ok(false),
        Some(Parameter::Bool(value)) => Ok(*value),
        Some(_) => Err(malformed(format!("parameters.{name}: expected true or false"))),
    }
}

fn malformed(message: String) -> Refusal {
    Refusal::new(Reason::Malformed, message)
}
