//! One request on the version that it holds: to its sessions, or to the models of an ensemble. Keeps the record of how it ended.

use std::sync::Arc;
use std::time::Instant;

use node::Node;
use node::catalog::Held;
use node::reason::Refusal;
use oip::InferRequest;

use super::infer::attempt;
use super::sink::{Sink, SinkEnd};
use super::{Answered, RequestContext, ensemble};
use crate::trace::Stage;

/// Runs a request on the version that it holds.
pub(super) async fn run(
    node: &Node,
    Held { loaded, mut trial, user: _user }: Held,
    request: InferRequest,
    context: &RequestContext,
    sink: Option<(Arc<Sink>, SinkEnd)>,
) -> Result<Answered, Refusal> {
    if let Some(trace) = &context.trace {
        trace.started(&request.id);
    }
    let mut open = node.requests().begin(context.origin(), &loaded.name, loaded.version);
    let result = match &loaded.ensemble {
        Some(served) => {
            let entry = (open.entry(), &mut trial);
            ensemble::run(node.catalog(), (&loaded, served), request, (context, None), entry).await
        }
        None => {
            let entry = (open.entry(), &mut trial);
            attempt(node.catalog(), &loaded, request, context, (sink, None), entry).await
        }
    };
    if let Some(trace) = &context.trace {
        trace.reached(Stage::RequestEnd, Instant::now());
    }
    match result {
        Ok(answered) => {
            open.answered();
            Ok(answered)
        }
        Err(mut refusal) => {
            trial.into_iter().for_each(|trial| trial.refused(refusal.reason));
            loaded.refused(refusal.reason);
            node.catalog().tenants().refused(context.tenant, refusal.reason);
            loaded.statistics.failed(context.arrived.elapsed());
            open.failed(&refusal);
            refusal.logged = true;
            Err(refusal)
        }
    }
}
