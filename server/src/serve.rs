//! `tessera serve`: start, announce, wait for a signal, drain.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use identity::{Identity, Role};
use metrics_exporter_prometheus::PrometheusHandle;
use node::config::{Config, ConfigArgs, ConfigSource, TlsListener};
use node::environment::Environment;
use node::metrics::Transport;
use node::reason::Reason;
use node::{Node, Startup, lanes, logs, metrics, output};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::banner::{self, Addresses, Schemes};
use crate::fleet::{AgentProcess, Peers};
use crate::front::{Front, FrontLimits};
use crate::gate::{CertificateCaller, Gate, Need};
use crate::http::HttpService;
use crate::listener::{self, ConnectionLimits, Listener, Protocols};
use crate::reloads::Reloads;
use crate::service::Service;
use crate::systemd;
use crate::telemetry_export::Exported;
use crate::trace::Traces;
use crate::{grpc, identity_watch, job_rows, metrics_endpoint};

/// Most network threads by default. More would take cores from the lanes without serving faster.
const NETWORK_THREADS: usize = 4;
/// Cores for each network thread by default. With more threads, each request wakes one that finds nothing to do.
const CORES_PER_NETWORK_THREAD: usize = 2;
/// Supervisors may send a signal to the process and to its group. A signal within this time of the first is that same one; a
/// person takes longer to press Ctrl-C again.
const REPEATED_SIGNAL: Duration = Duration::from_millis(100);
/// How often the dashboard's figures are renewed.
const ACTIVITY: Duration = Duration::from_secs(1);
/// How long connections that are open after the grace period may still send what is written.
const LAST_WRITES: Duration = Duration::from_secs(2);

/// Options of `serve`.
#[derive(Args, Clone, Debug, Default)]
pub struct ServeArgs {
    /// The configuration sources.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Write one line of JSON instead of text to standard output when the models are loaded.
    #[arg(long)]
    pub json: bool,
    /// Check the configuration and exit.
    #[arg(long)]
    pub check_config: bool,
    /// Print the effective configuration, with where each value came from, and exit.
    #[arg(long)]
    pub print_config: bool,
}

/// Runs the command: serves, or only checks or prints the configuration.
///
/// # Errors
/// Why it cannot serve.
pub fn run(arguments: &ServeArgs, environment: &Environment) -> anyhow::Result<ExitCode> {
    let config_source = ConfigSource::new(arguments.config.clone(), environment.clone());
    let config = match config_source.read() {
        Ok(config) => config,
        Err(problems) => return Ok(problems.report()),
    };
    if arguments.print_config {
        output::write(config.print().as_bytes());
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.check_config {
        output::write(b"the configuration is sound\n");
        return Ok(ExitCode::SUCCESS);
    }
    let (exported, layer) = Exported::of(&config.telemetry)?.unzip();
    logs::install(&config.server, environment.stderr_is_terminal, layer.flatten())?;
    until_signalled((config_source, config), environment, exported, arguments.json)
}

/// Serves until a signal. Exit code 0 if every request was answered, 1 if some were not.
fn until_signalled(
    (config_source, config): (ConfigSource, Config),
    environment: &Environment,
    exported: Option<Exported>,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let allowed = gpulet::allowed_cores().context("cannot read the affinity mask")?;
    let lanes = lanes::core_sets(&config.lanes, &allowed).map_err(anyhow::Error::msg)?;
    let by_cores = (allowed.len() / CORES_PER_NETWORK_THREAD).clamp(1, NETWORK_THREADS);
    let threads = config.server.threads.map_or(by_cores, std::num::NonZeroUsize::get);
    raise_open_files();
    let ort = models::engine::ort::discover(config.repository.ort_library.as_deref(), &environment.ort);
    match &ort {
        Ok(library) => {
            tracing::info!(version = %library.version, path = %library.path.display(), "using ONNX Runtime")
        }
        Err(missing) if config.repository.ort_library.is_some() => {
            anyhow::bail!("repository.ort_library: {missing}")
        }
        Err(missing) => {
            tracing::info!(reason = %missing, "no ONNX Runtime library found: models run on tract")
        }
    }
    let startup = Startup { config, lanes, ort, spans: None, config_source };
    runtime(threads)?.block_on(serve(startup, exported, json))
}

/// Uses the current thread where only one is allowed: on one core a second thread costs more than it gains.
fn runtime(threads: usize) -> std::io::Result<Runtime> {
    let mut builder = if threads > 1 {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(threads);
        builder
    } else {
        Builder::new_current_thread()
    };
    builder.thread_name("tessera-net").enable_all().build()
}

/// The soft limit is often 1024, which `limits.connections` would hit long before its own bound.
fn raise_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "cannot raise the limit of open files");
    }
}

