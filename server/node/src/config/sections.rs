//! The options: one struct a section of `tessera.toml`. Doc comments are the reference.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use device_sections::InterferenceSection;
use documented::{Documented, DocumentedFields};
use model_store::{Location, LocationError, is_secret};
use models::TimeSpan;
use serde::{Deserialize, Serialize};

use units::Size;

use super::Network;
use super::access::ModelControl;

/// `[server]`: addresses, drain, logs.
#[derive(Clone, Debug, Deserialize, Serialize, Documented, DocumentedFields)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// Address of the REST interface. Port 0: any free port.
    pub http: SocketAddr,
    /// Address of the gRPC interface.
    pub grpc: SocketAddr,
    /// Address of `/metrics`.
    pub metrics: SocketAddr,
    /// Address of the admin listener, which serves the paths that manage the server. On an address that other machines reach, it needs
    /// `identity.keys`, `identity.jwks` or `tls.client_ca`.
    pub admin: SocketAddr,
    /// Host names under which browsers and proxies reach the admin listener. Addresses and `localhost` always work.
    /// Default: none. Example: `["tessera.example.com"]`.
    pub admin_names: Vec<String>,
    /// Who may load and unload models through the addresses `http` and `grpc` if callers are known: `operate`, or `open`: every caller.
    pub model_control: ModelControl,
    /// How long the server goes on serving after SIGTERM while it reports that it is not ready, so that load balancers stop
    /// sending before it refuses. Kubernetes takes a moment to remove a pod from its services. Default: `"5s"` in a Kubernetes
    /// pod (if `KUBERNETES_SERVICE_HOST` is set), else `"0s"`. Example: `"5s"`.
    #[serde(serialize_with = "units::text_if")]
    pub lame_duck: Option<TimeSpan>,
    /// How long requests in flight may take after SIGTERM and `lame_duck` before the server stops. Both together have to be
    /// shorter than Kubernetes' `terminationGracePeriodSeconds`, 30 by default.
    #[serde(serialize_with = "units::text")]
    pub grace: TimeSpan,
    /// Offer the system shared memory extension, which lets clients name memory objects of this machine. Default: `true` if
    /// HTTP and gRPC listen on loopback only, else `false`. Example: `true`.
    pub shared_memory: Option<bool>,
    /// Whether the server is ready only when all its models are, as with Triton's `--strict-readiness`. `false`: it is
    /// ready as soon as it responds, even if models are still loading or have failed.
    pub strict_readiness: bool,
    /// Minimum level of logged events: error, warn, info, debug, trace, or filters like `info,router=debug`.
    pub log_level: String,
    /// Format of log lines on standard error: `auto` (`human` on a terminal, else `json`), `human` or `json`.
    pub log_format: LogFormat,
    /// Header, over gRPC metadata, that names the tenant of a request. It is read only if the connection comes from one of
    /// `server.trusted_peers`. A request without it belongs to the tenant `default`, and so does one of a tenant without
    /// `[tenants.NAME]`. Default: none, all requests belong to `default`. Example: `"x-tenant"`.
    pub tenant_header: Option<String>,
    /// IP addresses and networks of gateways that may name the tenant of a request.
    pub trusted_peers: Vec<Network>,
    /// Whether a new text of the configuration file is taken up without SIGHUP, within 3 seconds. Kubernetes changes the files of a
    /// ConfigMap in running pods.
    pub watch_config: bool,
    /// Threads for the network. Default: half the number of cores, at least 1 and at most 4. Example: `2`.
    pub threads: Option<NonZeroUsize>,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// `human` on a terminal, else `json`.
    #[default]
    Auto,
    /// Text for people.
    Human,
    /// One JSON object per line.
    Json,
}

impl Default for Server {
    fn default() -> Self {
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Self {
            http: loopback(8000),
            grpc: loopback(8001),
            metrics: loopback(8002),
            admin: loopback(8003),
            admin_names: Vec::new(),
            model_control: ModelControl::Operate,
            lame_duck: None,
            grace: TimeSpan(Duration::from_secs(20)),
            shared_memory: None,
            strict_readiness: true,
            log_level: "info".to_owned(),
            log_format: LogFormat::Auto,
            tenant_header: None,
            trusted_peers: Network::loopback(),
            watch_config: false,
            threads: None,
        }
    }
}

