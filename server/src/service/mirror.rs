//! Runs requests that a stable version answered on the canary of a roll-out too, to compare outputs.

use std::sync::Arc;

use models::engine::{Cancelled, RequestDetails, Response};
use node::catalog::{Catalog, Mirror};
use node::reason::Refusal;
use node::tenants;
use oip::InputTensor;
use router::Job;
use router_core::Class;

use crate::validate;

/// Runs a request without a deadline, after everything else that waits. Its client has its answer and does not wait; no metric of the
/// model and no quota of a tenant counts it.
pub(super) fn run(catalog: Arc<Catalog>, mirror: Mirror, inputs: Vec<InputTensor>, stable: Response) {
    tokio::spawn(async move {
        let canary = attempt(&catalog, &mirror, inputs).await;
        mirror.compare(&stable, canary);
    });
}

async fn attempt(catalog: &Catalog, mirror: &Mirror, inputs: Vec<InputTensor>) -> Result<Response, Refusal> {
    let loaded = mirror.version();
    let mut valid = validate::inputs(&loaded.client, inputs)?;
    let padding = loaded.padding.as_ref();
    let padded = padding.and_then(|padding| Some((padding, padding.pad(&mut valid.member.inputs)?)));
    let mut member = valid.member;
    if loaded.takes_requests {
        member.details = Some(Arc::new(RequestDetails {
            id: String::new(),
            parameters: Vec::new(),
            outputs: None,
            timeout_us: 0,
            cancelled: Cancelled::default(),
            responses: None,
        }));
    }
    let job = Job {
        model: loaded.id,
        class: Class::new(u8::MAX),
        tenant: tenants::mirrors(),
        shape: loaded.shapes.key(&member.inputs),
        bytes: member.inputs.iter().flatten().map(|tensor| tensor.data.len() as u64).sum(),
        member,
        deadline: None,
        timeout_action: Default::default(),
        sequence: None,
        gather: None,
        stage: None,
        family: None,
    };
    let mut response = catalog.submit(loaded, job).await?.response;
    if let Some((padding, padded)) = padded {
        let failed = |reason| Refusal::new(node::reason::Reason::EngineFailed, reason);
        response.outputs = padding.restore(padded, response.outputs).map_err(failed)?;
    }
    Ok(response)
}
