//! Requests of a stream that wait for each other: answers of one model come in the order of its requests, and requests of one
//! sequence run one after the other. Different models and sequences do not wait for each other.

use std::collections::BTreeMap;

use oip::proto::ModelInferRequest;
use oip::proto::infer_parameter::ParameterChoice;
use tokio::sync::oneshot;

/// The last request of each model or sequence on a stream.
pub struct Order {
    last: BTreeMap<String, oneshot::Receiver<()>>,
    /// Number of keys at which those without open requests are forgotten.
    keys_max: usize,
}

/// The position of one request. Dropping it lets the next request with the same key go on.
#[derive(Debug, Default)]
pub struct Position {
    before: Option<oneshot::Receiver<()>>,
    _done: Option<oneshot::Sender<()>>,
}

impl Order {
    /// The order of a stream that answers at most `requests` requests at a time.
    pub fn new(requests: usize) -> Self {
        Self { last: BTreeMap::new(), keys_max: requests.saturating_mul(2) }
    }

    /// The position of the next request with a key.
    pub fn next(&mut self, key: &str) -> Position {
        if self.last.len() >= self.keys_max {
            self.last.retain(|_, open| open.try_recv() == Err(oneshot::error::TryRecvError::Empty));
        }
        let (done, open) = oneshot::channel();
        Position { before: self.last.insert(key.to_owned(), open), _done: Some(done) }
    }

    /// The position of the next request in its sequence. A request without a sequence waits for none.
    pub fn next_in_sequence(&mut self, message: &ModelInferRequest) -> Position {
        let id = message.parameters.get("sequence_id").and_then(|id| id.parameter_choice.as_ref());
        let id = match id {
            Some(ParameterChoice::Int64Param(number)) => number.to_string(),
            Some(ParameterChoice::Uint64Param(number)) => number.to_string(),
            Some(ParameterChoice::StringParam(text)) => text.clone(),
            _ => return Position::default(),
        };
        // Names of models contain no `/`.
        self.next(&format!("{}/{id}", message.model_name))
    }
}

impl Position {
    /// Returns once all earlier requests with the same key are done.
    pub async fn reached(&mut self) {
        if let Some(before) = self.before.take() {
            // The sender is dropped and never used.
            let _ = before.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use oip::proto::InferParameter;

    use super::*;

    fn is_reached(position: &mut Position) -> bool {
        let reached = std::pin::pin!(position.reached());
        matches!(reached.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()))
    }

    fn message(parameter: Option<ParameterChoice>) -> ModelInferRequest {
        let parameter = parameter.map(|choice| InferParameter { parameter_choice: Some(choice) });
        ModelInferRequest {
            model_name: "m".to_owned(),
            parameters: parameter.map(|id| ("sequence_id".to_owned(), id)).into_iter().collect(),
            ..ModelInferRequest::default()
        }
    }

    #[test]
    fn a_request_waits_for_the_earlier_ones_of_its_model_only() {
        let mut order = Order::new(4);
        let mut first = order.next("a");
        let mut other = order.next("b");
        assert!(is_reached(&mut first) && is_reached(&mut other));
        let (mut second, mut third) = (order.next("a"), order.next("a"));
        let mut check = std::pin::pin!(async {
            second.reached().await;
            drop(second);
            third.reached().await;
        });
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(check.as_mut().poll(&mut context), Poll::Pending);
        drop(first);
        assert_eq!(check.as_mut().poll(&mut context), Poll::Ready(()));
    }

    #[test]
    fn a_request_waits_for_the_earlier_ones_of_its_sequence_only() {
        let number = |id| message(Some(ParameterChoice::Int64Param(id)));
        let mut order = Order::new(4);
        let mut first = order.next_in_sequence(&number(1));
        let mut other = order.next_in_sequence(&number(2));
        let mut none = order.next_in_sequence(&message(None));
        assert!(is_reached(&mut first) && is_reached(&mut other) && is_reached(&mut none));
        let mut check = std::pin::pin!(async {
            let text = message(Some(ParameterChoice::StringParam("1".to_owned())));
            order.next_in_sequence(&text).reached().await;
        });
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(check.as_mut().poll(&mut context), Poll::Pending);
        drop(first);
        assert_eq!(check.as_mut().poll(&mut context), Poll::Ready(()));
    }

    #[test]
    fn keys_without_open_requests_are_forgotten() {
        let mut order = Order::new(2);
        let open = order.next("open");
        for key in 0..100 {
            drop(order.next(&key.to_string()));
        }
        assert!(order.last.len() <= 4 && order.last.contains_key("open"));
        drop(open);
    }
}