/// `[repository]`: where models come from.
#[derive(Clone, Debug, Deserialize, Serialize, Documented, DocumentedFields)]
#[serde(deny_unknown_fields, default)]
pub struct Repository {
    /// Folder of models (`<model>/<version>/model.onnx`, or `<model>.onnx`), or the URL of one: `s3://bucket/prefix`, `gs://`,
    /// `az://`, or `https://` for WebDAV. Default: the embedded models. Example: `"/models"`.
    pub path: Option<PathBuf>,
    /// Folder for a local copy of a repository at a URL, which needs one. The server starts from it while the source cannot be
    /// reached. Default: none. Example: `"/var/cache/tessera"`.
    pub cache: Option<PathBuf>,
    /// Bytes of model files that `repository.cache` may hold.
    pub cache_bytes: Size,
    /// Options of the store of a repository at a URL. Credentials are not options: they come from the environment, as usual for the
    /// store. Example: `{ region = "eu-central-1" }`.
    pub options: BTreeMap<String, String>,
    /// `all`: load every model at start; `explicit`: only models that `/v2/repository/models/M/load` requests.
    pub load: LoadMode,
    /// Engine of models that do not name one: `auto` (ONNX Runtime if its library is found, else tract),
    /// `tract`, `ort` or `synthetic`.
    pub engine: String,
    /// Whether to refuse models whose `config.pbtxt` sets a field that cannot be honored. `false`: such a field is ignored
    /// with a warning, if answers are right without it.
    pub strict: bool,
    /// Whether `[models.NAME]` may name models that the repository does not have, for models that are added later.
    pub allow_unknown_models: bool,
    /// ONNX Runtime's shared library. Default: `ORT_DYLIB_PATH`, else that of an installed Python package.
    /// Example: `"/usr/lib/libonnxruntime.so"`.
    pub ort_library: Option<PathBuf>,
}

/// What is loaded at start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadMode {
    /// Every model.
    #[default]
    All,
    /// No model; clients load them.
    Explicit,
}

/// A repository at a URL.
#[derive(Clone, Debug)]
pub struct RemoteRepository {
    /// Where it is.
    pub location: Location,
    /// Folder for its local copy.
    pub cache: PathBuf,
}

impl Repository {
    /// Where models are, if that is a URL.
    ///
    /// # Errors
    /// The setting that is wrong, and what would be right.
    pub fn remote(&self) -> Result<Option<RemoteRepository>, (&'static str, String)> {
        let url = self.path.as_ref().and_then(|path| path.to_str()).filter(|path| Location::is_url(path));
        let Some(url) = url else {
            let needs_url = "has no effect without a URL in `repository.path`";
            if !self.options.is_empty() {
                return Err(("repository.options", needs_url.to_owned()));
            }
            if self.cache.is_some() {
                return Err(("repository.cache", needs_url.to_owned()));
            }
            return Ok(None);
        };
        if let Some(name) = self.options.keys().find(|name| is_secret(name)) {
            let told = format!("`{name}` is a credential: expected it in the environment of the server");
            return Err(("repository.options", told));
        }
        let location = Location::parse(url, &self.options).map_err(|error| match error {
            LocationError::Url { .. } => ("repository.path", error.to_string()),
            LocationError::Option { .. } => ("repository.options", error.to_string()),
        })?;
        let Some(cache) = self.cache.clone() else {
            return Err(("repository.cache", format!("expected a folder for a local copy of {location}")));
        };
        Ok(Some(RemoteRepository { location, cache }))
    }
}

impl Default for Repository {
    fn default() -> Self {
        Self {
            path: None,
            cache: None,
            cache_bytes: Size(64 << 30),
            options: BTreeMap::new(),
            load: LoadMode::All,
            engine: "auto".to_owned(),
            strict: true,
            allow_unknown_models: false,
            ort_library: None,
        }
    }
}

