//! The socket for all that happens besides commands: responses of decoupled models, log messages, metrics, and calls of
//! other models from threads of the model.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};

use super::super::{ModelErrorCode, RequestDetails, RunError, StreamedResponse};
use super::calls;
use super::host::{HostSlot, MetricType, ModelMetric};
use super::output::Rate;
use super::packets::{Layout, PacketError, Packets, Received};
use super::wire::{self, Question};

/// Bound on the requests of one session that wait for further responses.
pub(super) const UNFINISHED_MAX: usize = 4096;
/// Responses that the client takes for one credit.
const CREDIT: u32 = 16;

/// State that the session shares with the thread that reads events.
pub(super) struct Events {
    model: String,
    host: HostSlot,
    unfinished: Mutex<BTreeMap<u64, Unfinished>>,
    /// For messages to the process.
    sender: Mutex<Packets>,
}

/// A request that the model has not ended.
#[derive(Clone)]
struct Unfinished {
    details: Arc<RequestDetails>,
    /// Responses that the client has taken since the last credit.
    taken: Arc<AtomicU32>,
}

impl Events {
    /// Starts to read events. Ends when the process has closed its socket.
    pub fn start(model: &str, host: &HostSlot) -> std::io::Result<(Arc<Self>, OwnedFd)> {
        let (mut reader, there) = Packets::pair()?;
        let sender = Mutex::new(reader.try_clone()?);
        let unfinished = Mutex::default();
        let events = Arc::new(Self { model: model.to_owned(), host: host.clone(), unfinished, sender });
        let shared = Arc::clone(&events);
        let run = move || {
            let mut log = Log { rate: Rate::new(Instant::now()), model: shared.model.clone() };
            loop {
                match reader.receive::<Question>(None) {
                    Ok(event) => shared.handle(event, &mut log),
                    Err(PacketError::Ended) => break,
                    Err(error) => {
                        tracing::warn!(model = shared.model, %error, "a message of the Python process was not understood");
                        if !matches!(error, PacketError::Invalid(_)) {
                            break;
                        }
                    }
                }
            }
            shared.fail_unfinished("the Python process ended");
        };
        thread::Builder::new().name("python-events".to_owned()).spawn(run)?;
        Ok((events, there))
    }

    /// Adds a request whose responses, or whose cancellation, the model may ask for.
    ///
    /// # Errors
    /// If too many requests wait for further responses.
    pub fn begin(&self, number: u64, details: &Arc<RequestDetails>) -> Result<(), RunError> {
        let mut unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        if unfinished.len() >= UNFINISHED_MAX {
            let message =
                format!("{UNFINISHED_MAX} requests of model `{}` wait for further responses", self.model);
            return Err(RunError::Model { code: ModelErrorCode::Unavailable, message });
        }
        unfinished.insert(number, Unfinished { details: Arc::clone(details), taken: Arc::default() });
        Ok(())
    }

    /// Forgets a request that has ended.
    pub fn end(&self, number: u64) {
        self.take(number);
    }

