//! The task that owns the chooser. It feeds events to it and passes its answers on. It decides nothing itself.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fleet_core::pick::{NodeNumber, OwnerAnswer, Update};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::askers::{Asker, Askers};
use crate::chooser::{Answer, Asked, Choice, Chooser, Decision};
use crate::follow::{Listener, Signals, update};
use crate::measures::{Measures, overflowed};
use crate::nodes::{Endpoint, PlannedRate};
use crate::owners::Owners;
use crate::proto::fleet::{self, Ask, Asks};
use crate::refusal::Refusal;
use crate::timer::Timer;

/// Messages handled before the timer is looked at.
const MESSAGES_AT_ONCE: usize = 256;
/// Time between two updates of the gauges.
const REPORTS: Duration = Duration::from_secs(1);
/// Requests at most that wait at the picker or whose end it awaits. Others are left to the gateway.
const OPEN_MAX: usize = 65_536;

/// Streams of other pickers at most. A picker that connects again may have two for a moment.
const ASKERS_MAX: usize = 128;

/// What happens to another picker.
#[derive(Debug)]
pub enum PeerEvent {
    /// It is part of the fleet.
    Listed,
    /// It is not part of the fleet any more.
    Unlisted,
    /// It takes requests here.
    Connected(mpsc::Sender<Asks>),
    /// It answered, or gave a sign of life.
    Answers(Vec<fleet::OwnerAnswer>),
    /// The connection to it ended.
    Lost {
        /// It said that it stops.
        is_stopping: bool,
    },
}

/// A request of another picker: its id there, and what it may count as open with.
type AskedFor = (u64, Option<(Asked, OwnedSemaphorePermit)>);

/// What happens to the nodes.
#[derive(Debug)]
pub enum NodeEvent {
    /// It is part of the fleet, with these addresses.
    Added(Arc<Endpoint>),
    /// It was removed from the fleet.
    Removed(String),
    /// It said something.
    Seen(Arc<Endpoint>, Update),
    /// The connection to it broke.
    Lost(Arc<Endpoint>),
    /// What the plan sends to it.
    Planned(PlannedRate),
}

#[derive(Debug)]
enum Message {
    Pick(Asked, Instant, oneshot::Sender<Answer>),
    Ended(u64),
    Keep(u64),
    Done(u64),
    Node(NodeEvent),
    Peer(u32, PeerEvent),
    AskerCame(u64, Asker),
    AskerSaid(u64, Vec<AskedFor>, Vec<u64>),
    AskerLeft(u64),
    Release,
}

/// Asks the task; cheap to clone.
#[derive(Clone, Debug)]
pub struct Handle {
    mailbox: mpsc::UnboundedSender<Message>,
    keys: Arc<AtomicU64>,
    open: Arc<Semaphore>,
    askers: Arc<Semaphore>,
}

/// A stream of another picker. Dropped, it has ended.
#[derive(Debug)]
pub struct AskerStream {
    handle: Handle,
    number: u64,
    _permit: OwnedSemaphorePermit,
}

impl AskerStream {
    /// Passes a message on. `read`: reads a request, if it can be read.
    pub fn take(&self, message: Asks, read: impl Fn(&Ask) -> Option<Asked>) {
        let handle = &self.handle;
        let asked = |ask: Ask| {
            // What cannot be read, or is too much, is declined.
            let known = read(&ask).and_then(|asked| {
                let Ok(permit) = Arc::clone(&handle.open).try_acquire_owned() else {
                    overflowed();
                    return None;
                };
                Some((Asked { key: handle.keys.fetch_add(1, Ordering::Relaxed), ..asked }, permit))
            });
            (ask.id, known)
        };
        let asks: Vec<AskedFor> = message.asks.into_iter().map(asked).collect();
        if !asks.is_empty() || !message.ended.is_empty() {
            let _ = handle.mailbox.send(Message::AskerSaid(self.number, asks, message.ended));
        }
    }
}

impl Drop for AskerStream {
    fn drop(&mut self) {
        // Without the task there is nothing to end.
        let _ = self.handle.mailbox.send(Message::AskerLeft(self.number));
    }
}

