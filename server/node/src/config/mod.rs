//! Configuration: flag before environment before file before default, parsed once into typed values.
//!
//! Every option is a field of a section. Its file key is `section.key`, its environment variable
//! `TESSERA_SECTION_KEY`, and `--set section.key=value` sets it from the command line; common ones have a flag
//! of their own. All sources are merged as TOML before anything is read, so that there is one way in, and each
//! value remembers where it came from. Nothing else reads the environment.

mod access;
mod arguments;
mod best_effort_section;
mod changes;
mod families_section;
mod fields;
mod fleet_section;
mod jobs_section;
mod merge;
mod models_section;
mod network;
mod pipelines_section;
mod print;
pub mod reference;
pub mod sections;
mod source;
mod telemetry_section;
mod tenants_section;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use gpulet_core::placement::Policy;
use gpulet_core::scaling::SCALERS;
use models::ModelSettings;
use tracing_subscriber::filter::{LevelFilter, Targets};
use units::{Size, nearest};
use variant_plan::live_policies;

use crate::output;

pub use access::{Identity, ModelControl, Tls, TlsListener};
pub use arguments::ConfigArgs;
pub use best_effort_section::BestEffort;
pub use changes::{Change, changes, toml_as_json};
pub use families_section::FamilySettings;
pub use fleet_section::{Fleet, FleetNode, NodeAddress};
pub use jobs_section::Jobs;
pub use merge::{Assignment, Sources};
pub use network::Network;
pub use pipelines_section::{OneOrMore, PipelineSettings, StageSettings};
pub use sections::{
    AccessLogRequests, Cache, Devices, Emulated, Gpus, Interference, Isolation, Lanes, Limits, LoadMode,
    LogFormat, Metrics, Partition, RateLimitMode, RateLimits, RemoteRepository, Repository,
    RequestLogSettings, Server, Trace, TraceLevel,
};
pub use source::{CONFIG_BYTES, ConfigFile, ConfigSource, configure};
pub use telemetry_section::Telemetry;
pub use tenants_section::{OTHER, TenantSettings};

/// Minimum of `partition.period` and `partition.idle`.
const PERIOD_MIN: Duration = Duration::from_millis(100);
/// Maximum of `devices.emulated[].cost`.
const COST_MAX: f64 = 1e9;
/// Variable that Kubernetes sets in every container.
const KUBERNETES_VARIABLE: &str = "KUBERNETES_SERVICE_HOST";
/// Default of `server.lame_duck` in a Kubernetes pod: as long as its services usually take to follow.
const KUBERNETES_LAME_DUCK: Duration = Duration::from_secs(5);

/// The checked configuration of the process.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses, drain, logs.
    pub server: Server,
    /// Who may call.
    pub identity: Identity,
    /// Certificates of the server and of clients.
    pub tls: Tls,
    /// Where models come from.
    pub repository: Repository,
    /// What models run on.
    pub devices: Devices,
    /// How the cores are divided.
    pub lanes: Lanes,
    /// Limits on what clients can send.
    pub limits: Limits,
    /// Resources that running batches hold.
    pub rate_limit: RateLimits,
    /// Answers kept for models that enable `response_cache`.
    pub cache: Cache,
    /// What work of best effort may cost other requests.
    pub best_effort: BestEffort,
    /// Files whose rows run through models.
    pub jobs: Jobs,
    /// Traces of requests.
    pub trace: Trace,
    /// What is sent to a collector over OTLP.
    pub telemetry: Telemetry,
    /// The last requests and the access log.
    pub request_log: RequestLogSettings,
    /// What `/metrics` shows.
    pub metrics: Metrics,
    /// How gpulets follow the load.
    pub partition: Partition,
    /// Other servers, to which requests may go.
    pub fleet: Fleet,
    /// `[tenants.NAME]`.
    pub tenants: BTreeMap<String, TenantSettings>,
    /// `[pipelines.NAME]`.
    pub pipelines: BTreeMap<String, PipelineSettings>,
    /// `[families.NAME]`.
    pub families: BTreeMap<String, FamilySettings>,
    /// `[models.NAME]`.
    pub models: BTreeMap<String, ModelSettings>,
    /// The configuration file as it was read. `None`: defaults, environment and flags only.
    pub file: Option<Arc<ConfigFile>>,
    /// Whether the process runs in a Kubernetes pod.
    pub in_kubernetes: bool,
    /// Each value as TOML, with where it came from, in the order of the sections.
    pub effective: Vec<Effective>,
}

