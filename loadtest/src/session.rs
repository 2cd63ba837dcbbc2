//! A run: reads the server's metadata, sends from several threads, and collects their records.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender as Channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use std::{io, thread};

use http::{HeaderName, HeaderValue};
use oip::metadata::ModelMetadata;
use tokio::runtime::Builder;
use tokio::task::LocalSet;
use workload::{Arrivals, Extent, Offered, Workload};

use crate::api::{self, Api};
use crate::clock::Clock;
use crate::collector::{Collector, Live};
use crate::connection::{Connections, Dialer};
use crate::drive::Drive;
use crate::error::{LoadError, MissingShapes};
use crate::outcome::Outcome;
use crate::payload::{OPEN, Payloads, declared};
use crate::plan::{Memory, ModelPlan};
use crate::record::{Objective, Record, SECOND};
use crate::report::Report;
use crate::sender::{Sender, Shared, Spent, Timed};
use crate::statistics::Statistics;
use crate::suggestion::Asking;
use crate::target::{Endpoint, Protocol, Tensors};

/// Time between the start of the threads and the first request.
const LEAD: Duration = Duration::from_millis(50);
/// Interval between progress reports.
const LIVE_INTERVAL: Duration = Duration::from_millis(500);
/// The name of the binary tensor extension in a server's metadata.
const BINARY_EXTENSION: &str = "binary_tensor_data";
/// Tasks that a sending thread runs before it polls its sockets and its alarm.
const EVENT_INTERVAL: u32 = 16;

/// How the client shows a server who it is, and knows the server.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// Value of the header `authorization` of every request.
    pub authorization: Option<HeaderValue>,
    /// What the client trusts. Needed for endpoints with TLS.
    pub tls: Option<Arc<rustls::ClientConfig>>,
}

/// How a server is measured.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address and protocol.
    pub endpoint: Endpoint,
    /// Who the client is, and what it trusts.
    pub credentials: Credentials,
    /// Encoding of tensors.
    pub tensors: Tensors,
    /// The server's names of models, where they differ from the workload's.
    pub names: BTreeMap<String, String>,
    /// Header in which requests name their tenant. `None`: they name none.
    pub tenant_header: Option<HeaderName>,
    /// How payloads are generated.
    pub payloads: Payloads,
    /// Largest absolute or relative difference between a value and the expected one.
    pub tolerance: f64,
    /// Upper bound on connections, over all threads.
    pub connections: u32,
    /// Number of sending threads, at least 1.
    pub threads: u32,
    /// How long to wait for an answer.
    pub timeout: Duration,
    /// Whether to keep the latency histogram of each second, for an HDR log.
    pub keep_seconds: bool,
    /// Whether to fill [`Report::timings`].
    pub keep_timings: bool,
}

/// A server whose models are known.
#[derive(Debug)]
pub struct Session {
    settings: Settings,
    dialer: Dialer,
    api: Api,
    server: String,
    plans: Vec<ModelPlan>,
    served_as: Vec<String>,
}

impl Session {
    /// Reads the metadata of every model of a workload, generates payloads, and sends one of each.
    ///
    /// # Errors
    /// The server cannot be reached, has another protocol, lacks a model, or returns a wrong result.
    pub fn open(workload: &Workload, settings: Settings) -> Result<Self, LoadError> {
        if settings.endpoint.protocol == Protocol::Grpc && settings.tensors == Tensors::Json {
            let problem = "gRPC: expected binary tensors, got JSON";
            return Err(LoadError::option("--tensors", problem));
        }
        let address = settings.endpoint.resolve()?;
        let dialer = Dialer::new(&settings.endpoint, address, settings.credentials.tls.clone())
            .map_err(|problem| LoadError::option("--url", problem))?;
        let authorization = settings.credentials.authorization.clone();
        let api = Api::new(&settings.endpoint, settings.tensors, settings.timeout, authorization);
        let served_as = served_as(workload, &settings)?;
        let mut session = Self { dialer, api, server: String::new(), plans: Vec::new(), served_as, settings };
        block_on(session.ask(workload))??;
        Ok(session)
    }

