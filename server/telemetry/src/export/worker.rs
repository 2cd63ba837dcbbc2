//! The task that takes the items of a signal from its queue and exports them.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::{Delivery, Signal};

/// Most items of one message.
const BATCH_MAX: usize = 256;

/// A request to export everything that waits. The sender is told when that is done.
pub(crate) type Flush = oneshot::Sender<()>;

/// Exports one signal.
#[derive(Debug)]
pub(crate) struct Worker<S: Signal> {
    pub(crate) signal: S,
    pub(crate) queue: mpsc::Receiver<S::Item>,
    pub(crate) flushes: mpsc::Receiver<Flush>,
    pub(crate) delivery: Delivery,
    /// How long the first item of a message waits for others.
    pub(crate) delay: Duration,
}

/// Why a message is sent now.
enum Wake {
    Due,
    Flush(Flush),
    Closed,
}

impl<S: Signal> Worker<S> {
    /// Runs until all senders of items are dropped.
    pub(crate) async fn run(mut self) {
        loop {
            let mut items = Vec::new();
            match self.collect(&mut items).await {
                Wake::Due => self.export(items, false).await,
                Wake::Flush(done) => {
                    self.export_all(items).await;
                    // The caller may have stopped waiting.
                    let _ = done.send(());
                }
                Wake::Closed => return self.export_all(items).await,
            }
        }
    }

    async fn collect(&mut self, items: &mut Vec<S::Item>) -> Wake {
        let mut due = self.signal.due();
        loop {
            let wait = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(done) = self.flushes.recv() => return Wake::Flush(done),
                received = self.queue.recv_many(items, BATCH_MAX - items.len()) => {
                    if received == 0 {
                        return Wake::Closed;
                    }
                    if items.len() >= BATCH_MAX {
                        return Wake::Due;
                    }
                    if items.len() == received {
                        let with_others = Instant::now() + self.delay;
                        due = Some(due.map_or(with_others, |due| due.min(with_others)));
                    }
                }
                () = wait => return Wake::Due,
            }
        }
    }

    /// Exports the items and those that wait now, but not those that arrive from now on.
    async fn export_all(&mut self, mut items: Vec<S::Item>) {
        let mut waiting = self.queue.len();
        loop {
            while waiting > 0 && items.len() < BATCH_MAX {
                let Ok(item) = self.queue.try_recv() else { break };
                items.push(item);
                waiting -= 1;
            }
            let is_last = waiting == 0 || items.is_empty();
            self.export(std::mem::take(&mut items), is_last).await;
            if is_last {
                return;
            }
        }
    }

    async fn export(&mut self, items: Vec<S::Item>, all: bool) {
        let (count, message) = self.signal.encode(items, all);
        if count > 0 {
            self.delivery.deliver(S::NAME, message.into(), count, S::rejected).await;
        }
    }
}