async fn serve(startup: Startup, exported: Option<Exported>, json: bool) -> anyhow::Result<ExitCode> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut signalled = async move || {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    };
    // Without a handler, the signal would end the process.
    let hangup = signal(SignalKind::hangup())?;
    let (config, config_source) = (startup.config.clone(), startup.config_source.clone());
    let recorder = metrics::install(config.metrics.triton_names)?;
    let identity = Arc::new(Identity::load(config.identity_settings()).map_err(|mistakes| {
        let mistakes = mistakes.iter().map(|found| format!("{}: {}", found.file.setting(), found.message));
        anyhow::Error::msg(mistakes.collect::<Vec<_>>().join("\n"))
    })?);
    let listeners = Listeners::bind(&config, &identity).await?;
    let addresses = listeners.addresses();
    let embedded = config.repository.path.is_none();

    let spans = exported.map(|exported| exported.start(&recorder)).transpose()?;
    let startup = Startup { spans: spans.clone(), ..startup };
    let service = Service::new(Node::start(startup).await?);
    let node = &service.node;
    let _gpus = metrics::watch(node.gpus(), config.metrics.triton_names);
    let traces = Traces::new(&config.trace).map_err(anyhow::Error::msg)?;
    let limits = front_limits(&config);
    let gate = gate(&config, &identity);
    let client_tenant = config.tls.client_tenant.clone();
    let reloads = Arc::new(Reloads::new(Arc::clone(&service), Arc::clone(&identity), client_tenant));
    let shared_memory = config.shared_memory();
    let front = Front::new(Arc::clone(&service), Arc::clone(&reloads), shared_memory, limits, traces, gate);
    let peers = Peers::start(&config.fleet).map_err(anyhow::Error::msg)?;
    let front = front.with_peers(config.fleet.node.clone().unwrap_or_default(), peers);
    let front = front.with_batch_marks(config.fleet.batch_marks);
    let jobs = job_rows::open(&config, &service, limits.protocol)?;
    let front = front.with_jobs(jobs);
    let front = Arc::new(front.with_admin_names(config.server.admin_names.iter().cloned()));
    let mut reloading = JoinSet::new();
    reloading.spawn(Arc::clone(&reloads).at_hangup(hangup));
    if config.server.watch_config {
        reloading.spawn(Arc::clone(&reloads).watch(config_source, config.file.clone()));
    }
    let keep_alive = tokio::spawn(systemd::keep_alive(Arc::clone(&service)));
    let stop = CancellationToken::new();
    let mut listeners = listen(&config, listeners, &front, recorder, &stop)?;
    identity_watch::announce(&identity, node.catalog().tenants(), &config.tls.client_tenant);
    listeners.spawn(identity_watch::run(Arc::clone(&identity), Arc::clone(&service), stop.clone()));

    let agent = AgentProcess::start(&config.fleet, config.repository.path.as_deref(), addresses.admin)?;

    let cause = tokio::select! {
        cause = signalled() => cause,
        () = node.load_at_start() => {
            node.start_control()?;
            if json {
                output::line(&banner::json(&service, addresses));
            } else {
                output::write(banner::text(&service, addresses, schemes(&config), embedded).as_bytes());
            }
            let Addresses { http, grpc, metrics, admin } = addresses;
            tracing::info!(%http, %grpc, %metrics, %admin, "serving");
            reloads.manager.ready(node);
            signalled().await
        }
    };
    reloading.abort_all();
    systemd::stopping();
    let lame_duck = config.lame_duck();
    // It would load and unload models while requests are answered for the last time.
    let agent = tokio::task::spawn_blocking(move || agent.map(AgentProcess::stop));
    tracing::info!(cause, in_flight = front.in_flight(), ?lame_duck, "draining");
    let second = async {
        let first = Instant::now();
        loop {
            let cause = signalled().await;
            if first.elapsed() >= REPEATED_SIGNAL {
                return cause;
            }
        }
    };
    let drained = tokio::select! {
        drained = drain(&front, &stop, &mut listeners, lame_duck, config.server.grace.0) => drained,
        cause = second => {
            tracing::warn!(cause, "second signal: stopping before all requests are answered");
            front.in_flight() == 0
        }
    };
    keep_alive.abort();
    agent.await?;
    node.stop().await;
    front.traces.flush(LAST_WRITES).await;
    if let Some(spans) = spans
        && !spans.exporter.flush(LAST_WRITES).await
    {
        tracing::warn!("some telemetry was not sent in time");
    }
    if drained {
        tracing::info!("stopped");
        return Ok(ExitCode::SUCCESS);
    }
    tracing::warn!(in_flight = front.in_flight(), "stopped before all requests were answered");
    Ok(ExitCode::FAILURE)
}