/// `[lanes]`: how the cores are divided.
#[derive(Clone, Debug, Default, Deserialize, Serialize, Documented, DocumentedFields)]
#[serde(deny_unknown_fields, default)]
pub struct Lanes {
    /// Number of lanes, which divide the cores evenly. Default: one lane per core. Example: `2`.
    pub count: Option<NonZeroUsize>,
    /// Core sets, one per lane; instead of `count`. Default: none. Example: `[[0, 1], [2, 3]]`.
    pub cores: Option<Vec<Vec<usize>>>,
    /// Lets every lane use all cores, so that there can be more lanes than cores (`count`, at most 1024). For models
    /// that wait rather than compute, such as synthetic ones.
    pub shared: bool,
}

/// `[devices]`: what the models run on.
#[derive(Clone, Debug, Default, Deserialize, Serialize, Documented, DocumentedFields)]
#[serde(deny_unknown_fields, default)]
pub struct Devices {
    /// Emulated devices instead of the cores of `[lanes]`. Batches take as long as `partition.profiles` say for that device
    /// type, and outputs are zeros. Example: `[{ kind = "v100", memory = "16GiB", count = 2 }]`.
    pub emulated: Vec<Emulated>,
    /// `auto`: models run on the machine's GPUs, or without any, on the cores of `[lanes]`. `off`: GPUs are not used.
    pub gpus: Gpus,
    /// How GPUs are shared: `mig`, `cuda-green`, `cuda-mps` or `cuda-stream`. Default: the first available.
    /// Example: `"cuda-green"`.
    pub gpu_backend: Option<String>,
    /// `none`: models run in the server's own process. `process`: each lane's models run in a separate process,
    /// which is restarted if it crashes or hangs; requests of other lanes are not affected. Models on a GPU always run
    /// in a separate process, one per GPU.
    pub isolation: Isolation,
}

/// Whether GPUs are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Gpus {
    /// GPUs are not used.
    #[default]
    Off,
    /// GPUs are used if the machine has any.
    Auto,
}

/// Which models run in the server's process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// All models.
    #[default]
    None,
    /// No model.
    Process,
}

/// One entry of `devices.emulated`.
#[derive(Clone, Debug, Deserialize, Serialize, DocumentedFields)]
#[serde(deny_unknown_fields)]
pub struct Emulated {
    /// Device type, as named in profiles. Default: none, it must be set. Example: `"v100"`.
    pub kind: String,
    /// Memory for models, per device. Default: none, it must be set. Example: `"16GiB"`.
    pub memory: Size,
    /// Number of devices. Default: `1`. Example: `2`.
    #[serde(default = "one")]
    pub count: NonZeroUsize,
    /// Cost of a device per hour, in any currency. Plans prefer devices that cost less. Default: `1.0`. Example: `0.35`.
    #[serde(default = "unit_cost")]
    pub cost: f64,
    /// Sizes of gpulets in units, ascending. Default: every number up to the units of the profiles. Example: `[1, 2, 4]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizes: Option<Vec<u32>>,
    /// Memory that each device takes once. Default: `"0"`. Example: `"500MiB"`.
    #[serde(default)]
    pub base_memory: Size,
    /// Memory that each gpulet takes in addition to its models. Default: `"0"`. Example: `"300MiB"`.
    #[serde(default)]
    pub gpulet_memory: Size,
    /// Name of the domain in which these devices fail together. Replicas are spread over domains. Default: one domain for each
    /// device. Example: `"rack-1"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault_domain: Option<String>,
    /// File; while it exists, the devices of this entry are lost: batches fail and no gpulet can be opened. For rehearsals.
    /// Default: none. Example: `"/tmp/lost"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_while: Option<PathBuf>,
    /// Interference between co-located batches, as `[interference]` of `tessera plan` describes it. If set, all gpulets run in
    /// the server's process. Default: no interference. Example: `{ model = "gpulet" }`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interference: Option<InterferenceSection>,
}

