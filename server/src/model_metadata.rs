//! Metadata of the server and of models, for both transports.

use models::TensorSpec;
use oip::proto::model_metadata_response::TensorMetadata;
use oip::proto::{ModelMetadataResponse, ServerMetadataResponse};

use crate::front::{Front, SERVER_NAME};
use crate::service::ModelView;

/// Name, version and extensions of the server.
pub fn server(front: &Front) -> ServerMetadataResponse {
    ServerMetadataResponse {
        name: SERVER_NAME.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        extensions: front.extensions(),
    }
}

/// Signature of a model. If the client named a version, `versions` holds only that one, as in Triton.
pub fn model(view: &ModelView, version_named: bool) -> ModelMetadataResponse {
    let versions = if version_named { vec![view.version.clone()] } else { view.versions.clone() };
    // As Triton: backends without a platform are named themselves.
    let platform = if view.platform.is_empty() { view.engine } else { view.platform };
    ModelMetadataResponse {
        name: view.name.clone(),
        versions,
        platform: platform.to_owned(),
        inputs: view.signature.inputs.iter().map(tensor).collect(),
        outputs: view.signature.outputs.iter().map(tensor).collect(),
    }
}

fn tensor(spec: &TensorSpec) -> TensorMetadata {
    TensorMetadata {
        name: spec.name.clone(),
        datatype: spec.datatype.as_str().to_owned(),
        shape: spec.dims.iter().map(|dim| dim.to_wire()).collect(),
    }
}
