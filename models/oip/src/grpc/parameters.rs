//! `parameters` maps.

use std::collections::BTreeMap;

use crate::checks;
use crate::error::{Field, truncate};
use crate::proto::InferParameter;
use crate::proto::infer_parameter::ParameterChoice;
use crate::{Limits, Parameter, Parameters, ProtocolError, SharedMemoryRef};

/// Converts the `parameters` of a request.
///
/// # Errors
/// If there are too many, or one has no value, a value that is not finite, or an integer beyond 63 bits.
pub fn from_proto(
    map: BTreeMap<String, InferParameter>,
    limits: &Limits,
) -> Result<Parameters, ProtocolError> {
    convert(map, Field::Top("parameters"), limits)
}

/// As [`from_proto`], for the map at `field`.
pub(super) fn convert(
    map: BTreeMap<String, InferParameter>,
    field: Field<'_>,
    limits: &Limits,
) -> Result<Parameters, ProtocolError> {
    checks::parameter_count(map.len(), field, limits)?;
    let mut parameters = Parameters::with_capacity(map.len());
    for (name, value) in map {
        checks::length(&name, field, limits)?;
        let value = parameter(value).map_err(|(found, expected)| ProtocolError::Value {
            field: format!("{field}.{}", truncate(&name)),
            found,
            expected: expected.to_owned(),
        })?;
        parameters.push((name, value));
    }
    Ok(parameters)
}

/// Converts the `parameters` of an answer: those that have a value this protocol knows, no more than the limit.
pub(super) fn known(map: BTreeMap<String, InferParameter>, limits: &Limits) -> Parameters {
    let known = map.into_iter().filter_map(|(name, value)| Some((name, parameter(value).ok()?)));
    known.take(limits.parameters.min(Limits::PARAMETERS_MAX)).collect()
}

fn parameter(value: InferParameter) -> Result<Parameter, (String, &'static str)> {
    match value.parameter_choice {
        Some(ParameterChoice::BoolParam(value)) => Ok(Parameter::Bool(value)),
        Some(ParameterChoice::Int64Param(value)) => Ok(Parameter::Int(value)),
        Some(ParameterChoice::Uint64Param(value)) => match i64::try_from(value) {
            Ok(value) => Ok(Parameter::Int(value)),
            Err(_) => Err((value.to_string(), "at most 9223372036854775807")),
        },
        Some(ParameterChoice::DoubleParam(value)) if value.is_finite() => Ok(Parameter::Double(value)),
        Some(ParameterChoice::DoubleParam(value)) => Err((value.to_string(), "a finite number")),
        Some(ParameterChoice::StringParam(value)) => Ok(Parameter::String(value)),
        None => Err(("no value".to_owned(), "one of the parameter types")),
    }
}

/// The members that refer to a shared-memory region.
pub(super) fn region(target: SharedMemoryRef) -> Parameters {
    let number = |value: u64| Parameter::Int(i64::try_from(value).unwrap_or(i64::MAX));
    vec![
        ("shared_memory_region".to_owned(), Parameter::String(target.region)),
        ("shared_memory_offset".to_owned(), number(target.offset)),
        ("shared_memory_byte_size".to_owned(), number(target.byte_size)),
    ]
}

/// Converts parameters to a map.
pub fn to_proto(parameters: Parameters) -> BTreeMap<String, InferParameter> {
    let choice = |value| match value {
        Parameter::Bool(value) => ParameterChoice::BoolParam(value),
        Parameter::Int(value) => ParameterChoice::Int64Param(value),
        Parameter::Double(value) => ParameterChoice::DoubleParam(value),
        Parameter::String(value) => ParameterChoice::StringParam(value),
    };
    parameters
        .into_iter()
        .map(|(name, value)| (name, InferParameter { parameter_choice: Some(choice(value)) }))
        .collect()
}

/// Takes a parameter of one type out of the map.
pub(super) fn take<T>(
    map: &mut BTreeMap<String, InferParameter>,
    field: Field<'_>,
    name: &'static str,
    expected: &'static str,
    convert: impl FnOnce(Parameter) -> Option<T>,
) -> Result<Option<T>, ProtocolError> {
    let Some(value) = map.remove(name) else { return Ok(None) };
    match parameter(value).ok().and_then(convert) {
        Some(value) => Ok(Some(value)),
        None => Err(ProtocolError::Value {
            field: format!("{field}.parameters.{name}"),
            found: "a value of another type or range".to_owned(),
            expected: expected.to_owned(),
        }),
    }
}

/// An integer that is not negative.
pub(super) fn unsigned(value: Parameter) -> Option<u64> {
    match value {
        Parameter::Int(value) => u64::try_from(value).ok(),
        _ => None,
    }
}

/// A string.
pub(super) fn text(value: Parameter) -> Option<String> {
    match value {
        Parameter::String(value) => Some(value),
        _ => None,
    }
}