/// The bound sockets.
struct Listeners {
    http: Listener,
    grpc: Listener,
    metrics: Listener,
    admin: Listener,
}

impl Listeners {
    async fn bind(config: &Config, identity: &Identity) -> anyhow::Result<Self> {
        let tls = |listener| config.uses_tls(listener).then(|| identity.tls.clone()).flatten();
        let server = &config.server;
        Ok(Self {
            http: Listener::bind("server.http", server.http).await?.with_tls(tls(TlsListener::Http)),
            grpc: Listener::bind("server.grpc", server.grpc).await?.with_tls(tls(TlsListener::Grpc)),
            metrics: Listener::bind("server.metrics", server.metrics)
                .await?
                .with_tls(tls(TlsListener::Metrics)),
            admin: Listener::bind("server.admin", server.admin).await?.with_tls(tls(TlsListener::Admin)),
        })
    }

    fn addresses(&self) -> Addresses {
        Addresses {
            http: self.http.address,
            grpc: self.grpc.address,
            metrics: self.metrics.address,
            admin: self.admin.address,
        }
    }
}

fn schemes(config: &Config) -> Schemes {
    let scheme = |listener| if config.uses_tls(listener) { "https" } else { "http" };
    Schemes {
        http: scheme(TlsListener::Http),
        metrics: scheme(TlsListener::Metrics),
        admin: scheme(TlsListener::Admin),
    }
}

/// Who is let in. Credentials that cross the network in the clear are worth a warning.
fn gate(config: &Config, identity: &Identity) -> Gate {
    let server = &config.server;
    let loopback = server.http.ip().is_loopback() && server.grpc.ip().is_loopback();
    let Some(authenticator) = &identity.authenticator else { return Gate::open(loopback) };
    for (setting, address, listener) in [
        ("server.http", server.http, TlsListener::Http),
        ("server.grpc", server.grpc, TlsListener::Grpc),
        ("server.metrics", server.metrics, TlsListener::Metrics),
        ("server.admin", server.admin, TlsListener::Admin),
    ] {
        if !address.ip().is_loopback() && !config.uses_tls(listener) {
            tracing::warn!(setting, %address, "keys and tokens are sent to this address without TLS: set `tls.cert` and `tls.key`");
        }
    }
    Gate::new(Arc::clone(authenticator), server.model_control)
}

fn front_limits(config: &Config) -> FrontLimits {
    let limits = &config.limits;
    FrontLimits {
        protocol: oip::Limits {
            body_bytes: limits.body.bytes(),
            tensor_bytes: limits.body.bytes(),
            tensors: limits.tensors.get(),
            parameters: limits.parameters.get(),
            json_depth: limits.json_depth.get(),
            name_bytes: limits.name.bytes(),
        },
        bodies: limits.bodies.bytes(),
        body_timeout: limits.body_timeout.0,
        stream_requests: limits.stream_requests.get(),
    }
}