fn unit_cost() -> f64 {
    1.0
}

fn one() -> NonZeroUsize {
    NonZeroUsize::MIN
}

/// `[limits]`: limits of all resources that clients use.
#[derive(Clone, Debug, Deserialize, Serialize, Documented, DocumentedFields)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Bytes of one request body or gRPC message, also after decompression.
    pub body: Size,
    /// Bytes of all request bodies, and of all responses over 16 KiB that clients have not read yet.
    pub bodies: Size,
    /// Time for a body to arrive.
    #[serde(serialize_with = "units::text")]
    pub body_timeout: TimeSpan,
    /// Time for a client to read the next 256 KiB of a response, or the rest of it. After it, the server closes the
    /// connection, or over HTTP/2 and gRPC only the stream if other streams of the connection are healthy.
    #[serde(serialize_with = "units::text")]
    pub answer_timeout: TimeSpan,
    /// Open connections, for each of the four addresses, TLS handshakes included.
    pub connections: NonZeroUsize,
    /// Bytes of request line and headers.
    pub header: Size,
    /// Time for the headers of the next request to arrive; idle connections are closed after it.
    #[serde(serialize_with = "units::text")]
    pub header_timeout: TimeSpan,
    /// Concurrent requests on one HTTP/2 connection.
    pub streams: u32,
    /// Requests in flight on one gRPC stream (`ModelStreamInfer`).
    pub stream_requests: NonZeroUsize,
    /// Requests between the front end and the router.
    pub mailbox: NonZeroUsize,
    /// Queued requests of a model that does not set `queue_limit`.
    pub queue: NonZeroUsize,
    /// Bytes of all queued tensors.
    pub queue_bytes: Size,
    /// Bytes of all models together on CPU cores, by their profiles or the sizes of their files (docs/switching.md). Best-effort models
    /// are unloaded when another model needs their memory. Default: no limit. Example: `"8GiB"`.
    pub model_memory: Option<Size>,
    /// Inputs, and outputs, of one request.
    pub tensors: NonZeroUsize,
    /// Entries of one `parameters` object.
    pub parameters: NonZeroUsize,
    /// Bytes of a name or id.
    pub name: Size,
    /// Nesting depth of JSON.
    pub json_depth: NonZeroUsize,
}

const fn at_least_one(number: usize) -> NonZeroUsize {
    NonZeroUsize::MIN.saturating_add(number.saturating_sub(1))
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: Size(64 << 20),
            bodies: Size(1 << 30),
            body_timeout: TimeSpan(Duration::from_secs(30)),
            answer_timeout: TimeSpan(Duration::from_secs(30)),
            connections: at_least_one(16_384),
            header: Size(16 << 10),
            header_timeout: TimeSpan(Duration::from_secs(60)),
            streams: 1024,
            stream_requests: at_least_one(256),
            mailbox: at_least_one(8192),
            queue: at_least_one(1024),
            queue_bytes: Size(1 << 30),
            model_memory: None,
            tensors: at_least_one(256),
            parameters: at_least_one(64),
            name: Size(1 << 10),
            json_depth: at_least_one(64),
        }
    }
}

/// `[rate_limit]`: resources that running batches hold, for models whose `config.pbtxt` has a `rate_limiter`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, Documented, DocumentedFields)]
#[serde(deny_unknown_fields, default)]
pub struct RateLimits {
    /// `execution_count`: a batch starts only if the resources of its model are left, as with Triton's `--rate-limit`
    /// of that name. `off`: the field has no effect.
    pub mode: RateLimitMode,
    /// Total of each resource by name, as with Triton's `--rate-limit-resource`. Default: the most that a model needs.
    /// Example: `{ R1 = 4 }`.
    pub resources: BTreeMap<String, NonZeroU32>,
}

/// Whether batches wait for resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RateLimitMode {
    /// They do.
    #[default]
    ExecutionCount,
    /// They do not.
    Off,
}

