//! A session: a Python process, and what happens when it fails.
//!
//! Hot path: nothing here logs per batch.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use oip::{Parameter, Tensor};
use serde_json::Value;

use super::super::{
    Alone, Batch, Colocated, Member, ModelErrorCode, RequestDetails, Response, RunError, Session,
};
use super::packets::{Layout, PacketError, Received};
use super::process::{Process, Setup};
use super::wire::{self, Ran, Run, WireRequest};
use super::{NAME, PythonOptions, calls, config};
use crate::Signature;

/// Waits before a process is started again: none after the first failure, longer after each further one.
const RESTART_DELAYS: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(15),
    Duration::from_secs(60),
];
/// A process that ran for so long has recovered: the next failure is the first one again.
const RECOVERED_AFTER: Duration = Duration::from_secs(120);
/// How long a batch waits for a process that is being started again.
const RESTART_WAIT: Duration = Duration::from_secs(2);
/// The first request of a sequence.
const FLAG_START: u32 = 1;
/// The last request of a sequence.
const FLAG_END: u32 = 2;

enum State {
    Running(Box<Process>),
    /// Being started by another thread.
    Starting(mpsc::Receiver<Result<Process, String>>),
}

/// A loaded Python model.
pub(super) struct PythonSession {
    setup: Arc<Setup>,
    signature: Signature,
    options: PythonOptions,
    decoupled: bool,
    sequences: bool,
    state: State,
    started: Instant,
    failures: usize,
    /// Number of the next request.
    next: u64,
}

impl PythonSession {
    /// Starts the process and initializes the model.
    ///
    /// # Errors
    /// The model's own error, or why the process could not start.
    pub fn start(setup: Setup, signature: Signature, options: PythonOptions) -> Result<Self, String> {
        let (process, completed) = Process::start(&setup)?;
        let said = config::signature(&completed)?;
        if said.inputs != signature.inputs || said.outputs != signature.outputs {
            return Err("auto_complete_config: gave other inputs or outputs than before".to_owned());
        }
        Ok(Self {
            setup: Arc::new(setup),
            signature,
            options,
            decoupled: config::decoupled(&completed),
            sequences: config::takes_sequences(&completed),
            state: State::Running(Box::new(process)),
            started: Instant::now(),
            failures: 0,
            next: 1,
        })
    }

    /// The process, if one runs.
    fn process(&mut self) -> Result<&mut Process, RunError> {
        if let State::Starting(wait) = &self.state {
            let started = wait.recv_timeout(RESTART_WAIT);
            match started {
                Ok(Ok(process)) => {
                    tracing::info!(model = self.setup.model, "the Python process was started again");
                    self.state = State::Running(Box::new(process));
                    self.started = Instant::now();
                }
                Ok(Err(reason)) => {
                    tracing::error!(
                        model = self.setup.model,
                        reason,
                        "the Python process did not start again"
                    );
                    self.restart();
                    return Err(unavailable(format!("the Python process did not start again: {reason}")));
                }
                Err(_) => return Err(unavailable("the Python process is starting again".to_owned())),
            }
        }
        match &mut self.state {
            State::Running(process) => Ok(process),
            State::Starting(_) => Err(unavailable("the Python process is starting again".to_owned())),
        }
    }

    /// Replaces the process in the background.
    fn restart(&mut self) {
        if self.started.elapsed() > RECOVERED_AFTER {
            self.failures = 0;
        }
        let delay = RESTART_DELAYS.get(self.failures).or(RESTART_DELAYS.last()).copied().unwrap_or_default();
        self.failures = self.failures.saturating_add(1);
        let (sender, started) = mpsc::channel();
        let before = std::mem::replace(&mut self.state, State::Starting(started));
        if let State::Running(mut process) = before {
            process.kill();
            process.events.fail_unfinished("the Python process ended");
        }
        let setup = Arc::clone(&self.setup);
        let run = move || {
            thread::sleep(delay);
            // The session may have been dropped.
            let _ = sender.send(Process::start(&setup).map(|(process, _)| process));
        };
        if let Err(error) = thread::Builder::new().name("python-restart".to_owned()).spawn(run) {
            tracing::error!(model = self.setup.model, %error, "the Python process cannot be started again");
        }
    }