    async fn ask(&mut self, workload: &Workload) -> Result<(), LoadError> {
        let connections = Connections::new(self.settings.endpoint.protocol, self.dialer.clone(), 1);
        let server = self
            .api
            .server(&connections)
            .await
            .map_err(|problem| LoadError::Server { url: self.settings.endpoint.to_string(), problem })?;
        self.server = format!("{} {}", server.name, server.version).trim().to_owned();
        let mut known = BTreeMap::new();
        for name in &self.served_as {
            if !known.contains_key(name) {
                let metadata = self.api.model(&connections, name).await;
                let metadata = metadata.map_err(|problem| LoadError::model(name, problem))?;
                known.insert(name.clone(), metadata);
            }
        }
        self.settings.payloads.check(&known)?;
        self.check_shapes(&connections, &known, workload.seed).await?;
        let takes_binary = server.extensions.iter().any(|extension| extension == BINARY_EXTENSION);
        for (model, name) in workload.models.iter().zip(&self.served_as) {
            let Some(metadata) = known.get(name).cloned() else { continue };
            let plan = ModelPlan::new(
                &self.api,
                &self.settings.payloads,
                metadata,
                model.rows.iter().map(|(rows, _)| rows),
                (!model.best_effort).then_some(model.priority),
                workload.seed,
                self.settings.tolerance,
            )?;
            let plan = match &self.settings.tenant_header {
                Some(header) => {
                    let tenant = |(number, _): (u16, f64)| {
                        workload.tenants.get(usize::from(number)).map(|tenant| (number, tenant.name.as_str()))
                    };
                    plan.naming_tenants(header, model.tenants.iter().filter_map(tenant))?
                }
                None => plan,
            };
            for ready in plan.probes() {
                let exchange = connections.exchange(&ready.wire, &api::Unwatched);
                let outcome = match tokio::time::timeout(self.settings.timeout, exchange).await {
                    Ok(Ok(reply)) => plan.outcome(&self.api, ready, &reply, &Memory::default()),
                    Ok(Err(failure)) => Outcome::of_failure(&failure),
                    Err(_) => Outcome::of_failure(&crate::connection::Failure::TimedOut),
                };
                if let Outcome::Failed { .. } = outcome {
                    let untold = self.api.sends_binary_extension() && !takes_binary;
                    let hint = "; this server does not say that it takes binary tensors: try --tensors json";
                    let hint = if untold { hint } else { "" };
                    return Err(LoadError::model(name, format!("{outcome}{hint}")));
                }
            }
            self.plans.push(plan);
        }
        Ok(())
    }

    /// Checks that every input has a shape.
    async fn check_shapes(
        &self,
        connections: &Connections,
        known: &BTreeMap<String, ModelMetadata>,
        seed: u64,
    ) -> Result<(), LoadError> {
        let Settings { payloads, timeout, .. } = &self.settings;
        let asking = Asking { api: &self.api, connections, payloads, seed, timeout: *timeout };
        let mut missing: Option<MissingShapes> = None;
        for (name, metadata) in known {
            let open = payloads.open_inputs(metadata);
            let Some(first) = open.first() else { continue };
            let problem = format!("input `{}`: its shape {} {OPEN}", first.name, declared(&first.shape));
            let found = asking.shapes(metadata, &open).await;
            let found = found.map_err(|reason| LoadError::model(name, format!("{problem}: {reason}")))?;
            let prefix = if known.len() > 1 { format!("{name}/") } else { String::new() };
            let flag = |(input, extents): (&String, &Vec<u64>)| {
                let extents: Vec<String> = extents.iter().map(u64::to_string).collect();
                format!("{prefix}{input}={}", extents.join("x"))
            };
            let flags = found.shapes.iter().map(flag);
            match &mut missing {
                Some(missing) => missing.flags.extend(flags),
                None => {
                    let (model, flags) = (name.clone(), flags.collect());
                    missing = Some(MissingShapes { model, problem, flags, origin: found.origin });
                }
            }
        }
        missing.map_or(Ok(()), |missing| Err(LoadError::Shapes(missing)))
    }

