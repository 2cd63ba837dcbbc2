//! The thread that carries out what the scheduler decides.

mod open_job;
#[cfg(test)]
mod record_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use job_core::{Effect, Event, JobId, Millis, Progress, Scheduler, Verdict};
use job_formats::{Format, FormatError};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::JobError;
use crate::files;
use crate::incoming::Incoming;
use crate::journal::Journal;
use crate::record::{JobState, JobView, Record, Request};
use crate::runner::{JobMetrics, RowOutcome, RowRunner};
use crate::space::Space;
use open_job::OpenJob;

/// How often it is looked whether ended jobs are old enough to be removed.
const CLEANING: Duration = Duration::from_secs(60);
/// Jobs that have ended and are kept, at most. The oldest are removed first.
const ENDED_MAX: usize = 1_000;
/// How often the windows of jobs are looked at.
const WINDOWS: Duration = Duration::from_secs(1);

/// How jobs are kept.
#[derive(Clone, Debug)]
pub struct Options {
    /// Folder for their files.
    pub folder: PathBuf,
    /// Bytes that the files of all jobs may take, results included. Results that take more are written all the same.
    pub bytes_max: u64,
    /// Jobs that have not ended, at most.
    pub jobs_max: usize,
    /// Bytes of a row, at most.
    pub row_max: usize,
    /// How long the files of a job are kept after its end.
    pub keep: Duration,
}

enum Message {
    Submit(Box<(Incoming, Request)>, oneshot::Sender<Result<JobView, JobError>>),
    Cancel(JobId, oneshot::Sender<Result<JobView, JobError>>),
    List(oneshot::Sender<Vec<JobView>>),
    Row(JobId, u64, RowOutcome),
    Stop,
}

/// The jobs of a node.
pub struct Jobs {
    options: Options,
    space: Space,
    messages: Sender<Message>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Jobs {
    /// Opens the folder, and goes on with the jobs in it.
    ///
    /// # Errors
    /// The folder or the journal cannot be used.
    pub fn open(
        options: Options,
        runner: Arc<dyn RowRunner>,
        metrics: Arc<dyn JobMetrics>,
        runtime: Handle,
    ) -> Result<Self, JobError> {
        let (worker, inbox) = Worker::open(&options, runner, metrics, runtime)?;
        let (messages, space) = (worker.messages.clone(), worker.space.clone());
        let thread = thread::Builder::new().name("tessera-jobs".to_owned()).spawn(move || worker.run(&inbox));
        let thread = thread.map_err(|error| JobError::file(&options.folder, error))?;
        Ok(Self { messages, thread: Mutex::new(Some(thread)), options, space })
    }

    /// Begins to receive an input.
    ///
    /// # Errors
    /// A file cannot be created.
    pub fn receive(&self, format: Format) -> Result<Incoming, JobError> {
        Incoming::new(&self.options.folder, format, self.options.row_max, self.space.clone())
    }

    /// Submits a job with an input that was received completely. When this returns, the job survives a crash.
    ///
    /// # Errors
    /// Why it is refused.
    pub async fn submit(&self, input: Incoming, request: Request) -> Result<JobView, JobError> {
        let checked = tokio::task::spawn_blocking(|| input.complete()).await;
        let input = checked.map_err(|error| JobError::NotChecked(error.to_string()))??;
        self.ask(|reply| Message::Submit(Box::new((input, request)), reply)).await?
    }

    /// Cancels a job. Results that were committed are kept.
    ///
    /// # Errors
    /// The job does not exist, or has ended.
    pub async fn cancel(&self, id: JobId) -> Result<JobView, JobError> {
        self.ask(|reply| Message::Cancel(id, reply)).await?
    }

    /// Every job, by number.
    ///
    /// # Errors
    /// The server is shutting down.
    pub async fn list(&self) -> Result<Vec<JobView>, JobError> {
        self.ask(Message::List).await
    }

    /// The committed results of a job in JSON lines from a byte on.
    ///
    /// # Errors
    /// The output cannot be read.
    pub fn output(&self, record: &Record, from: u64) -> Result<Box<dyn io::Read + Send>, JobError> {
        let path = files::output_of(&self.options.folder, record.id, record.request.results);
        let from = from.min(record.output_bytes);
        if record.output_bytes == 0 {
            return Ok(Box::new(io::empty()));
        }
        let durable = files::durable(&path, from, record.output_bytes);
        Ok(Box::new(durable.map_err(|error| JobError::file(&path, error))?))
    }

    /// Writes the committed results of a job as a file of its format. Blocks.
    ///
    /// # Errors
    /// The output cannot be read, or the results cannot be written.
    pub fn write_results(&self, record: &Record, out: &mut (dyn io::Write + Send)) -> Result<(), JobError> {
        let open = || self.output(record, 0).map_err(io::Error::other);
        let done = job_formats::write(record.request.results, &record.columns, record.committed, &open, out);
        let path = || files::output_of(&self.options.folder, record.id, record.request.results);
        done.map_err(|error| match error {
            FormatError::Input(told) => JobError::Input(told),
            FormatError::Io(error) => JobError::file(&path(), error),
        })
    }

    /// Commits the results that are there, and sends no more rows. Blocks until that is done.
    pub fn stop(&self) {
        // It may have ended already.
        let _ = self.messages.send(Message::Stop);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of jobs panicked");
        }
    }

