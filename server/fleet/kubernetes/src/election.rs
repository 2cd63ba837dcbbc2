//! Elects a leader with a Lease: carries out what [`fleet_core::lease`] decides.

mod lease;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fleet_core::lease::{Effect, Election, Event, Settings};
use kube::{Api, Client};
use metrics::{counter, gauge};
use rustix::time::{ClockId, clock_gettime};
use thiserror::Error;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::lease::Store;
use crate::resources::node_plan::NodePlan;

/// Time in which the leader's work must end after it was told to. Then it is aborted.
const STEP_DOWN: Duration = Duration::from_secs(1);

/// Who takes part in which election.
#[derive(Clone, Debug)]
pub struct Options {
    /// Namespace of the Lease and of the plans.
    pub namespace: String,
    /// Name of the Lease.
    pub lease: String,
    /// Identity of this process, which no other process ever has.
    pub identity: String,
    /// Times of the election.
    pub settings: Settings,
}

/// The term of a leader.
#[derive(Clone, Debug)]
pub struct Term {
    epoch: u64,
    identity: String,
    /// When it ends by [`now`], nanoseconds; it moves with every renewal.
    until: Arc<AtomicU64>,
    stop: CancellationToken,
}

impl Term {
    /// Epoch of the term's plans.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Identity of the leader.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Whether this process leads at this moment. A leader asks before each write: it may have been paused since the last one.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.stop.is_cancelled() && nanoseconds(now()) < self.until.load(Ordering::Acquire)
    }

    /// Waits for the end of the term.
    pub async fn ended(&self) {
        self.stop.cancelled().await;
    }
}

/// Time since the machine started. Unlike the clock of `Instant`, it does not stand still while the machine is suspended.
#[must_use]
pub fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The work of a leader ended before its term.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the leader's work ended before its term; the Lease was released, so that a standby leads")]
pub struct WorkEnded;

/// What runs while this process leads.
struct Work {
    until: Arc<AtomicU64>,
    stop: CancellationToken,
    /// Cancelled when the task ends, also by a panic.
    done: CancellationToken,
    task: JoinHandle<()>,
}

/// Takes part in an election until it is stopped, and runs `lead` during each of its terms. Stopping releases the Lease.
///
/// # Errors
/// `lead` ended before its term. A leader without work must not keep the Lease.
pub async fn run<F, W>(
    client: Client,
    options: Options,
    lead: F,
    stop: CancellationToken,
) -> Result<(), WorkEnded>
where
    F: Fn(Term) -> W,
    W: Future<Output = ()> + Send + 'static,
{
    let plans: Api<NodePlan> = Api::namespaced(client.clone(), &options.namespace);
    let mut store = Store::new(Api::namespaced(client, &options.namespace), plans, &options);
    let mut election = Election::new(options.settings, options.identity.clone(), now());
    let mut work: Option<Work> = None;
    let mut event = Event::Tick;
    let mut stopping = Stopping { asked: false, failed: false };
    gauge!("tessera_fleet_leader").set(0.0);
    loop {
        let mut request = None;
        for effect in election.handle(now(), event) {
            match effect {
                Effect::Lead { epoch } => {
                    tracing::info!(epoch, identity = options.identity, "leads");
                    counter!("tessera_fleet_terms_total").increment(1);
                    gauge!("tessera_fleet_leader").set(1.0);
                    gauge!("tessera_fleet_epoch").set(epoch as f64);
                    let until = Arc::new(AtomicU64::new(0));
                    let stop = CancellationToken::new();
                    let identity = options.identity.clone();
                    let term = Term { epoch, identity, until: Arc::clone(&until), stop: stop.clone() };
                    set_end(&until, &election);
                    let done = CancellationToken::new();
                    let guard = done.clone().drop_guard();
                    let leading = lead(term);
                    let task = tokio::spawn(async move {
                        let _guard = guard;
                        leading.await;
                    });
                    work = Some(Work { until, stop, done, task });
                }
                Effect::StepDown(reason) => {
                    tracing::warn!(%reason, "steps down");
                    gauge!("tessera_fleet_leader").set(0.0);
                    if let Some(work) = work.take() {
                        end(work).await;
                    }
                }
                Effect::Stopped => return if stopping.failed { Err(WorkEnded) } else { Ok(()) },
                asks @ (Effect::Read | Effect::ReadEpochs | Effect::Write(_)) => request = Some(asks),
            }
        }
        if let Some(work) = &work {
            set_end(&work.until, &election);
        }
        // A request may take longer than the term, so the timer runs too. Its reply is still waited for.
        if let Some(request) = request {
            store.send(request);
        }
        event = next(&mut store, &election, work.as_ref(), &stop, &mut stopping).await;
    }
}

/// Whether the process stops, and why.
struct Stopping {
    asked: bool,
    failed: bool,
}

/// The next event: a reply, the end of a timer or of the work, or the wish to stop.
async fn next(
    store: &mut Store,
    election: &Election,
    work: Option<&Work>,
    stop: &CancellationToken,
    stopping: &mut Stopping,
) -> Event {
    let wakeup = election.wakeup();
    let wait = wakeup.unwrap_or_default().saturating_sub(now());
    let ended = async {
        match work {
            Some(work) => work.done.cancelled().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled(), if !stopping.asked => {
            stopping.asked = true;
            Event::Stop
        }
        () = ended, if !stopping.asked => {
            *stopping = Stopping { asked: true, failed: true };
            Event::Stop
        }
        event = store.reply() => event,
        () = sleep(wait), if wakeup.is_some() => Event::Tick,
    }
}

fn set_end(until: &AtomicU64, election: &Election) {
    let end = election.leads_until().map_or(0, nanoseconds);
    until.store(end, Ordering::Release);
}

/// Ends the work of a leader before anything else happens.
async fn end(mut work: Work) {
    work.until.store(0, Ordering::Release);
    work.stop.cancel();
    if timeout(STEP_DOWN, &mut work.task).await.is_err() {
        counter!("tessera_fleet_aborted_terms_total").increment(1);
        tracing::warn!("the leader's work did not end in time and is aborted");
        work.task.abort();
        // An aborted task ends at its next point of suspension.
        let _aborted = work.task.await;
    }
}