    fn run_members(
        &mut self,
        members: &[Member],
        colocated: &mut dyn Colocated,
    ) -> Result<Vec<Result<Response, RunError>>, RunError> {
        let first = self.next;
        self.next = first.wrapping_add(members.len() as u64);
        let (decoupled, limit) = (self.decoupled, self.options.run_timeout);
        let process = match self.process() {
            Ok(process) => process,
            Err(error) => return Ok(members.iter().map(|_| Err(error.clone())).collect()),
        };
        let events = Arc::clone(&process.events);
        let numbered = || (first..).zip(members);
        let mut refused = BTreeMap::new();
        for (number, member) in numbered() {
            if let Some(details) = &member.details
                && let Err(error) = events.begin(number, details)
            {
                refused.insert(number, error);
            }
        }
        let mut layout = Layout::default();
        let accepted = || numbered().filter(|(number, _)| !refused.contains_key(number));
        let requests = accepted().map(|(number, member)| request(number, member, &mut layout)).collect();
        let sent = process.commands.send(&Run { op: "run", requests }, &layout, None);
        let answer = sent.and_then(|()| answer(process, limit, colocated));
        let end_all = || numbered().for_each(|(number, _)| events.end(number));
        let answer = match answer {
            Ok(answer) => answer,
            Err(PacketError::TooLarge(bytes)) => {
                end_all();
                return Err(RunError::Input(format!("the inputs of the batch take {bytes} bytes")));
            }
            Err(error) => {
                let reason = match error {
                    PacketError::Late => {
                        format!("execute took more than {limit:?}: `run_timeout` allows longer")
                    }
                    error => process.ended(error),
                };
                tracing::error!(
                    model = self.setup.model,
                    reason,
                    "the Python process failed and is started again"
                );
                self.restart();
                end_all();
                // The requests do not run again: one of them may have been the reason.
                return Ok(members.iter().map(|_| Err(RunError::Engine(reason.clone()))).collect());
            }
        };
        if answer.holds {
            process.commands.leave_file();
        }
        if decoupled {
            // The requests end with their last responses.
            let results = numbered().map(|(number, member)| match refused.remove(&number) {
                Some(error) => Err(error),
                None if member.details.as_ref().is_none_or(|details| details.responses.is_none()) => {
                    Err(RunError::Engine("a decoupled model gives no single response".to_owned()))
                }
                None => Ok(Response::default()),
            });
            return Ok(results.collect());
        }
        end_all();
        let mut results = results(answer, &mut refused, first, members.len())?;
        for response in results.iter_mut().flatten() {
            // Triton drops outputs that the configuration does not have, too.
            response
                .outputs
                .retain(|output| self.signature.outputs.iter().any(|spec| spec.name == output.name));
        }
        Ok(results)
    }
}

fn unavailable(message: String) -> RunError {
    RunError::Model { code: ModelErrorCode::Unavailable, message }
}

/// Waits for the results of a batch, and answers the model's questions until then.
fn answer(
    process: &mut Process,
    limit: Duration,
    colocated: &mut dyn Colocated,
) -> Result<Received<Ran>, PacketError> {
    let until = Instant::now() + limit;
    loop {
        let rest = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        // The socket's timeout is set only when it changes, so one that is half used up is not shortened for each question.
        let wait = if rest < limit / 2 { rest } else { limit };
        let mut received = process.commands.receive::<Ran>(Some(wait))?;
        let Some(question) = received.head.ask.take() else { return Ok(received) };
        let events = Arc::clone(&process.events);
        let (reply, layout) = match question.op.as_str() {
            "cancelled" => (events.is_cancelled(question.request), Layout::default()),
            "ready" => (events.is_ready(&question), Layout::default()),
            // A thread of the model gets the answer on the socket for events, so that other threads can ask until then.
            "call" if question.call.is_some() => {
                let number = question.call;
                let answer = move |answer, layout: Layout| events.answer(number, answer, &layout);
                let host = process.events.host();
                calls::start(host, received.with(question), Some(colocated), answer);
                (Value::Null, Layout::default())
            }
            "call" => {
                let (sender, called) = mpsc::channel();
                let answer = move |answer, layout| {
                    // The batch may have failed.
                    let _ = sender.send((answer, layout));
                };
                calls::start(events.host(), received.with(question), Some(colocated), answer);
                let rest = until.saturating_duration_since(Instant::now());
                called.recv_timeout(rest).map_err(|_| PacketError::Late)?
            }
            other => return Err(PacketError::Invalid(format!("unknown question `{other}`"))),
        };
        process.commands.leave_file();
        process.commands.send(&reply, &layout, None)?;
    }
}