    async fn ask<T>(&self, message: impl FnOnce(oneshot::Sender<T>) -> Message) -> Result<T, JobError> {
        let (reply, answer) = oneshot::channel();
        self.messages.send(message(reply)).map_err(|_| JobError::Stopping)?;
        answer.await.map_err(|_| JobError::Stopping)
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Milliseconds since 1970 that never go back.
struct Clock {
    started: Instant,
    at: u64,
}

impl Default for Clock {
    fn default() -> Self {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: Instant::now(), at: u64::try_from(at.as_millis()).unwrap_or(u64::MAX) }
    }
}

impl Clock {
    fn now(&self) -> Millis {
        Millis(self.at).after(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

struct Worker {
    options: Options,
    space: Space,
    journal: Journal,
    scheduler: Scheduler,
    records: BTreeMap<JobId, Record>,
    open: BTreeMap<JobId, OpenJob>,
    runner: Arc<dyn RowRunner>,
    metrics: Arc<dyn JobMetrics>,
    runtime: Handle,
    messages: Sender<Message>,
    clock: Clock,
    windows_at: Instant,
    cleaned_at: Instant,
}

impl Worker {
    fn open(
        options: &Options,
        runner: Arc<dyn RowRunner>,
        metrics: Arc<dyn JobMetrics>,
        runtime: Handle,
    ) -> Result<(Self, Receiver<Message>), JobError> {
        let failed = |error: io::Error| JobError::file(&options.folder, error);
        fs::create_dir_all(&options.folder).map_err(failed)?;
        let journal = Journal::open(&options.folder.join("journal.redb"))?;
        files::remove_incoming(&options.folder).map_err(failed)?;
        let (messages, inbox) = channel();
        let (clock, space) = (Clock::default(), Space::new(options.bytes_max));
        let mut worker = Worker {
            options: options.clone(),
            space,
            journal,
            scheduler: Scheduler::default(),
            records: BTreeMap::new(),
            open: BTreeMap::new(),
            runner,
            metrics,
            runtime,
            messages,
            clock,
            windows_at: Instant::now(),
            cleaned_at: Instant::now(),
        };
        worker.recover()?;
        Ok((worker, inbox))
    }

    fn recover(&mut self) -> Result<(), JobError> {
        let records = self.journal.all()?;
        let known: BTreeSet<JobId> = records.iter().map(|record| record.id).collect();
        let cleaned = files::remove_unrecorded(&self.options.folder, |id| known.contains(&id));
        cleaned.map_err(|error| JobError::file(&self.options.folder, error))?;
        for record in records {
            let (id, is_open) = (record.id, record.state == JobState::Open);
            self.space.count(record.input_bytes.saturating_add(record.output_bytes));
            if is_open {
                tracing::info!(
                    job = id.0,
                    rows = record.rows,
                    committed = record.committed,
                    "the job goes on"
                );
            }
            self.records.insert(id, record);
            if is_open {
                self.begin(id);
            }
        }
        Ok(())
    }

    fn run(mut self, inbox: &Receiver<Message>) {
        loop {
            let until = self
                .scheduler
                .wakeup()
                .map_or(CLEANING, |at| Duration::from_millis(at.since(self.clock.now())));
            match inbox.recv_timeout(until.min(CLEANING)) {
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(message) => self.receive(message),
                Err(RecvTimeoutError::Timeout) => self.handle(Event::Tick),
            }
            if self.windows_at.elapsed() >= WINDOWS {
                self.windows_at = Instant::now();
                self.look_at_windows();
            }
            if self.cleaned_at.elapsed() >= CLEANING {
                self.cleaned_at = Instant::now();
                self.clean();
            }
        }
        for (id, progress) in self.scheduler.progress(self.clock.now()) {
            self.carry_out(Effect::Commit(id, progress.done));
        }
    }

    fn receive(&mut self, message: Message) {
        // The caller may have left.
        match message {
            Message::Submit(submitted, reply) => drop(reply.send(self.submit(*submitted))),
            Message::Cancel(id, reply) => drop(reply.send(self.cancel(id))),
            Message::List(reply) => drop(reply.send(self.views())),
            Message::Row(id, row, outcome) => self.row(id, row, outcome),
            Message::Stop => {}
        }
    }

    fn submit(&mut self, (input, request): (Incoming, Request)) -> Result<JobView, JobError> {
        if self.open.len() >= self.options.jobs_max {
            return Err(JobError::TooMany(self.options.jobs_max));
        }
        let id = self.journal.take_number()?;
        let kept = input.keep(id);
        let (rows, input_bytes) = kept.inspect_err(|_| self.remove_files(id))?;
        let record = Record {
            id,
            request,
            state: JobState::Open,
            submitted: self.clock.now(),
            ended: None,
            rows,
            input_bytes,
            committed: 0,
            input_offset: 0,
            output_bytes: 0,
            mistakes: 0,
            columns: Vec::new(),
            error: String::new(),
        };
        if let Err(error) = self.journal.write(&record) {
            self.remove_files(id);
            self.space.give_back(input_bytes);
            return Err(error);
        }
        tracing::info!(job = id.0, model = record.request.model, rows, "job submitted");
        self.records.insert(id, record);
        self.begin(id);
        self.view(id)
    }

    fn begin(&mut self, id: JobId) {
        let Some(record) = invariant::expected!(self.records.get(&id), "jobs.no_record") else { return };
        match OpenJob::new(&self.options, record) {
            Ok(open) => {
                let spec =
                    job_core::Spec { rows: record.rows, committed: record.committed, by: record.request.by };
                self.open.insert(id, open);
                self.handle(Event::Submitted(id, spec));
                self.look_at_windows();
            }
            Err(error) => self.end(id, JobState::Failed, error.to_string()),
        }
    }

    fn cancel(&mut self, id: JobId) -> Result<JobView, JobError> {
        let record = self.records.get(&id).ok_or(JobError::Unknown(id))?;
        if record.state != JobState::Open {
            return Err(JobError::Ended(id));
        }
        self.handle(Event::Cancelled(id));
        // Its last results could not be written: it has failed.
        if !self.open.contains_key(&id) {
            return self.view(id);
        }
        self.end(id, JobState::Cancelled, String::new());
        self.view(id)
    }

    fn row(&mut self, id: JobId, row: u64, outcome: RowOutcome) {
        self.metrics.row(&outcome);
        // The job was cancelled, or has failed.
        let Some(open) = self.open.get_mut(&id) else { return };
        let event = open.take(id, row, outcome);
        self.handle(event);
    }

    fn look_at_windows(&mut self) {
        let mut left = 0;
        for id in self.open.keys().copied().collect::<Vec<_>>() {
            let (Some(record), Some(open)) = (self.records.get(&id), self.open.get_mut(&id)) else {
                continue;
            };
            left += record.rows.saturating_sub(record.committed);
            let window = self.runner.window(record);
            open.model_is_ready(window.is_some());
            let window = open.bounded(window.unwrap_or(0));
            self.handle(Event::Window(id, window));
        }
        self.metrics.open(self.open.len(), left);
    }

    fn handle(&mut self, event: Event) {
        for effect in self.scheduler.handle(self.clock.now(), event) {
            self.carry_out(effect);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        let (id, done) = match effect {
            Effect::Send(id, row) => (id, self.send(id, row)),
            Effect::Abandon(id, row) => {
                return self.open.get_mut(&id).into_iter().for_each(|open| open.abandon(row));
            }
            Effect::Append(id, rows) => (id, self.open.get_mut(&id).map_or(Ok(()), |open| open.append(rows))),
            Effect::Commit(id, rows) => (id, self.commit(id, rows)),
            // Its last results could not be written: it has failed already.
            Effect::Ended(id) if !self.open.contains_key(&id) => return,
            Effect::Ended(id) => return self.end(id, JobState::Done, String::new()),
        };
        if let Err(error) = done {
            self.handle(Event::Broken(id));
            self.end(id, JobState::Failed, error.to_string());
        }
    }

    fn send(&mut self, id: JobId, row: u64) -> Result<(), JobError> {
        let (Some(record), Some(open)) = (self.records.get(&id), self.open.get_mut(&id)) else {
            return Ok(());
        };
        let line = open.line(row)?;
        let (answer, messages) = (self.runner.run(record, row, line), self.messages.clone());
        open.running.insert(
            row,
            self.runtime
                .spawn(async move {
                    let outcome = answer.await;
                    // The thread may have ended.
                    let _ = messages.send(Message::Row(id, row, outcome));
                })
                .abort_handle(),
        );
        Ok(())
    }

    fn commit(&mut self, id: JobId, rows: u64) -> Result<(), JobError> {
        let (Some(record), Some(open)) = (self.records.get_mut(&id), self.open.get_mut(&id)) else {
            return Ok(());
        };
        if rows == record.committed {
            return Ok(());
        }
        let output_bytes = open.output.sync()?;
        self.space.count(output_bytes.saturating_sub(record.output_bytes));
        record.output_bytes = output_bytes;
        record.committed = rows;
        record.input_offset = open.input_offset;
        record.mistakes = open.mistakes;
        if record.columns != open.columns {
            record.columns.clone_from(&open.columns);
        }
        self.journal.write(record)
    }

    fn end(&mut self, id: JobId, state: JobState, error: String) {
        // Rows that still run are stopped.
        drop(self.open.remove(&id));
        let now = self.clock.now();
        let Some(record) = invariant::expected!(self.records.get_mut(&id), "jobs.no_record") else { return };
        (record.state, record.ended, record.error) = (state, Some(now), error);
        self.metrics.ended(state);
        let (rows, mistakes) = (record.committed, record.mistakes);
        match state {
            JobState::Failed => tracing::error!(job = id.0, error = record.error, rows, "the job failed"),
            _ => tracing::info!(job = id.0, state = state.word(), rows, mistakes, "the job ended"),
        }
        if let Err(error) = self.journal.write(record) {
            // After a restart it is open again, and ends again.
            tracing::error!(job = id.0, %error, "the end of the job is not recorded");
        }
    }

    /// Removes jobs that ended long ago, and the oldest of too many.
    fn clean(&mut self) {
        let now = self.clock.now();
        let keep = u64::try_from(self.options.keep.as_millis()).unwrap_or(u64::MAX);
        let ended = self.records.values().filter_map(|record| Some((record.ended?, record.id)));
        let ended: BTreeSet<(Millis, JobId)> = ended.collect();
        let too_many = ended.len().saturating_sub(ENDED_MAX);
        let is_old =
            |(number, (at, _)): &(usize, (Millis, JobId))| *number < too_many || now.since(*at) >= keep;
        let old: Vec<JobId> = ended.into_iter().enumerate().filter(is_old).map(|(_, (_, id))| id).collect();
        for id in old {
            self.remove_files(id);
            match self.journal.remove(id) {
                Ok(()) => {
                    let removed = self.records.remove(&id);
                    let bytes = removed.map_or(0, |one| one.input_bytes.saturating_add(one.output_bytes));
                    self.space.give_back(bytes);
                }
                Err(error) => tracing::warn!(job = id.0, %error, "an old job is not removed"),
            }
        }
    }

    fn remove_files(&self, id: JobId) {
        let folder = files::folder_of(&self.options.folder, id);
        if let Err(error) = fs::remove_dir_all(&folder)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(folder = %folder.display(), %error, "the files of a job are not removed");
        }
    }

    fn view(&self, id: JobId) -> Result<JobView, JobError> {
        let progress = self.scheduler.progress(self.clock.now());
        let own = progress.iter().find(|(job, _)| *job == id).map(|(_, progress)| progress);
        self.records.get(&id).map(|record| self.view_of(record, own)).ok_or(JobError::Unknown(id))
    }

    fn views(&self) -> Vec<JobView> {
        let progress: BTreeMap<JobId, Progress> =
            self.scheduler.progress(self.clock.now()).into_iter().collect();
        self.records.values().map(|record| self.view_of(record, progress.get(&record.id))).collect()
    }

    fn view_of(&self, record: &Record, progress: Option<&Progress>) -> JobView {
        let forecast = progress.and_then(|progress| progress.forecast);
        let verdict = |by| match record.ended {
            Some(ended) if record.state == JobState::Done && ended <= by => Verdict::InTime,
            Some(_) => Verdict::Late,
            None => Verdict::of(forecast.as_ref(), by),
        };
        let waits_for = self.open.get(&record.id).map(|open| open.waits_for(&record.request.model));
        JobView {
            done: progress.map_or(record.committed, |progress| progress.done),
            in_flight: progress.map_or(0, |progress| progress.in_flight),
            verdict: record.request.by.map(verdict),
            forecast,
            waits_for: waits_for.unwrap_or_default(),
            record: record.clone(),
        }
    }
}
