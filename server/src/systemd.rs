//! Tells systemd, or another supervisor with its protocol, the state of the server: ready, reloading, stopping, and alive.
//!
//! Without `NOTIFY_SOCKET` in the environment, which the crate `sd_notify` reads itself, nothing is sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use node::Node;
use sd_notify::NotifyState;
use tokio::time::MissedTickBehavior;

use crate::service::Service;

/// Signs of life in one period of the watchdog. With three, two may be late.
const SIGNS_OF_LIFE: u32 = 3;
/// Shortest time between two signs of life.
const INTERVAL_MIN: Duration = Duration::from_millis(1);
/// Longest state that is sent, in characters. A datagram holds far more, but `systemctl status` shows one line.
const STATUS_MAX: usize = 400;

/// What the service manager knows.
#[derive(Debug, Default)]
pub struct ServiceManager {
    /// Whether it knows that the server has started.
    started: AtomicBool,
}

impl ServiceManager {
    /// The server serves. Models that are not ready do not hold this back, because the others serve; the status names them.
    pub fn ready(&self, node: &Node) {
        self.started.store(true, Ordering::Relaxed);
        let serving = node.index(true).len();
        let status = status(serving, node.not_ready().as_deref());
        send(&[NotifyState::Ready, NotifyState::Status(&status)]);
    }

    /// A reload of the configuration begins. While the server starts, nothing is sent, because the end of the reload would mean
    /// that it has started.
    pub fn reload_begins(&self) {
        if !self.started.load(Ordering::Relaxed) {
            return;
        }
        match NotifyState::monotonic_usec_now() {
            Ok(now) => send(&[NotifyState::Reloading, now]),
            Err(error) => tracing::warn!(%error, "cannot read the monotonic clock for the service manager"),
        }
    }

    /// A reload of the configuration has ended.
    pub fn reload_ends(&self, node: &Node) {
        if self.started.load(Ordering::Relaxed) {
            self.ready(node);
        }
    }
}

/// The server finishes its requests and ends.
pub fn stopping() {
    send(&[NotifyState::Stopping, NotifyState::Status("draining")]);
}

/// Sends signs of life while the router answers, if the service manager has a watchdog. A server whose router or network
/// threads hang sends none, so the service manager restarts it.
pub async fn keep_alive(service: Arc<Service>) {
    let Some(period) = sd_notify::watchdog_enabled().filter(|period| !period.is_zero()) else { return };
    let interval = (period / SIGNS_OF_LIFE).max(INTERVAL_MIN);
    let answers = || {
        let router = service.node.catalog().router().clone();
        async move { router.snapshot().await.is_some() }
    };
    signs_of_life(interval, answers, || send(&[NotifyState::Watchdog])).await;
    tracing::error!("the router has ended: no more signs of life for the service manager's watchdog");
}

/// One sign after each answer, until the router has ended.
async fn signs_of_life<A: Future<Output = bool>>(
    interval: Duration,
    answers: impl Fn() -> A,
    sign: impl Fn(),
) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if !answers().await {
            return;
        }
        sign();
    }
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, ?states, "cannot notify the service manager at NOTIFY_SOCKET");
    }
}

/// One line: how many versions of models serve, and which models are not ready.
fn status(serving: usize, not_ready: Option<&str>) -> String {
    let models = if serving == 1 { "1 model".to_owned() } else { format!("{serving} models") };
    let line = match not_ready {
        None => format!("serving {models}"),
        Some(reason) => format!("serving {models}; not ready: {reason}"),
    };
    line.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(STATUS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[tokio::test]
    async fn a_sign_of_life_needs_an_answer_of_the_router() {
        let (asked, signs) = (Cell::new(0), Cell::new(0));
        let hung = tokio::sync::Notify::new();
        let answers = || async {
            asked.set(asked.get() + 1);
            if asked.get() == 4 {
                hung.notify_one();
                std::future::pending::<()>().await;
            }
            true
        };
        let watched = signs_of_life(INTERVAL_MIN, answers, || signs.set(signs.get() + 1));
        tokio::select! {
            () = watched => panic!("ended although the router has not"),
            () = hung.notified() => {}
        }
        assert_eq!(signs.get(), 3);
        signs_of_life(
            INTERVAL_MIN,
            || async { false },
            || panic!("a sign of life of a router that has ended"),
        )
        .await;
    }

    #[test]
    fn the_status_is_one_line_of_bounded_length() {
        assert_eq!(status(1, None), "serving 1 model");
        assert_eq!(
            status(2, Some("model `m`: no file\nREADY=1")),
            "serving 2 models; not ready: model `m`: no file READY=1"
        );
        assert_eq!(status(0, Some(&"x".repeat(5000))).len(), STATUS_MAX);
    }
}
