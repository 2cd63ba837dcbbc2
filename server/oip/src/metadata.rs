//! The small JSON bodies of the REST interface: who the server is, what its models look like, what went wrong.

use serde::{Deserialize, Serialize};

/// Answer to `GET /v2`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerMetadata {
    /// Name of the server.
    pub name: String,
    /// Version of the server.
    pub version: String,
    /// Extensions of the protocol that it speaks.
    pub extensions: Vec<String>,
}

/// Answer to `GET /v2/models/{model}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelMetadata {
    /// Name of the model.
    pub name: String,
    /// Versions that can be asked for.
    pub versions: Vec<String>,
    /// Format and engine, such as `onnxruntime_onnx`.
    pub platform: String,
    /// Inputs.
    pub inputs: Vec<TensorMetadata>,
    /// Outputs.
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
    fn an_index_request_defaults_to_all_models() {
        assert_eq!(
            serde_json::from_str::<RepositoryIndexRequest>("{}").unwrap(),
            RepositoryIndexRequest::default()
        );
    }
}