/// One value of the effective configuration.
#[derive(Clone, Debug)]
pub struct Effective {
    /// `section.key`.
    pub path: String,
    /// The section's header, quoted where TOML wants it.
    pub header: String,
    /// As TOML; `None`: not set, and the option has a dynamic default.
    pub value: Option<String>,
    /// Where the value came from.
    pub origin: Origin,
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The default, because no source sets the value.
    Default,
    /// A configuration file, and the line in it if it is known.
    File(PathBuf, Option<u32>),
    /// An environment variable, by name.
    Environment(String),
    /// A flag, by name.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, None) => write!(f, "file {}", path.display()),
            Self::File(path, Some(line)) => write!(f, "file {}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// One error in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Full path of the key, or empty if the file as a whole is invalid.
    pub path: String,
    /// What is wrong, and what would be right.
    pub message: String,
    /// Where the value came from.
    pub origin: Origin,
}

impl Problem {
    fn new(path: &str, message: &str, origin: &Origin) -> Self {
        Self { path: path.to_owned(), message: message.to_owned(), origin: origin.clone() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "{} ({})", self.message, self.origin)
    }
}

/// All errors in the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// Writes all errors to standard error.
    pub fn report(&self) -> ExitCode {
        for problem in &self.0 {
            output::complain(&format!("error: {problem}"));
        }
        ExitCode::FAILURE
    }
}

/// Whether two listeners cannot have these addresses at once. Port 0 is any free port.
fn overlap(one: &SocketAddr, other: &SocketAddr) -> bool {
    let any = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && (any || one.ip() == other.ip())
}

/// Whether a header of this name can hold text over HTTP and gRPC, where names that end in `-bin` hold bytes.
fn is_name_of_text_header(name: &str) -> bool {
    let sound = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(sound) && !name.ends_with("-bin")
}

impl Config {
    /// Merges and checks all sources; every error is listed, not only the first.
    pub fn load(sources: &Sources) -> Result<Self, Problems> {
        let merged = merge::merge(sources)?;
        let config = Self {
            file: sources.file.clone().map(Arc::new),
            in_kubernetes: sources.environment.iter().any(|(name, _)| name == KUBERNETES_VARIABLE),
            ..merged.into_config()?
        };
        let problems = config.contradictions();
        if problems.is_empty() { Ok(config) } else { Err(Problems(problems)) }
    }

    /// How long the server goes on serving after SIGTERM.
    pub fn lame_duck(&self) -> Duration {
        let default = if self.in_kubernetes { KUBERNETES_LAME_DUCK } else { Duration::ZERO };
        self.server.lame_duck.map_or(default, |span| span.0)
    }

    /// Whether the system shared memory extension is on.
    pub fn shared_memory(&self) -> bool {
        let loopback = self.server.http.ip().is_loopback() && self.server.grpc.ip().is_loopback();
        self.server.shared_memory.unwrap_or(loopback)
    }

