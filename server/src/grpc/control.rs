//! Calls other than inference, as functions of messages. Their content is shared with REST.

use std::collections::BTreeMap;

use node::catalog::LoadParameters;
use node::reason::{Reason, Refusal};
use oip::proto;
use oip::proto::log_settings_request::setting_value::ParameterChoice as SentChoice;
use oip::proto::log_settings_response::SettingValue as LogValue;
use oip::proto::log_settings_response::setting_value::ParameterChoice as LogChoice;
use oip::proto::model_repository_parameter::ParameterChoice;
use oip::proto::trace_setting_response::SettingValue as TraceValue;

use crate::front::Front;
use crate::http::{add_load_parameter, check_unload_parameters, wrong_parameter};
use crate::model_metadata;
use crate::settings::{LogValue as SentValue, change_logging};
use crate::trace::{LEVEL, SentValue as SentTrace};

/// An empty string is how protobuf leaves a version or name out.
pub fn named(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

pub fn model_metadata(
    front: &Front,
    asked: &proto::ModelMetadataRequest,
) -> Result<proto::ModelMetadataResponse, Refusal> {
    let version = named(&asked.version);
    Ok(model_metadata::model(&front.service.model(&asked.name, version)?, version.is_some()))
}

pub fn index(
    front: &Front,
    asked: &proto::RepositoryIndexRequest,
) -> Result<proto::RepositoryIndexResponse, Refusal> {
    one_repository(&asked.repository_name)?;
    let rows = front.service.node.index(asked.ready);
    let models = rows
        .into_iter()
        .map(|row| proto::repository_index_response::ModelIndex {
            name: row.name,
            version: row.version,
            state: row.state,
            reason: row.reason,
        })
        .collect();
    Ok(proto::RepositoryIndexResponse { models })
}

pub async fn load(
    front: &Front,
    asked: &proto::RepositoryModelLoadRequest,
) -> Result<proto::RepositoryModelLoadResponse, Refusal> {
    one_repository(&asked.repository_name)?;
    let mut sent = LoadParameters::default();
    for (name, value) in &asked.parameters {
        let value = match &value.parameter_choice {
            Some(ParameterChoice::StringParam(text)) => text.clone().into_bytes(),
            Some(ParameterChoice::BytesParam(bytes)) => bytes.to_vec(),
            _ => return Err(wrong_parameter(name, "expected `string_param` or `bytes_param`")),
        };
        add_load_parameter(&mut sent, name, value, Ok)?;
    }
    front.service.node.load(&asked.model_name, sent).await?;
    Ok(proto::RepositoryModelLoadResponse {})
}

pub async fn unload(
    front: &Front,
    asked: &proto::RepositoryModelUnloadRequest,
) -> Result<proto::RepositoryModelUnloadResponse, Refusal> {
    one_repository(&asked.repository_name)?;
    check_unload_parameters(asked.parameters.keys())?;
    front.service.node.unload(&asked.model_name).await?;
    Ok(proto::RepositoryModelUnloadResponse {})
}

fn one_repository(name: &str) -> Result<(), Refusal> {
    if name.is_empty() {
        return Ok(());
    }
    Err(Refusal::new(Reason::Unsupported, "repository_name: there is one repository: expected an empty name"))
}

pub fn shared_memory_status(
    front: &Front,
    asked: &proto::SystemSharedMemoryStatusRequest,
) -> Result<proto::SystemSharedMemoryStatusResponse, Refusal> {
    let regions = front.shared_memory()?.status(named(&asked.name))?;
    let regions = regions.into_iter().map(|region| (region.name.clone(), region)).collect();
    Ok(proto::SystemSharedMemoryStatusResponse { regions })
}

pub fn trace_settings(
    front: &Front,
    asked: &proto::TraceSettingRequest,
) -> Result<proto::TraceSettingResponse, Refusal> {
    let model = named(&asked.model_name);
    if let Some(model) = model {
        front.service.model(model, None)?;
    }
    let value = |name: &str, values: &[String]| match values {
        [] => SentTrace::Clear,
        values if name == LEVEL => SentTrace::Many(values.to_vec()),
        [one] => SentTrace::One(one.clone()),
        _ => SentTrace::Other,
    };
    let sent = asked.settings.iter().map(|(name, sent)| (name.clone(), value(name, &sent.value)));
    front.traces.change(model, sent.collect())?;
    let settings = front.traces.settings(model).into_iter();
    let settings = settings.map(|(name, value)| (name.to_owned(), TraceValue { value })).collect();
    Ok(proto::TraceSettingResponse { settings })
}

pub fn log_settings(asked: &proto::LogSettingsRequest) -> Result<proto::LogSettingsResponse, Refusal> {
    let sent = |value: &proto::log_settings_request::SettingValue| match &value.parameter_choice {
        Some(SentChoice::BoolParam(on)) => SentValue::Bool(*on),
        Some(SentChoice::Uint32Param(level)) => SentValue::Number(*level),
        Some(SentChoice::StringParam(text)) => SentValue::Text(text.clone()),
        None => SentValue::Other,
    };
    let wanted: Vec<_> = asked.settings.iter().map(|(name, value)| (name.clone(), sent(value))).collect();
    let now = change_logging(&wanted)?;
    let value = |choice| LogValue { parameter_choice: Some(choice) };
    let settings = BTreeMap::from([
        ("log_file".to_owned(), value(LogChoice::StringParam(now.log_file.to_owned()))),
        ("log_info".to_owned(), value(LogChoice::BoolParam(now.log_info))),
        ("log_warning".to_owned(), value(LogChoice::BoolParam(now.log_warning))),
        ("log_error".to_owned(), value(LogChoice::BoolParam(now.log_error))),
        ("log_verbose_level".to_owned(), value(LogChoice::Uint32Param(now.log_verbose_level))),
        ("log_format".to_owned(), value(LogChoice::StringParam(now.log_format.to_owned()))),
    ]);
    Ok(proto::LogSettingsResponse { settings })
}
