//! JSON bodies of metadata calls, the repository index and errors.
//!
//! The decoders accept what other servers send: unknown members are ignored; lists and strings that are absent or null
//! are empty.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::proto::model_metadata_response;
use crate::proto::{ModelMetadataResponse, ServerMetadataResponse};

/// Answer to `GET /v2`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerMetadata {
    /// Name of the server.
    pub name: String,
    /// Version of the server.
    #[serde(default, deserialize_with = "or_default")]
    pub version: String,
    /// Extensions of the protocol that it speaks.
    #[serde(default, deserialize_with = "or_default")]
    pub extensions: Vec<String>,
}

/// Answer to `GET /v2/models/{model}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelMetadata {
    /// Name of the model.
    pub name: String,
    /// Versions that requests can name.
    #[serde(default, deserialize_with = "or_default")]
    pub versions: Vec<String>,
    /// Format and engine, such as `onnxruntime_onnx`.
    #[serde(default, deserialize_with = "or_default")]
    pub platform: String,
    /// Inputs, in the order of the signature.
    #[serde(default, deserialize_with = "or_default")]
    pub inputs: Vec<TensorMetadata>,
    /// Outputs, in the order of the signature.
    #[serde(default, deserialize_with = "or_default")]
    pub outputs: Vec<TensorMetadata>,
}

/// One tensor of a signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorMetadata {
    /// Name of the tensor.
    pub name: String,
    /// Element type, named as in the protocol.
    pub datatype: String,
    /// Extents, batch dimension included; -1 where free.
    pub shape: Vec<i64>,
}

fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl From<ServerMetadataResponse> for ServerMetadata {
    fn from(message: ServerMetadataResponse) -> Self {
        Self { name: message.name, version: message.version, extensions: message.extensions }
    }
}

impl From<ModelMetadataResponse> for ModelMetadata {
    fn from(message: ModelMetadataResponse) -> Self {
        Self {
            name: message.name,
            versions: message.versions,
            platform: message.platform,
            inputs: message.inputs.into_iter().map(TensorMetadata::from).collect(),
            outputs: message.outputs.into_iter().map(TensorMetadata::from).collect(),
        }
    }
}

impl From<model_metadata_response::TensorMetadata> for TensorMetadata {
    fn from(tensor: model_metadata_response::TensorMetadata) -> Self {
        Self { name: tensor.name, datatype: tensor.datatype, shape: tensor.shape }
    }
}

/// Body of `POST /v2/repository/index`; an empty body means the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryIndexRequest {
    /// Only models that take requests.
    #[serde(default)]
    pub ready: bool,
}

/// One entry of the answer to `POST /v2/repository/index`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryIndexRow {
    /// Name of the model.
    pub name: String,
    /// Its version; absent for a model that was never loaded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// `READY`, `LOADING`, `UNLOADING` or `UNAVAILABLE`; absent for a model that was never loaded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// Why it is in that state, if there is anything to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Answer to `GET /v2/models/{model}/shapes`: the shapes that requests of a version had since it was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelShapes {
    /// Name of the model.
    pub model_name: String,
    /// Its version.
    pub model_version: String,
    /// Whether every input has a fixed shape. Requests are not counted then.
    pub fixed: bool,
    /// Requests that were counted, those in `other` included.
    pub requests: u64,
    /// Requests of shapes that did not fit into the server's table.
    pub other: u64,
    /// Different shapes in the table.
    pub distinct: u64,
    /// The commonest shapes, most requests first.
    pub shapes: Vec<SeenShape>,
}

/// One shape of the inputs of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenShape {
    /// Extents of one row by input, without the batch. Inputs of a fixed shape and optional inputs that were not sent are left
    /// out.
    pub inputs: BTreeMap<String, Vec<u64>>,
    /// Requests that had it.
    pub requests: u64,
}

/// Body of every answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What was wrong.
    pub error: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_row_leaves_out_what_it_does_not_know() {
        let row = RepositoryIndexRow { name: "m".into(), ..RepositoryIndexRow::default() };
        assert_eq!(serde_json::to_string(&row).unwrap(), r#"{"name":"m"}"#);
        let ready = RepositoryIndexRow { version: "1".into(), state: "READY".into(), ..row };
        assert_eq!(serde_json::to_string(&ready).unwrap(), r#"{"name":"m","version":"1","state":"READY"}"#);
    }

    #[test]
    fn metadata_of_other_servers_is_read() {
        let mlserver = r#"{"name":"sum","versions":[],"platform":"","parameters":{"content_type":null},
            "inputs":[{"name":"x","datatype":"FP32","shape":[-1,3],"parameters":{"content_type":"np"}}],
            "outputs":null}"#;
        let model: ModelMetadata = serde_json::from_str(mlserver).unwrap();
        let x = TensorMetadata { name: "x".into(), datatype: "FP32".into(), shape: vec![-1, 3] };
        assert_eq!((model.inputs, model.outputs, model.versions), (vec![x], vec![], vec![]));
        let bare: ModelMetadata = serde_json::from_str(r#"{"name":"m"}"#).unwrap();
        assert_eq!((bare.name.as_str(), bare.platform.as_str(), bare.inputs), ("m", "", vec![]));
        let nameless = serde_json::from_str::<ModelMetadata>(r#"{"inputs":[]}"#).unwrap_err().to_string();
        assert!(nameless.starts_with("missing field `name`"), "{nameless}");
        let shapeless = r#"{"name":"m","inputs":[{"name":"x","datatype":"FP32"}]}"#;
        let shapeless = serde_json::from_str::<ModelMetadata>(shapeless).unwrap_err().to_string();
        assert!(shapeless.starts_with("missing field `shape`"), "{shapeless}");
        let server: ServerMetadata =
            serde_json::from_str(r#"{"name":"kserve","version":null,"uptime":3}"#).unwrap();
        let expected = ServerMetadata { name: "kserve".into(), version: String::new(), extensions: vec![] };
        assert_eq!(server, expected);
    }

    #[test]
    fn metadata_is_the_same_over_grpc() {
        let tensor = |name: &str| model_metadata_response::TensorMetadata {
            name: name.into(),
            datatype: "INT64".into(),
            shape: vec![-1, 2],
        };
        let message = ModelMetadataResponse {
            name: "m".into(),
            versions: vec!["1".into(), "2".into()],
            platform: "onnxruntime_onnx".into(),
            inputs: vec![tensor("x"), tensor("y")],
            outputs: vec![tensor("z")],
        };
        let json = r#"{"name":"m","versions":["1","2"],"platform":"onnxruntime_onnx",
            "inputs":[{"name":"x","datatype":"INT64","shape":[-1,2]},{"name":"y","datatype":"INT64","shape":[-1,2]}],
            "outputs":[{"name":"z","datatype":"INT64","shape":[-1,2]}]}"#;
        assert_eq!(ModelMetadata::from(message), serde_json::from_str(json).unwrap());
        let message = ServerMetadataResponse {
            name: "s".into(),
            version: "3".into(),
            extensions: vec!["binary_tensor_data".into()],
        };
        let json = r#"{"name":"s","version":"3","extensions":["binary_tensor_data"]}"#;
        assert_eq!(ServerMetadata::from(message), serde_json::from_str(json).unwrap());
    }

    #[test]
    fn an_index_request_defaults_to_all_models() {
        assert_eq!(
            serde_json::from_str::<RepositoryIndexRequest>("{}").unwrap(),
            RepositoryIndexRequest::default()
        );
    }
}