    /// Checks combinations of values, and limits that types do not express.
    fn contradictions(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut report = |path: &str, message: String| {
            problems.push(Problem { path: path.to_owned(), message, origin: self.origin(path) });
        };
        if let Err(error) = self.repository.engine.parse::<models::EngineChoice>() {
            report("repository.engine", error.to_string());
        }
        match (self.repository.remote(), &self.repository.path) {
            (Err((path, reason)), _) => report(path, reason),
            (Ok(None), Some(path)) if !path.is_dir() => {
                let reason = format!("`{}` is not a folder: expected a folder with models", path.display());
                report("repository.path", reason);
            }
            _ => {}
        }
        let server = &self.server;
        let addresses = [
            ("server.http", server.http),
            ("server.grpc", server.grpc),
            ("server.metrics", server.metrics),
            ("server.admin", server.admin),
        ];
        for (at, (path, address)) in addresses.iter().enumerate() {
            let same = |(_, other): &&(&str, SocketAddr)| overlap(address, other);
            if let Some((first, _)) = addresses.iter().take(at).find(same) {
                report(path, format!("{address} is the address of {first} too: expected another port"));
            }
        }
        self.check_access(&mut report);
        self.telemetry.check(&mut report);
        self.fleet.check(&mut report);
        if self.fleet.agent && self.repository.load != LoadMode::Explicit {
            let why = "because the agent (`fleet.agent`) loads the models of the node's plan";
            report("repository.load", format!("expected `explicit`, {why}"));
        }
        if self.fleet.agent && self.uses_tls(TlsListener::Admin) {
            let expected = "expected an admin listener without TLS, which the agent on this machine uses";
            report("fleet.agent", format!("set together with `tls` for `admin`: {expected}"));
        }
        if let Some(path) = self.repository.ort_library.as_deref().filter(|path| !path.is_file()) {
            let expected = "expected a file such as `libonnxruntime.so`";
            report("repository.ort_library", format!("no file `{}`: {expected}", path.display()));
        }
        if let Err(reason) = Trace::check_file(&self.trace.file) {
            report("trace.file", reason);
        }
        if self.trace.level != TraceLevel::Off && self.trace.dir.is_none() {
            report("trace.level", "needs `trace.dir`: expected a folder for traces".to_owned());
        }
        if self.lanes.count.is_some() && self.lanes.cores.is_some() {
            report("lanes.count", "set together with lanes.cores: expected one of them".to_owned());
        }
        if self.lanes.shared && self.lanes.cores.is_some() {
            report("lanes.shared", "set together with lanes.cores: expected one of them".to_owned());
        }
        if let Some(cores) = &self.lanes.cores {
            let mut seen = std::collections::BTreeSet::new();
            if cores.is_empty() || cores.iter().any(Vec::is_empty) {
                report("lanes.cores", "expected at least one lane, and at least one core in each".to_owned());
            }
            if let Some(core) = cores.iter().flatten().find(|core| !seen.insert(**core)) {
                report("lanes.cores", format!("core {core} is in two lanes: expected each core once"));
            }
        }
        if self.limits.model_memory.is_some() {
            let other = [
                (self.partition.live, "partition.live, whose plans count the memory of models"),
                (self.devices.gpus == Gpus::Auto, "devices.gpus, which count their own memory"),
            ];
            for (_, other) in other.into_iter().filter(|(set, _)| *set) {
                report("limits.model_memory", format!("set together with {other}: expected one of them"));
            }
        }
        if let Some(Err(error)) = self.devices.gpu_backend.as_deref().map(str::parse::<gpulet_cuda::Backend>)
        {
            report("devices.gpu_backend", error.to_string());
        }
        if !self.devices.emulated.is_empty() {
            if self.devices.gpus == Gpus::Auto {
                report("devices.gpus", "set together with devices.emulated: expected one of them".to_owned());
            }
            for (at, entry) in self.devices.emulated.iter().enumerate() {
                let sizes = entry.sizes.as_deref().unwrap_or(&[1]);
                let ascending = sizes.is_sorted_by(|left, right| left < right);
                if !ascending || sizes.first().is_none_or(|least| *least == 0) {
                    let field = format!("devices.emulated[{at}].sizes");
                    report(&field, format!("{sizes:?}: expected ascending numbers above 0"));
                }
            }
            let said =
                [("lanes.count", self.lanes.count.is_some()), ("lanes.cores", self.lanes.cores.is_some())];
            for (path, _) in said.iter().filter(|(_, said)| *said) {
                report(path, "set together with devices.emulated: expected one of them".to_owned());
            }
        }
        let limits = &self.limits;
        for (path, value, least, most) in [
            ("limits.body", limits.body, 1, u64::from(u32::MAX)),
            ("limits.header", limits.header, 1024, 64 << 10),
            ("limits.name", limits.name, 1, 64 << 10),
        ] {
            if !(least..=most).contains(&value.0) {
                let (least, most) = (Size(least), Size(most));
                report(path, format!("{value}: expected {least} to {most}"));
            }
        }
        if limits.bodies < limits.body {
            report(
                "limits.bodies",
                format!("{}: expected at least limits.body, which is {}", limits.bodies, limits.body),
            );
        }
        if limits.streams == 0 {
            report("limits.streams", "0: expected at least 1".to_owned());
        }
        for (path, value, most) in [
            ("limits.tensors", limits.tensors.get(), oip::Limits::TENSORS_MAX),
            ("limits.parameters", limits.parameters.get(), oip::Limits::PARAMETERS_MAX),
            ("limits.json_depth", limits.json_depth.get(), 128),
        ] {
            if value > most {
                report(path, format!("{value}: expected at most {most}"));
            }
        }
        // A word that is not a level would be a filter that lets nothing pass.
        let level = &self.server.log_level;
        let is_filter = |part: &str| part.contains('=') || part.trim().parse::<LevelFilter>().is_ok();
        if level.parse::<Targets>().is_err() || !level.split(',').all(is_filter) {
            report(
                "server.log_level",
                format!(
                    "`{level}`: expected error, warn, info, debug, trace, or filters such as `info,router=debug`"
                ),
            );
        }
        for (at, emulated) in self.devices.emulated.iter().enumerate() {
            if emulated.interference.is_some() && self.devices.isolation == Isolation::Process {
                report(
                    &format!("devices.emulated[{at}].interference"),
                    "set together with devices.isolation = \"process\", where batches do not see each other: expected one \
                     of them"
                        .to_owned(),
                );
            }
        }
        let partition = &self.partition;
        if Policy::named(&partition.policy).is_none() {
            let known = Policy::NAMES.join(", ");
            report("partition.policy", format!("`{}`: expected one of {known}", partition.policy));
        }
        if !(0.0..=1.0).contains(&partition.quota_limit) {
            report("partition.quota_limit", format!("{}: expected 0 to 1", partition.quota_limit));
        }
        if SCALERS.iter().all(|(word, _)| *word != partition.scaling) {
            let known: Vec<&str> = SCALERS.iter().map(|(word, _)| *word).collect();
            report(
                "partition.scaling",
                format!("`{}`: expected one of {}", partition.scaling, known.join(", ")),
            );
        }
        if let Some(problem) = self.variants_problem() {
            report("partition.variants", problem);
        }
        for (at, entry) in self.devices.emulated.iter().enumerate() {
            if !(entry.cost >= 0.0 && entry.cost <= COST_MAX) {
                let message = format!("{}: expected 0 to {COST_MAX}", entry.cost);
                report(&format!("devices.emulated[{at}].cost"), message);
            }
        }
        if let Some(idle) = partition.idle.filter(|idle| idle.0 < PERIOD_MIN) {
            let least = models::TimeSpan(PERIOD_MIN);
            report("partition.idle", format!("{idle}: expected at least {least}"));
        }
        if partition.period.0 < PERIOD_MIN {
            let least = models::TimeSpan(PERIOD_MIN);
            report("partition.period", format!("{}: expected at least {least}", partition.period));
        }
        if partition.live && self.lanes.shared {
            report("lanes.shared", "set together with partition.live: expected one of them".to_owned());
        }
        for (name, settings) in &self.models {
            if !partition.live && settings.replicas_min.is_some() {
                let path = format!("models.{name}.replicas_min");
                report(&path, "has no effect without `partition.live`, where every lane serves the model: expected both".to_owned());
            }
            if partition.live && settings.lanes.is_some() {
                let path = format!("models.{name}.lanes");
                report(
                    &path,
                    "cannot be combined with `partition.live`, which chooses the lanes: expected only one of them".to_owned(),
                );
            }
        }
        for (name, tenant) in &self.tenants {
            for (key, message) in tenant.contradictions() {
                report(&format!("tenants.{name}.{key}"), message);
            }
        }
        if let Some(header) = &server.tenant_header
            && !is_name_of_text_header(header)
        {
            let expected = "expected the name of a header in lower case, such as `x-tenant`";
            report("server.tenant_header", format!("`{header}`: {expected}"));
        }
        for name in self.models.keys() {
            if let Err(error) = name.parse::<models::ModelName>() {
                report(&format!("models.{name}"), error.to_string());
            }
        }
        problems
    }