    fn take(&self, number: u64) -> Option<Unfinished> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner).remove(&number)
    }

    fn find(&self, number: u64) -> Option<Unfinished> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }

    /// Ends every request that waits for responses.
    pub fn fail_unfinished(&self, reason: &str) {
        let unfinished = std::mem::take(&mut *self.unfinished.lock().unwrap_or_else(PoisonError::into_inner));
        for Unfinished { details, .. } in unfinished.into_values() {
            let response = Some(Err(RunError::Engine(reason.to_owned())));
            if let Some(sink) = &details.responses {
                // The client may have left.
                let _ = sink.send(StreamedResponse { response, last: true, credit: None });
            }
        }
    }

    /// The answer to whether the client of a request has left.
    pub fn is_cancelled(&self, number: Option<u64>) -> Value {
        let request = number.and_then(|number| self.find(number));
        json!({"cancelled": request.is_none_or(|request| request.details.cancelled.is_set())})
    }

    /// The answer to whether a model takes requests.
    pub fn is_ready(&self, question: &Question) -> Value {
        let (model, version) = (question.model.as_deref().unwrap_or_default(), question.version.as_deref());
        let version = version.filter(|version| !version.is_empty());
        json!({"ready": self.host.get().is_some_and(|host| host.is_ready(model, version))})
    }

    /// The server.
    pub fn host(&self) -> &HostSlot {
        &self.host
    }

    fn handle(self: &Arc<Self>, event: Received<Question>, log: &mut Log) {
        match event.head.op.as_str() {
            "respond" => self.respond(event),
            "log" => log.write(&event.head),
            "metric" => self.metric(&event.head),
            "metric_family" => {}
            "cancelled" => {
                let answer = self.is_cancelled(event.head.request);
                self.answer(event.head.call, answer, &Layout::default());
            }
            "ready" => {
                let answer = self.is_ready(&event.head);
                self.answer(event.head.call, answer, &Layout::default());
            }
            "call" => {
                let (number, events) = (event.head.call, Arc::clone(self));
                calls::start(&self.host, event, None, move |answer, layout| {
                    events.answer(number, answer, &layout)
                });
            }
            other => tracing::warn!(
                model = self.model,
                event = other,
                "a message of the Python process is unknown"
            ),
        }
    }

    /// Answers a question of this number.
    pub fn answer(&self, call: Option<u64>, mut answer: Value, layout: &Layout) {
        if let Value::Object(answer) = &mut answer {
            answer.insert("call".to_owned(), json!(call));
        }
        self.send(&answer, layout);
    }

    fn send(&self, message: &Value, layout: &Layout) {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        // Answers to several threads must not share a file.
        sender.leave_file();
        match sender.send(message, layout, None) {
            Ok(()) | Err(PacketError::Ended) => {}
            Err(error) => {
                tracing::warn!(model = self.model, %error, "an answer did not reach the Python process")
            }
        }
    }

    fn respond(self: &Arc<Self>, mut event: Received<Question>) {
        let (number, last) = (event.head.request, event.head.last);
        let request = number.and_then(|number| if last { self.take(number) } else { self.find(number) });
        let (Some(number), Some(request)) = (number, request) else {
            tracing::warn!(
                model = self.model,
                request = number,
                "a response to a request that has ended is dropped"
            );
            return;
        };
        let Some(sink) = &request.details.responses else { return };
        let response = event.head.response.take().map(|response| {
            let checked = wire::response(response, &event);
            checked.unwrap_or_else(|error| Err(RunError::Engine(error.to_string())))
        });
        let credit = Credit { events: Arc::downgrade(self), number, taken: Arc::clone(&request.taken) };
        // The client may have left. The credit then lets the model go on to its end.
        let _ = sink.send(StreamedResponse { response, last, credit: Some(Box::new(credit)) });
    }

    fn metric(&self, event: &Question) {
        let Some(host) = self.host.get() else { return };
        let metric = ModelMetric {
            model: self.model.clone(),
            name: event.name.clone().unwrap_or_default(),
            labels: event.labels.clone().unwrap_or_default(),
            metric_type: if event.kind == Some(0) { MetricType::Counter } else { MetricType::Gauge },
            value: event.value.unwrap_or_default(),
        };
        if let Err(reason) = host.metric(metric) {
            tracing::warn!(model = self.model, reason, "a metric of the model is not exported");
        }
    }
}

/// A response that the client has not taken yet.
struct Credit {
    events: Weak<Events>,
    number: u64,
    taken: Arc<AtomicU32>,
}

impl Drop for Credit {
    fn drop(&mut self) {
        let taken = self.taken.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if !taken.is_multiple_of(CREDIT) {
            return;
        }
        if let Some(events) = self.events.upgrade() {
            events.send(&json!({"request": self.number, "credit": CREDIT}), &Layout::default());
        }
    }
}

/// The model's log messages.
struct Log {
    rate: Rate,
    model: String,
}

impl Log {
    fn write(&mut self, event: &Question) {
        let (now, model, text) = (Instant::now(), &self.model, event.message.as_deref().unwrap_or_default());
        if let Some(dropped) = self.rate.dropped(now) {
            tracing::warn!(model, dropped, "log messages of the model were not logged");
        }
        if !self.rate.allows(now) {
            return;
        }
        match event.level {
            Some(0) => tracing::info!(model, "{text}"),
            Some(1) => tracing::warn!(model, "{text}"),
            Some(2) => tracing::error!(model, "{text}"),
            _ => tracing::debug!(model, "{text}"),
        }
    }
}