/// `[cache]`: answers that are kept for models whose `config.pbtxt` enables `response_cache`.
#[derive(Clone, Debug, Deserialize, Serialize, Documented, DocumentedFields)]
#[serde(deny_unknown_fields, default)]
pub struct Cache {
    /// Bytes of all answers in the cache; the least recently used ones leave first. 0: nothing is cached.
    pub max_bytes: Size,
}

impl Default for Cache {
    fn default() -> Self {
        Self { max_bytes: Size(64 << 20) }
    }
}

/// `[request_log]`: the last requests, which `GET /v2/explain` explains, and the access log.
#[derive(Clone, Debug, Deserialize, Serialize, Documented, DocumentedFields)]
#[serde(deny_unknown_fields, default)]
pub struct RequestLogSettings {
    /// Requests that are kept of each kind: those answered in time, and all others. Each takes about 0.5 KiB. 0: none.
    pub kept: u32,
    /// File for the access log, with one JSON object per line and the fields of `GET /v2/explain`; `-` is standard output. The
    /// server creates the file again after log rotation has renamed it. Default: none, no access log is written. Example:
    /// `"/var/log/tessera/access.log"`.
    pub access_log: Option<PathBuf>,
    /// Which requests the access log has: `all`, or `unsuccessful` for those that were late, refused, cancelled or failed.
    pub access_log_requests: AccessLogRequests,
    /// Of the requests answered in time, the access log has one in this many.
    pub access_log_one_in: NonZeroU32,
}

/// Which requests the access log has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessLogRequests {
    /// All requests.
    #[default]
    All,
    /// Those that were not answered in time.
    Unsuccessful,
}

impl Default for RequestLogSettings {
    fn default() -> Self {
        Self {
            kept: 4_096,
            access_log: None,
            access_log_requests: AccessLogRequests::All,
            access_log_one_in: NonZeroU32::MIN,
        }
    }
}

/// `[trace]`: Triton's traces of requests. Trace settings change through `/v2/trace/setting` and gRPC, within this section.
#[derive(Clone, Debug, Deserialize, Serialize, Documented, DocumentedFields)]
#[serde(deny_unknown_fields, default)]
pub struct Trace {
    /// Folder for trace files. It should contain nothing else, because a trace replaces a file of the same name. Default: none,
    /// no traces are written. Example: `"/var/log/tessera/traces"`.
    pub dir: Option<PathBuf>,
    /// Name of the trace file in `trace.dir`, as `file` of Triton's `--trace-config`. Clients may name another file in this folder.
    pub file: String,
    /// Whether requests are traced from the start: `OFF`, or `TIMESTAMPS`, which needs `trace.dir`.
    pub level: TraceLevel,
    /// Every how many requests one is traced.
    pub rate: NonZeroU32,
    /// Number of requests to trace. Default: no limit. Example: `100`.
    pub count: Option<u32>,
    /// Number of traces in each of the files `FILE.0`, `FILE.1` and so on. 0: all are in `FILE`.
    pub log_frequency: u32,
    /// Bytes that the traces of one run of the server may take on disk, at least 4 KiB for each file. Further traces are lost and
    /// counted.
    pub max_bytes: Size,
}

/// What is traced of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum TraceLevel {
    /// No requests are traced.
    #[default]
    Off,
    /// When each stage of a request began and ended.
    Timestamps,
}

impl Default for Trace {
    fn default() -> Self {
        Self {
            dir: None,
            file: "trace.json".to_owned(),
            level: TraceLevel::Off,
            rate: NonZeroU32::MIN.saturating_add(999),
            count: None,
            log_frequency: 0,
            max_bytes: Size(1 << 30),
        }
    }
}

impl Trace {
    /// Whether this is the name of a trace file: a name without folders, so that it cannot lead out of `trace.dir`.
    ///
    /// # Errors
    /// What was expected instead.
    pub fn check_file(name: &str) -> Result<(), String> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if !name.is_empty()
            && name.len() <= FILE_NAME_MAX
            && !name.starts_with('.')
            && name.bytes().all(allowed)
        {
            return Ok(());
        }
        let shown: String = name.chars().take(64).collect();
        Err(format!(
            "expected the name of a file in `trace.dir`, of at most {FILE_NAME_MAX} letters, digits, `.`, `_` and `-`, got `{shown}`"
        ))
    }
}