    /// Why the policy for the variants of families cannot be used.
    fn variants_problem(&self) -> Option<String> {
        let name = self.partition.variants.as_ref()?;
        if live_policies().all(|known| known != name) {
            let known: Vec<&str> = live_policies().collect();
            return Some(format!("`{name}`: expected one of {}", known.join(", ")));
        }
        if !self.partition.live {
            return Some("has no effect without `partition.live`: expected both".to_owned());
        }
        if self.families.is_empty() {
            return Some("has no effect without families: expected [families.NAME]".to_owned());
        }
        let mut seen = BTreeMap::new();
        for (family, settings) in &self.families {
            for variant in &settings.variants {
                if let Some(other) = seen.insert(variant, family) {
                    return Some(format!(
                        "`{variant}` is in families `{other}` and `{family}`: expected each model in one, or no policy"
                    ));
                }
            }
        }
        None
    }

    /// Refuses settings of models that the repository does not have, unless `repository.allow_unknown_models` is set.
    pub fn check_models<'a>(&self, known: impl Iterator<Item = &'a str>) -> Result<(), Problems> {
        if self.repository.allow_unknown_models {
            return Ok(());
        }
        let known: Vec<&str> = known.collect();
        let unknown = self.models.keys().filter(|name| !known.contains(&name.as_str()));
        let problems: Vec<Problem> = unknown
            .map(|name| {
                let path = format!("models.{name}");
                let hint = match nearest(name, &known) {
                    Some(near) => format!(", did you mean `{near}`?"),
                    None => {
                        ": expected a model of the repository, or `repository.allow_unknown_models = true`"
                            .to_owned()
                    }
                };
                Problem::new(&path, &format!("the repository has no such model{hint}"), &self.origin(&path))
            })
            .collect();
        if problems.is_empty() { Ok(()) } else { Err(Problems(problems)) }
    }

    /// Where the value of a key came from.
    pub fn origin(&self, path: &str) -> Origin {
        let inside = |effective: &&Effective| {
            effective.path == path
                || effective.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'))
        };
        self.effective.iter().find(inside).map_or(Origin::Default, |effective| effective.origin.clone())
    }
}
