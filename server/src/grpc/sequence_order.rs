//! The order of the requests of a sequence on one stream.
//!
//! Requests of a stream run at the same time. Those of a sequence must not overtake each other, so each waits for the one
//! before it.

use std::collections::BTreeMap;

use oip::proto::ModelInferRequest;
use oip::proto::infer_parameter::ParameterChoice;
use tokio::sync::oneshot;

/// Sequences that are remembered before those without requests are forgotten.
const REMEMBERED: usize = 1_024;

/// The last request of each sequence on a stream.
#[derive(Default)]
pub(super) struct SequenceOrder(BTreeMap<(String, String), oneshot::Receiver<()>>);

/// A request's place in its sequence. Dropping it lets the next one run.
#[derive(Debug, Default)]
pub(super) struct Place {
    before: Option<oneshot::Receiver<()>>,
    _done: Option<oneshot::Sender<()>>,
}

impl SequenceOrder {
    /// The place of the next request.
    pub(super) fn place(&mut self, message: &ModelInferRequest) -> Place {
        let id = match message.parameters.get("sequence_id").and_then(|id| id.parameter_choice.as_ref()) {
            Some(ParameterChoice::Int64Param(number)) => number.to_string(),
            Some(ParameterChoice::Uint64Param(number)) => number.to_string(),
            Some(ParameterChoice::StringParam(text)) => text.clone(),
            _ => return Place::default(),
        };
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, last| matches!(last.try_recv(), Err(oneshot::error::TryRecvError::Empty)));
        }
        let (done, next) = oneshot::channel();
        let before = self.0.insert((message.model_name.clone(), id), next);
        Place { before, _done: Some(done) }
    }
}

impl Place {
    /// Waits for the request before it.
    pub(super) async fn reached(mut self) -> Self {
        if let Some(before) = self.before.take() {
            // The sender is dropped, and never sends.
            let _ = before.await;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oip::proto::InferParameter;

    fn message(id: i64) -> ModelInferRequest {
        let id = InferParameter { parameter_choice: Some(ParameterChoice::Int64Param(id)) };
        ModelInferRequest {
            model_name: "m".to_owned(),
            parameters: [("sequence_id".to_owned(), id)].into(),
            ..ModelInferRequest::default()
        }
    }

    #[tokio::test]
    async fn a_request_waits_for_the_one_before_it_in_its_sequence() {
        let mut order = SequenceOrder::default();
        let first = order.place(&message(1)).reached().await;
        let other = order.place(&message(2)).reached().await;
        let unnumbered = order.place(&ModelInferRequest::default()).reached().await;
        let mut second = std::pin::pin!(order.place(&message(1)).reached());
        let waits = tokio::select! {
            biased;
            _ = &mut second => false,
            () = std::future::ready(()) => true,
        };
        assert!(waits);
        drop((other, unnumbered));
        drop(first);
        second.await;
    }

    #[tokio::test]
    async fn sequences_without_requests_are_forgotten() {
        let mut order = SequenceOrder::default();
        for id in 0..3 * i64::try_from(REMEMBERED).unwrap() {
            drop(order.place(&message(id)));
        }
        assert!(order.0.len() <= REMEMBERED);
    }
}