/// Bytes of the name of a trace file.
const FILE_NAME_MAX: usize = 128;

/// `[metrics]`: what `/metrics` shows.
#[derive(Clone, Debug, Default, Deserialize, Serialize, Documented, DocumentedFields)]
#[serde(deny_unknown_fields, default)]
pub struct Metrics {
    /// Also record under Triton's names (`nv_inference_*`), for dashboards made for it.
    pub triton_names: bool,
}

/// Which slowdown by co-located batches plans expect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Interference {
    /// The slowdown learned from batch times.
    #[default]
    Learned,
    /// No slowdown.
    None,
}

/// `[partition]`: how gpulets follow the load.
#[derive(Clone, Debug, Deserialize, Serialize, Documented, DocumentedFields)]
#[serde(deny_unknown_fields, default)]
pub struct Partition {
    /// Repartitions the devices as the load changes: number and size of gpulets, and their models. Off: lanes stay as
    /// `[lanes]` says.
    pub live: bool,
    /// Files of `tessera profile`. The last part of a path may contain one `*`. Models without a profile are planned
    /// with batch times measured while they are loaded. Example: `["profiles/*.json"]`.
    pub profiles: Vec<String>,
    /// Placement policy, one of `tessera plan --policy`.
    pub policy: String,
    /// With `fast-gshare`: most time of a gpulet on units that others leave idle, as a part of its window. Less than its
    /// quota counts as its quota.
    pub quota_limit: f64,
    /// Scaler, which decides the rates to plan for: `attainment`, `gpulet`, `nanily`, `infaas`, `fast-gshare`, `cocktail`, `proportional`,
    /// `iris` or `static`.
    pub scaling: String,
    /// Policy that chooses which variants of families get gpulets, and on which devices: `tessera`, `infaas`, `mark`, `proportional`,
    /// `iris` or `proteus`. Default: none, variants are planned as separate models. Example: `"tessera"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variants: Option<String>,
    /// Which slowdown by co-located batches plans expect: `learned` from batch times while the server runs, or `none`.
    pub interference: Interference,
    /// A model without requests for this long loses its gpulets. The next request activates it and waits. Default: none,
    /// every model keeps a gpulet. Example: `"5m"`.
    #[serde(serialize_with = "units::text_if")]
    pub idle: Option<TimeSpan>,
    /// Interval at which the load is measured and a new plan considered.
    #[serde(serialize_with = "units::text")]
    pub period: TimeSpan,
    /// How long the old gpulets are kept after a change, for a rollback.
    #[serde(serialize_with = "units::text")]
    pub bake_time: TimeSpan,
    /// Longest time to load one model on one gpulet.
    #[serde(serialize_with = "units::text")]
    pub prepare_timeout: TimeSpan,
    /// Most sessions in the warm pool, which holds sessions of closed gpulets in memory that no plan uses. 0: no pool.
    pub warm_pool: usize,
    /// Starts frozen: gpulets do not change until `POST /v2/partition/thaw`.
    pub frozen: bool,
    /// Decisions that `GET /v2/partition` remembers.
    pub history: NonZeroUsize,
}

impl Default for Partition {
    fn default() -> Self {
        Self {
            live: false,
            profiles: Vec::new(),
            policy: "tessera".to_owned(),
            quota_limit: 1.0,
            scaling: "attainment".to_owned(),
            variants: None,
            interference: Interference::default(),
            idle: None,
            period: TimeSpan(Duration::from_secs(1)),
            bake_time: TimeSpan(Duration::from_secs(3)),
            prepare_timeout: TimeSpan(Duration::from_secs(120)),
            warm_pool: 16,
            frozen: false,
            history: at_least_one(512),
        }
    }
}
