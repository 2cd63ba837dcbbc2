//! Order of the answers of a stream: those of one model come in the order of their requests. Models do not wait for each other.

use std::collections::BTreeMap;

use tokio::sync::oneshot;

/// The last request of each model on a stream.
pub struct Order {
    last: BTreeMap<String, oneshot::Receiver<()>>,
    /// Number of models at which those without open requests are forgotten.
    models_max: usize,
}

/// The position of one request. Dropping it lets the next request of the model answer.
pub struct Position {
    before: Option<oneshot::Receiver<()>>,
    _answered: oneshot::Sender<()>,
}

impl Order {
    /// The order of a stream that answers at most `requests` requests at a time.
    pub fn new(requests: usize) -> Self {
        Self { last: BTreeMap::new(), models_max: requests.saturating_mul(2) }
    }

    /// The position of the next request of a model.
    pub fn next(&mut self, model: &str) -> Position {
        if self.last.len() >= self.models_max {
            self.last.retain(|_, open| open.try_recv() == Err(oneshot::error::TryRecvError::Empty));
        }
        let (answered, open) = oneshot::channel();
        Position { before: self.last.insert(model.to_owned(), open), _answered: answered }
    }
}

impl Position {
    /// Returns once all earlier requests of the model are answered.
    pub async fn reached(&mut self) {
        if let Some(before) = self.before.take() {
            // The sender is dropped and never used.
            let _ = before.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    fn is_reached(position: &mut Position) -> bool {
        let mut reached = std::pin::pin!(position.reached());
        matches!(
            reached.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())),
            Poll::Ready(())
        )
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
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert_eq!(check.as_mut().poll(&mut context), Poll::Pending);
        drop(first);
        assert_eq!(check.as_mut().poll(&mut context), Poll::Ready(()));
    }

    #[test]
    fn models_without_open_requests_are_forgotten() {
        let mut order = Order::new(2);
        let open = order.next("open");
        for model in 0..100 {
            drop(order.next(&model.to_string()));
        }
        assert!(order.last.len() <= 4 && order.last.contains_key("open"));
        drop(open);
    }
}