    /// Sends the requests of a workload, which must have the models that the session was opened for. `stop` ends the run
    /// early. `live` is called about twice a second.
    pub fn run(
        &self,
        workload: &Workload,
        drive: &Drive,
        stop: &Arc<AtomicBool>,
        live: &mut dyn FnMut(&Live),
    ) -> Result<Report, LoadError> {
        let mut offered = workload.clone();
        match (drive, workload.extent) {
            (Drive::Open(stages), Extent::Time(_)) => offered = workload.lasting(stages.nominal())?,
            (Drive::Open(_), Extent::Requests(_)) => {}
            (Drive::Closed { .. }, _) => offered.extent = Extent::Requests(workload::REQUESTS_MAX),
        }
        let before = self.statistics()?;
        let threads = self.settings.threads.max(1);
        let stages = match drive {
            Drive::Open(stages) => stages.iter().count(),
            Drive::Closed { .. } => 1,
        };
        let record = || {
            let objectives =
                workload.models.iter().map(|model| Objective { slo: model.slo, deadline: model.deadline });
            let warmup = workload.warmup;
            let mut record = Record::new(objectives.collect(), stages, warmup, self.settings.keep_seconds);
            record.timings = self.settings.keep_timings.then(Vec::new);
            Arc::new(Mutex::new(record))
        };
        let records: Vec<_> = (0..threads).map(|_| record()).collect();
        let shared = Arc::new(Shared {
            api: self.api.clone(),
            plans: self.plans.clone(),
            timeout: self.settings.timeout,
            stop: AtomicBool::new(false),
            keep_timings: self.settings.keep_timings,
        });
        let (started, clock) = (SystemTime::now() + LEAD, Clock::starting_in(LEAD));
        let (channel, results) = mpsc::channel();
        for (number, record) in records.iter().enumerate() {
            let thread = Thread {
                number,
                threads: threads as usize,
                shared: Arc::clone(&shared),
                record: Arc::clone(record),
                clock,
                workload: offered.clone(),
                drive: drive.clone(),
                protocol: self.settings.endpoint.protocol,
                dialer: self.dialer.clone(),
                connections: self.settings.connections.div_ceil(threads).max(1),
            };
            thread.start(channel.clone())?;
        }
        drop(channel);
        let mut collector = Collector::new(workload, self.settings.timeout, self.settings.keep_seconds);
        let watching = Watching { results, records: &records, shared: &shared, stop, clock };
        let (spent, interrupted) = watching.until_the_end(&mut collector, drive, live)?;
        let after = self.statistics()?;
        let counted = after.iter().zip(&before).map(|told| match told {
            (Some(after), Some(before)) => after.since(before),
            _ => Statistics::default(),
        });
        let mut report = collector.report(&records, &spent, drive, interrupted, started);
        report.target = crate::report::Target {
            url: self.settings.endpoint.to_string(),
            protocol: self.settings.endpoint.protocol.as_str().to_owned(),
            tensors: self.settings.tensors.as_str().to_owned(),
            server: self.server.clone(),
        };
        for ((model, served_as), counted) in report.models.iter_mut().zip(&self.served_as).zip(counted) {
            model.served_as.clone_from(served_as);
            model.batches = counted.batch_sizes();
            model.server = counted.times();
        }
        Ok(report)
    }

    /// The statistics of each model so far; none if the server has none, or does not answer in time.
    fn statistics(&self) -> Result<Vec<Option<Statistics>>, LoadError> {
        block_on(async {
            let connections = Connections::new(self.settings.endpoint.protocol, self.dialer.clone(), 1);
            let ask = async {
                let mut all = Vec::new();
                for name in &self.served_as {
                    all.push(self.api.statistics(&connections, name).await.ok());
                }
                all
            };
            let all = tokio::time::timeout(self.settings.timeout, ask).await;
            all.unwrap_or_else(|_| vec![None; self.served_as.len()])
        })
    }
}

/// The server's name of each model of a workload.
fn served_as(workload: &Workload, settings: &Settings) -> Result<Vec<String>, LoadError> {
    for name in settings.names.keys() {
        if !workload.models.iter().any(|model| model.name == *name || model.group == *name) {
            let problem = format!("the workload has no model `{name}`");
            return Err(LoadError::option("--map", problem));
        }
    }
    let of = |model: &workload::Model| {
        let mapped = settings.names.get(&model.name).or_else(|| settings.names.get(&model.group));
        mapped.unwrap_or(&model.name).clone()
    };
    Ok(workload.models.iter().map(of).collect())
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    Builder::new_current_thread().enable_all().event_interval(EVENT_INTERVAL).build()
}

