//! A request of `tessera.fleet.v1.Picker`, as gateways and other pickers send it.

use std::time::Duration;

use tonic::Status;

use crate::chooser::Asked;
use crate::proto::fleet::PickRequest;

/// Longest name of a model.
const MODEL_BYTES_MAX: usize = 1_024;

/// Reads a request.
///
/// # Errors
/// A field is out of range.
pub fn read(request: &PickRequest) -> Result<Asked, Status> {
    let wrong = |problem: String| Err(Status::invalid_argument(problem));
    if request.model.len() > MODEL_BYTES_MAX {
        return wrong(format!(
            "model: expected at most {MODEL_BYTES_MAX} bytes, got {}",
            request.model.len()
        ));
    }
    let Some(class) = u8::try_from(request.class).ok().filter(|class| *class < 64) else {
        return wrong(format!("class: expected 0 to 63, got {}", request.class));
    };
    Ok(Asked {
        key: 0,
        model: (!request.model.is_empty()).then(|| request.model.clone()),
        rows: request.rows.max(1),
        timeout: (request.timeout_us > 0).then(|| Duration::from_micros(request.timeout_us)),
        class,
        is_asked: false,
        runs: true,
    })
}
