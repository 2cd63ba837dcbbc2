//! A queue as a fluid.

/// What waits of one model: its requests arrive and leave evenly within a tick, in their order.
///
/// A request that finds `waiting` ones before it waits for waiting / capacity, and then takes its batch's time. So at
/// most capacity x (objective - batch's time) may wait; whoever comes beyond would be late, and is lost. The router
/// refuses such a request on arrival, so nobody waits behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Queue {
    waiting: f64,
}

impl Queue {
    /// Requests that wait.
    pub fn waiting(&self) -> f64 {
        self.waiting
    }

    /// Lets a tick of `seconds` pass, with so many requests, a capacity in requests a second, and at most `wait`
    /// seconds to wait. Gives how many are lost.
    pub fn pass(&mut self, seconds: f64, arrivals: f64, capacity: f64, wait: f64) -> f64 {
        let left = (self.waiting + arrivals - capacity * seconds).max(0.0);
        let lost = (left - capacity * wait).max(0.0);
        self.waiting = left - lost;
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_late_when_it_would_wait_longer_than_it_may() {
        let mut queue = Queue::default();
        assert_eq!(queue.pass(0.1, 10.0, 100.0, 0.05), 0.0);
        assert_eq!((queue.pass(0.1, 15.0, 100.0, 0.05), queue.waiting()), (0.0, 5.0));
        assert_eq!((queue.pass(0.1, 12.0, 100.0, 0.05), queue.waiting()), (2.0, 5.0));
        assert_eq!((queue.pass(0.1, 3.0, 100.0, 0.05), queue.waiting()), (0.0, 0.0));
    }

    #[test]
    fn without_capacity_all_is_lost_and_a_smaller_one_gives_up_what_it_cannot_do() {
        let mut queue = Queue::default();
        assert_eq!(queue.pass(0.1, 7.0, 0.0, 1.0), 7.0);
        queue.pass(0.1, 15.0, 100.0, 0.05);
        assert_eq!(queue.pass(0.1, 0.0, 40.0, 0.01), 0.6);
    }
}