/// A request that the task knows. Dropped, it has ended.
#[derive(Debug)]
pub struct Held {
    mailbox: mpsc::UnboundedSender<Message>,
    key: u64,
    is_awaited: bool,
    /// Each request has few messages, so this bounds the mailbox too.
    _permit: OwnedSemaphorePermit,
}

impl Held {
    /// Lets the request end by [`Handle::done`] instead. Returns its key, or 0 if its end is not awaited.
    pub fn keep(mut self) -> u64 {
        if !std::mem::take(&mut self.is_awaited) {
            return 0;
        }
        let _ = self.mailbox.send(Message::Keep(self.key));
        self.key
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.is_awaited {
            // Without the task there is nothing to end.
            let _ = self.mailbox.send(Message::Ended(self.key));
        }
    }
}

/// What a gateway is told that must choose itself.
fn unchosen() -> Answer {
    Answer::Send { nodes: Vec::new(), choice: Choice::Any, is_awaited: false }
}

impl Handle {
    /// Waits for the answer to a request. Its key is set here. `None` for the second if its end is not awaited.
    pub async fn pick(&self, mut asked: Asked) -> (Answer, Option<Held>) {
        let Ok(permit) = Arc::clone(&self.open).try_acquire_owned() else {
            overflowed();
            return (unchosen(), None);
        };
        asked.key = self.keys.fetch_add(1, Ordering::Relaxed);
        let mut held =
            Held { mailbox: self.mailbox.clone(), key: asked.key, is_awaited: true, _permit: permit };
        let (reply, answer) = oneshot::channel();
        let sent = self.mailbox.send(Message::Pick(asked, Instant::now(), reply));
        let answer = match sent {
            Ok(()) => answer.await.unwrap_or_else(|_| unchosen()),
            Err(_) => unchosen(),
        };
        held.is_awaited = matches!(answer, Answer::Send { is_awaited: true, .. });
        let held = held.is_awaited.then_some(held);
        (answer, held)
    }

    /// The request of a ticket ended.
    pub fn done(&self, ticket: u64) {
        let _ = self.mailbox.send(Message::Done(ticket));
    }

    fn node(&self, event: NodeEvent) {
        let _ = self.mailbox.send(Message::Node(event));
    }

    /// Something happened to another picker.
    pub fn peer(&self, picker: u32, event: PeerEvent) {
        let _ = self.mailbox.send(Message::Peer(picker, event));
    }

    /// Another picker asks. `None`: too many do.
    pub fn asker(&self, asker: Asker) -> Option<AskerStream> {
        let permit = Arc::clone(&self.askers).try_acquire_owned().ok()?;
        let number = self.keys.fetch_add(1, Ordering::Relaxed);
        let _ = self.mailbox.send(Message::AskerCame(number, asker));
        Some(AskerStream { handle: self.clone(), number, _permit: permit })
    }

    /// Answers all requests that wait, because this process is about to end.
    pub fn release(&self) {
        let _ = self.mailbox.send(Message::Release);
    }
}

impl Listener for Handle {
    fn added(&self, node: &Arc<Endpoint>) {
        self.node(NodeEvent::Added(Arc::clone(node)));
    }

    fn removed(&self, node: &str) {
        self.node(NodeEvent::Removed(node.to_owned()));
    }

    fn heard(&self, node: &Arc<Endpoint>, signals: Signals) {
        self.node(NodeEvent::Seen(Arc::clone(node), update(signals)));
    }

    fn lost(&self, node: &Arc<Endpoint>) {
        self.node(NodeEvent::Lost(Arc::clone(node)));
    }

    fn planned(&self, rate: PlannedRate) {
        self.node(NodeEvent::Planned(rate));
    }
}