fn block_on<T>(future: impl Future<Output = T>) -> Result<T, LoadError> {
    let runtime = runtime().map_err(|error| LoadError::system("start a runtime", error))?;
    Ok(LocalSet::new().block_on(&runtime, future))
}

struct Thread {
    number: usize,
    threads: usize,
    shared: Arc<Shared>,
    record: Arc<Mutex<Record>>,
    clock: Clock,
    workload: Workload,
    drive: Drive,
    protocol: Protocol,
    dialer: Dialer,
    connections: u32,
}

impl Thread {
    fn start(self, channel: Channel<io::Result<Spent>>) -> Result<(), LoadError> {
        let work = move || {
            // Fails only if the run has failed for another reason.
            let _closed = channel.send(self.send());
        };
        let started = thread::Builder::new().name("sender".to_owned()).spawn(work);
        started.map(drop).map_err(|error| LoadError::system("start a sending thread", error))
    }

    fn send(self) -> io::Result<Spent> {
        let connections = Connections::new(self.protocol, self.dialer.clone(), self.connections);
        let share = |(number, timed): (usize, Timed)| (number % self.threads == self.number).then_some(timed);
        let mut sent = vec![0; self.workload.models.len()];
        let mut number_of = |offered: &Offered| {
            let number = sent.get_mut(offered.model as usize);
            number.map_or(0, |number| std::mem::replace(number, *number + 1))
        };
        let runtime = runtime()?;
        LocalSet::new().block_on(&runtime, async {
            let sender = Sender::new(self.shared, connections, self.record, self.clock);
            match self.drive {
                Drive::Open(stages) => {
                    let requests = stages.apply(Arrivals::new(&self.workload)).map(|offered| Timed {
                        number: number_of(&offered),
                        offered,
                        stage: u32::try_from(stages.stage_at(offered.at)).unwrap_or(u32::MAX),
                    });
                    sender.open_loop(requests.enumerate().filter_map(share)).await
                }
                Drive::Closed { concurrency, time } => {
                    let requests = Arrivals::new(&self.workload).map(|offered| Timed {
                        number: number_of(&offered),
                        offered,
                        stage: 0,
                    });
                    let own = (concurrency as usize + self.threads - 1 - self.number) / self.threads;
                    sender.closed_loop(requests.enumerate().filter_map(share), own, time).await
                }
            }
        })
    }
}

struct Watching<'a> {
    results: Receiver<io::Result<Spent>>,
    records: &'a [Arc<Mutex<Record>>],
    shared: &'a Shared,
    stop: &'a AtomicBool,
    clock: Clock,
}

impl Watching<'_> {
    /// Collects until every thread has ended. Also returns whether the run was stopped.
    fn until_the_end(
        &self,
        collector: &mut Collector,
        drive: &Drive,
        live: &mut dyn FnMut(&Live),
    ) -> Result<(Vec<Spent>, bool), LoadError> {
        let mut spent = Vec::new();
        let mut failed = None;
        let mut interrupted = false;
        let mut ended = 0;
        while ended < self.records.len() {
            match self.results.recv_timeout(LIVE_INTERVAL) {
                Ok(Ok(one)) => {
                    spent.push(one);
                    ended += 1;
                }
                Ok(Err(error)) => {
                    self.shared.stop.store(true, Ordering::Relaxed);
                    failed = Some(LoadError::system("send", error));
                    ended += 1;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(LoadError::Lost),
            }
            if self.stop.load(Ordering::Relaxed) && !interrupted {
                interrupted = true;
                self.shared.stop.store(true, Ordering::Relaxed);
            }
            for record in self.records {
                let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
                collector.take(&mut record, self.clock.now());
            }
            live(&collector.live(self.records, self.clock.now() / SECOND, self.clock.now(), drive));
        }
        match failed {
            Some(error) => Err(error),
            None => Ok((spent, interrupted)),
        }
    }
}