fn request<'a>(number: u64, member: &'a Member, layout: &mut Layout) -> WireRequest<'a> {
    let inputs =
        member.inputs.iter().map(|input| input.as_ref().map(|tensor| wire::placed(tensor, layout))).collect();
    let Some(details) = member.details.as_deref() else {
        return (number, "", Value::from(0), None, 0, 0, BTreeMap::new(), inputs);
    };
    let parameter =
        |name: &str| details.parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value);
    let is_set = |name: &str| matches!(parameter(name), Some(Parameter::Bool(true)));
    let flags =
        u32::from(is_set("sequence_start")) * FLAG_START + u32::from(is_set("sequence_end")) * FLAG_END;
    let correlation = parameter("sequence_id").map_or(Value::from(0), wire::to_json);
    let own = details.parameters.iter().filter(|(name, _)| !RESERVED.contains(&name.as_str()));
    let parameters = own.map(|(name, value)| (name.as_str(), wire::to_json(value))).collect();
    let RequestDetails { id, outputs, timeout_us, .. } = details;
    (number, id, correlation, outputs.as_deref(), flags, *timeout_us, parameters, inputs)
}

/// Parameters that the protocol's extensions define. The model gets them in other ways.
const RESERVED: [&str; 5] = ["sequence_id", "sequence_start", "sequence_end", "priority", "timeout"];

fn results(
    mut answer: Received<Ran>,
    refused: &mut BTreeMap<u64, RunError>,
    first: u64,
    count: usize,
) -> Result<Vec<Result<Response, RunError>>, RunError> {
    if let Some(message) = answer.head.error.take() {
        let failed = RunError::Model { code: ModelErrorCode::Internal, message };
        // The requests of the batch may each run again, alone.
        return if count == 1 { Ok(vec![Err(failed)]) } else { Err(failed) };
    }
    let mut given = answer.head.results.take().unwrap_or_default().into_iter();
    let results = (first..).take(count).map(|number| {
        if let Some(error) = refused.remove(&number) {
            return Err(error);
        }
        let given =
            given.next().ok_or_else(|| RunError::Engine("the model gave too few responses".to_owned()))?;
        let checked = wire::response(given, &answer);
        checked.unwrap_or_else(|error| Err(RunError::Engine(error.to_string())))
    });
    Ok(results.collect())
}

impl Session for PythonSession {
    /// Runs a batch as one request, in the order of the signature's outputs.
    fn run(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError> {
        let member = Member::of(batch.inputs.clone(), batch.rows);
        let mut outputs = match self.run_members(&[member], &mut Alone)?.pop() {
            Some(result) => result?.outputs,
            None => return Err(RunError::Engine("no result".to_owned())),
        };
        let specs = self.signature.outputs.iter();
        let ordered = specs.map(|spec| {
            let at = outputs.iter().position(|output| output.name == spec.name);
            let missing = || RunError::Engine(format!("the model gave no output `{}`", spec.name));
            at.map(|at| outputs.swap_remove(at)).ok_or_else(missing)
        });
        ordered.collect()
    }

    fn takes_requests(&self) -> bool {
        true
    }

    fn decoupled(&self) -> bool {
        self.decoupled
    }

    fn takes_samples(&self) -> bool {
        // A sample belongs to no sequence.
        self.options.sample_runs && !self.decoupled && !self.sequences
    }

    fn run_requests(
        &mut self,
        requests: &[Member],
        colocated: &mut dyn Colocated,
    ) -> Result<Vec<Result<Response, RunError>>, RunError> {
        self.run_members(requests, colocated)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn engine(&self) -> &'static str {
        NAME
    }
}