/// Serves all addresses, and keeps the metrics in bounds.
fn listen(
    config: &Config,
    Listeners { http, grpc, metrics, admin }: Listeners,
    front: &Arc<Front>,
    recorder: PrometheusHandle,
    stop: &CancellationToken,
) -> anyhow::Result<JoinSet<()>> {
    let limits = ConnectionLimits {
        connections: config.limits.connections.get(),
        header_bytes: u32::try_from(config.limits.header.0).unwrap_or(u32::MAX),
        header_timeout: config.limits.header_timeout.0,
        answer_timeout: config.limits.answer_timeout.0,
        streams: config.limits.streams,
    };
    let rest = HttpService::new(Arc::clone(front));
    let rpc = grpc::service(Arc::clone(front)).context("cannot read the embedded service descriptors")?;
    let rendering = recorder.clone();

    let mut listeners = JoinSet::new();
    let answer = listener::service(move |request| rest.clone().answer(request));
    let tells_peers = config.server.tenant_header.is_some();
    let http = http
        .telling_peers(tells_peers)
        .counting_slow_readers(front.metrics.refusals(Transport::Http, Reason::SlowReader));
    listeners.spawn(http.serve(Protocols::Http, limits, answer, stop.clone()));
    let answer = listener::service(move |request| rpc.clone().answer(request));
    let grpc = grpc
        .telling_peers(tells_peers)
        .counting_slow_readers(front.metrics.refusals(Transport::Grpc, Reason::SlowReader));
    listeners.spawn(grpc.serve(Protocols::Http2, limits, answer, stop.clone()));
    let managing = HttpService::admin(Arc::clone(front));
    let answer = listener::service(move |request| managing.clone().answer(request));
    let admin = admin.counting_slow_readers(front.metrics.refusals(Transport::Http, Reason::SlowReader));
    listeners.spawn(admin.serve(Protocols::Http, limits, answer, stop.clone()));
    let scraped = Arc::clone(front);
    // This machine reads its metrics without a credential.
    let need = if metrics.address.ip().is_loopback() { Need::Nothing } else { Need::Role(Role::Read) };
    let answer = listener::service(move |request| {
        let (rendering, front) = (rendering.clone(), Arc::clone(&scraped));
        async move {
            let certificate = request.extensions().get::<CertificateCaller>();
            if let Err(refusal) = front.gate.check(need, request.headers(), certificate) {
                return metrics_endpoint::refused(&refusal);
            }
            if metrics_endpoint::reads(&request) {
                metrics::process_read();
                // A scrape shows the state of now. A router that does not answer at once shows that of the last upkeep.
                let _ = tokio::time::timeout(metrics::UPKEEP, front.service.node.refresh_gauges()).await;
            }
            metrics_endpoint::answer(&rendering, &request)
        }
    });
    listeners.spawn(metrics.serve(Protocols::Http, limits, answer, stop.clone()));
    let (stopped, watched) = (stop.clone(), Arc::clone(front));
    listeners.spawn(async move {
        let mut ticks = tokio::time::interval(ACTIVITY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                () = stopped.cancelled() => return,
                _ = ticks.tick() => watched.activity.look(&watched.service.node).await,
            }
        }
    });
    let (stopped, service) = (stop.clone(), Arc::clone(&front.service));
    listeners.spawn(async move {
        let mut ticks = tokio::time::interval(metrics::UPKEEP);
        loop {
            tokio::select! {
                () = stopped.cancelled() => return,
                _ = ticks.tick() => {
                    service.node.refresh_gauges().await;
                    recorder.run_upkeep();
                }
            }
        }
    });
    Ok(listeners)
}

/// Shuts down in two steps. For the time `lame_duck`, the server reports that it is not ready and goes on serving. Then it
/// rejects new requests, answers those in flight, and closes connections. Health and metrics stay reachable until the last
/// answer. Returns whether every request was answered.
async fn drain(
    front: &Front,
    stop: &CancellationToken,
    listeners: &mut JoinSet<()>,
    lame_duck: Duration,
    grace: Duration,
) -> bool {
    front.begin_to_leave();
    tokio::time::sleep(lame_duck).await;
    let started = Instant::now();
    front.begin_drain();
    if let Some(jobs) = front.jobs.clone() {
        // Their rows would be refused from now on.
        let stopped = tokio::task::spawn_blocking(move || jobs.stop()).await;
        stopped.unwrap_or_else(|error| tracing::error!(%error, "jobs did not stop"));
    }
    let answered = tokio::time::timeout(grace, front.idle()).await.is_ok();
    stop.cancel();
    let closing = async { while listeners.join_next().await.is_some() {} };
    let left = grace.saturating_sub(started.elapsed()).max(LAST_WRITES);
    let closed = tokio::time::timeout(left, closing).await.is_ok();
    if !closed {
        tracing::debug!("some connections did not close in time");
    }
    answered
}