/// Starts the task. It ends when all handles are dropped, or when the system has no timers.
///
/// # Errors
/// The system has no timers.
pub fn start(chooser: Chooser) -> io::Result<(Handle, JoinHandle<io::Result<()>>)> {
    let (mailbox, messages) = mpsc::unbounded_channel();
    let actor = Actor {
        chooser,
        started: Instant::now(),
        waiting: HashMap::new(),
        numbers: HashMap::new(),
        askers: Askers::default(),
        owners: Owners::default(),
        measures: Measures::new(),
    };
    let task = tokio::spawn(actor.run(messages, Timer::new()?));
    let (keys, open) = (Arc::new(AtomicU64::new(1)), Arc::new(Semaphore::new(OPEN_MAX)));
    let askers = Arc::new(Semaphore::new(ASKERS_MAX));
    Ok((Handle { mailbox, keys, open, askers }, task))
}

struct Actor {
    chooser: Chooser,
    started: Instant,
    waiting: HashMap<u64, (Instant, oneshot::Sender<Answer>)>,
    /// Nodes that are part of the fleet.
    numbers: HashMap<String, NodeNumber>,
    askers: Askers,
    owners: Owners,
    measures: Measures,
}

impl Actor {
    async fn run(
        mut self,
        mut messages: mpsc::UnboundedReceiver<Message>,
        mut timer: Timer,
    ) -> io::Result<()> {
        let mut reports = interval(REPORTS);
        reports.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut received = Vec::with_capacity(MESSAGES_AT_ONCE);
        loop {
            timer.set(self.now(), self.chooser.next_wake())?;
            tokio::select! {
                biased;
                count = messages.recv_many(&mut received, MESSAGES_AT_ONCE) => {
                    if count == 0 {
                        return Ok(());
                    }
                    received.drain(..).for_each(|message| self.take(message));
                }
                due = timer.due() => due?,
                _ = reports.tick() => self.report(),
            }
            let now = self.now();
            if self.chooser.next_wake().is_some_and(|at| at <= now) {
                self.chooser.tick(now);
            }
            self.answer();
            self.send(now);
        }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn take(&mut self, message: Message) {
        let now = self.now();
        match message {
            Message::Pick(_, _, reply) if reply.is_closed() => self.measures.abandoned(),
            Message::Pick(asked, arrived, reply) => match self.chooser.arrive(now, &asked) {
                Some(answer) => self.reply((arrived, reply), answer),
                None => {
                    self.waiting.insert(asked.key, (arrived, reply));
                }
            },
            Message::Ended(key) => {
                if self.waiting.remove(&key).is_some() {
                    self.measures.abandoned();
                }
                self.chooser.ended(now, key);
            }
            Message::Keep(key) => self.chooser.keep(now, key),
            Message::Done(key) => self.chooser.done(now, key),
            Message::Node(event) => self.node(now, event),
            Message::Peer(picker, event) => self.peer(now, picker, event),
            Message::AskerCame(stream, asker) => self.askers.open(stream, asker),
            Message::AskerSaid(stream, asks, ended) => self.asked(now, stream, asks, &ended),
            Message::AskerLeft(stream) => self.asker_left(now, stream),
            Message::Release => {
                for (key, waiting) in std::mem::take(&mut self.waiting) {
                    let answer = self.chooser.release(now, key);
                    self.reply(waiting, answer);
                }
            }
        }
    }

    fn node(&mut self, now: Duration, event: NodeEvent) {
        match event {
            NodeEvent::Added(endpoint) => match self.chooser.added(now, Arc::clone(&endpoint)) {
                Some(number) => {
                    self.numbers.insert(endpoint.name.clone(), number);
                }
                None => {
                    self.measures.dropped();
                    tracing::warn!(
                        node = endpoint.name,
                        "a picker cannot know more nodes or device types; this one gets no requests"
                    );
                }
            },
            NodeEvent::Removed(name) => {
                if let Some(number) = self.numbers.remove(&name) {
                    self.chooser.removed(now, number);
                }
            }
            NodeEvent::Seen(endpoint, update) => {
                if let Some(number) = self.numbers.get(&endpoint.name)
                    && !self.chooser.seen(now, *number, &update)
                {
                    self.measures.dropped();
                }
            }
            NodeEvent::Lost(endpoint) => {
                if let Some(number) = self.numbers.get(&endpoint.name) {
                    self.chooser.lost(now, *number);
                }
            }
            NodeEvent::Planned(planned) => {
                if let Some(number) = self.numbers.get(&planned.node)
                    && !self.chooser.planned(*number, &planned.model, planned.rate)
                {
                    self.measures.dropped();
                }
            }
        }
    }

    fn peer(&mut self, now: Duration, picker: u32, event: PeerEvent) {
        match event {
            PeerEvent::Listed => {
                self.owners.list(picker);
                self.chooser.peer_listed(now, picker);
            }
            PeerEvent::Unlisted => {
                self.owners.unlist(picker);
                self.chooser.peer_unlisted(now, picker);
            }
            PeerEvent::Connected(asks) => {
                self.owners.connect(picker, asks);
                self.chooser.peer_heard(now, picker);
            }
            PeerEvent::Answers(answers) => {
                self.chooser.peer_heard(now, picker);
                for answer in answers {
                    let id = answer.id;
                    let answer = self.owner_answer(answer);
                    self.chooser.owner_answered(now, picker, id, answer);
                }
            }
            PeerEvent::Lost { is_stopping } => {
                self.owners.disconnect(picker);
                self.chooser.peer_lost(now, picker, is_stopping);
            }
        }
    }

    fn owner_answer(&self, answer: fleet::OwnerAnswer) -> OwnerAnswer {
        let reason = Refusal::reason_named(&answer.reason);
        if let Some(reason) = reason {
            return OwnerAnswer::Refuse(reason);
        }
        if answer.nodes.is_empty() {
            return OwnerAnswer::Decline;
        }
        // A node that only the owner knows yet is left out.
        let nodes = answer.nodes.iter().filter_map(|name| self.numbers.get(name).copied());
        OwnerAnswer::Send { nodes: nodes.collect(), id: answer.batch, rows: answer.batch_rows }
    }

    fn asked(&mut self, now: Duration, stream: u64, asks: Vec<AskedFor>, ended: &[u64]) {
        for (id, ask) in asks {
            let Some((asked, permit)) = ask else {
                self.askers.decline(stream, id);
                continue;
            };
            if self.askers.asked(stream, id, asked.key, permit)
                && let Some(answer) = self.chooser.arrive(now, &asked)
            {
                self.askers.answer(asked.key, &answer);
            }
        }
        for id in ended {
            if let Some(key) = self.askers.ended(stream, *id) {
                self.chooser.ended(now, key);
            }
        }
    }

    fn asker_left(&mut self, now: Duration, stream: u64) {
        for key in self.askers.close(stream) {
            self.chooser.ended(now, key);
        }
    }

    fn answer(&mut self) {
        let Self { waiting, measures, askers, owners, .. } = self;
        self.chooser.take_decisions(|decision| match decision {
            Decision::Answer(key, answer) if askers.has(key) => askers.answer(key, &answer),
            Decision::Answer(key, answer) => {
                if let Some((arrived, reply)) = waiting.remove(&key) {
                    measures.answered(&answer, arrived.elapsed());
                    // A client that left says so by the end of its request.
                    let _ = reply.send(answer);
                }
            }
            Decision::Ask { owner, asked } => owners.ask(owner, asked),
            Decision::AskEnded { owner, key } => owners.ended(owner, key),
        });
    }

    /// Sends what other pickers are to know. One that does not read it counts as lost.
    fn send(&mut self, now: Duration) {
        let (askers, owners) = (self.askers.send(), self.owners.send());
        if askers.is_empty() && owners.is_empty() {
            return;
        }
        for stream in askers {
            self.asker_left(now, stream);
        }
        for picker in owners {
            tracing::warn!(picker, "this picker does not read what it is asked; connecting again");
            self.peer(now, picker, PeerEvent::Lost { is_stopping: false });
        }
        self.answer();
    }

    fn reply(&mut self, (arrived, reply): (Instant, oneshot::Sender<Answer>), answer: Answer) {
        self.measures.answered(&answer, arrived.elapsed());
        let _ = reply.send(answer);
    }

    fn report(&mut self) {
        let (now, expired) = (self.now(), self.chooser.take_expired());
        let held = self.waiting.len() + self.askers.waiting();
        self.measures.report(held, expired, self.chooser.counts(now));
        self.measures.report_peers(self.chooser.ask_counts(), self.owners.counts());
    }
}
