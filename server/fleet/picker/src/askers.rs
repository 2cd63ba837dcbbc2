//! Other pickers that ask this one, and the requests that they ask for.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fleet_core::pick::NotPicked;
use invariant::expected;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::chooser::Answer;
use crate::proto::fleet::{Answers, OwnerAnswer};
use crate::refusal::Refusal;

/// Answers of one message at most, so that it stays below the largest message.
pub const ANSWERS_MAX: usize = 256;

/// A stream of another picker, as the task that chooses sees it.
#[derive(Debug)]
pub struct Asker {
    /// Takes the answers. Dropped, the stream ends.
    pub answers: mpsc::Sender<Answers>,
    /// How many of its requests wait for an answer.
    pub waiting: Arc<AtomicUsize>,
}

/// A request of another picker.
#[derive(Debug)]
struct Request {
    stream: u64,
    id: u64,
    is_answered: bool,
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct Stream {
    asker: Asker,
    /// Keys of its requests by id.
    keys: HashMap<u64, u64>,
    unsent: Vec<OwnerAnswer>,
}

/// All streams of other pickers.
#[derive(Debug, Default)]
pub struct Askers {
    streams: HashMap<u64, Stream>,
    /// Requests that wait or are not ended, by key.
    requests: HashMap<u64, Request>,
}

impl Askers {
    /// A stream begins.
    pub fn open(&mut self, stream: u64, asker: Asker) {
        self.streams.insert(stream, Stream { asker, keys: HashMap::new(), unsent: Vec::new() });
    }

    /// A stream ended. Returns the keys of its requests, which end with it.
    pub fn close(&mut self, stream: u64) -> Vec<u64> {
        let keys: Vec<u64> = self
            .streams
            .remove(&stream)
            .into_iter()
            .flat_map(|stream| stream.keys)
            .map(|(_, key)| key)
            .collect();
        keys.iter().for_each(|key| drop(self.requests.remove(key)));
        keys
    }

    /// A request arrived. Returns whether its stream is still there.
    pub fn asked(&mut self, stream: u64, id: u64, key: u64, permit: OwnedSemaphorePermit) -> bool {
        let Some(state) = self.streams.get_mut(&stream) else { return false };
        state.asker.waiting.fetch_add(1, Ordering::Relaxed);
        state.keys.insert(id, key);
        self.requests.insert(key, Request { stream, id, is_answered: false, _permit: permit });
        true
    }

    /// Declines a request that is not taken.
    pub fn decline(&mut self, stream: u64, id: u64) {
        if let Some(state) = self.streams.get_mut(&stream) {
            state.unsent.push(OwnerAnswer { id, ..OwnerAnswer::default() });
        }
    }

    /// A request ended at the picker that asked. Returns its key.
    pub fn ended(&mut self, stream: u64, id: u64) -> Option<u64> {
        let state = self.streams.get_mut(&stream)?;
        let key = state.keys.remove(&id)?;
        if self.requests.remove(&key).is_some_and(|request| !request.is_answered) {
            state.asker.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        Some(key)
    }

    /// Whether the request with this key is one of another picker.
    pub fn has(&self, key: u64) -> bool {
        self.requests.contains_key(&key)
    }

    /// Requests that wait for an answer.
    pub fn waiting(&self) -> usize {
        self.streams.values().map(|stream| stream.asker.waiting.load(Ordering::Relaxed)).sum()
    }

    /// Answers a request. It is known until it ends if its end is awaited.
    pub fn answer(&mut self, key: u64, answer: &Answer) {
        let Some(request) = expected!(self.requests.get_mut(&key), "picker.answer_to_no_request") else {
            return;
        };
        let (stream, id) = (request.stream, request.id);
        request.is_answered = true;
        let mut message = OwnerAnswer { id, ..OwnerAnswer::default() };
        let is_awaited = match answer {
            Answer::Send { nodes, choice, is_awaited } => {
                // Where this picker forms no batch, the one that asked decides as well.
                if let Some((batch, rows)) = choice.batch() {
                    message.nodes = nodes.iter().map(|node| node.name.clone()).collect();
                    (message.batch, message.batch_rows) = (batch, rows);
                }
                *is_awaited
            }
            Answer::Refuse(reason @ NotPicked::Router(_)) => {
                message.reason = Refusal::of(*reason, "").reason.to_owned();
                false
            }
            Answer::Refuse(_) => false,
        };
        if let Some(state) = self.streams.get_mut(&stream) {
            state.asker.waiting.fetch_sub(1, Ordering::Relaxed);
            state.unsent.push(message);
            if !is_awaited {
                state.keys.remove(&id);
                self.requests.remove(&key);
            }
        }
    }

    /// Sends the answers since the last time. Returns streams that take no more: their pickers read too slowly.
    pub fn send(&mut self) -> Vec<u64> {
        let mut full = Vec::new();
        for (number, stream) in self.streams.iter_mut().filter(|(_, stream)| !stream.unsent.is_empty()) {
            let unsent = std::mem::take(&mut stream.unsent);
            for answers in unsent.chunks(ANSWERS_MAX) {
                let answers = Answers { answers: answers.to_vec() };
                if stream.asker.answers.try_send(answers).is_err() {
                    full.push(*number);
                    break;
                }
            }
        }
        full
    }
}
