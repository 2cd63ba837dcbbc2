//! Every metric name and label of Tessera, and nothing else.
//!
//! Rules: `tessera_` first, then the thing measured, then unit or qualifier. Durations are histograms in
//! seconds (`_seconds`), as times of day are, counters end in `_total`, gauges in neither. Labels are few and bounded: names of
//! loaded models and versions, of configured tenants, lanes and devices, and the closed sets of `reason`, `transport` and `outcome`. Never ids, never
//! anything a client can choose freely. `nv_*` names are Triton's, kept for its dashboards; they are recorded
//! only where `metrics.triton_names` is on. A golden file in the tests lists what `/metrics` shows.

/// How a metric is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricType {
    /// Only goes up.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A time of day, in seconds since 1970.
    Time,
    /// Distribution, over [`SECONDS`].
    Seconds,
    /// Distribution, over [`ROWS`].
    Rows,
}

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Name on `/metrics`.
    pub name: &'static str,
    /// How it is recorded.
    pub metric_type: MetricType,
    /// Names of its labels, each of [`LABELS`].
    pub labels: &'static [&'static str],
    /// Help text on `/metrics`.
    pub help: &'static str,
}

/// Declares a constant for each label, documented by its meaning, and a list of them all.
macro_rules! labels {
    ($($constant:ident: $name:literal, $meaning:literal;)+) => {
        $(
            #[doc = $meaning]
            pub const $constant: &str = $name;
        )+
        /// Every label with its meaning.
        pub const LABELS: &[(&str, &str)] = &[$(($name, $meaning)),+];
    };
}

labels! {
    MODEL: "model", "Model name.";
    VERSION: "version", "Model version.";
    REASON: "reason", "Word of the error table; for `tessera_gpu_throttled`, a reason of the GPU driver.";
    TRANSPORT: "transport", "`http` or `grpc`.";
    LANE: "lane", "Lane number, as `GET /v2/lanes` lists it.";
    ID: "id", "Id of a check.";
    RELEASE: "release", "Version of Tessera.";
    FILE: "file", "Setting of `[identity]` or `[tls]` that names a file: `keys`, `jwks`, `cert`, `key` or `client_ca`.";
    GPU_UUID: "gpu_uuid", "UUID of a GPU, as Triton shows it.";
    DEVICE: "device", "Device, as plans call it.";
    DEVICE_TYPE: "device_type", "Device type of profiles.";
    TENANT: "tenant", "Tenant as `[tenants.NAME]` names it; `default` for requests that name none, `other` for unknown ones.";
    OUTCOME: "outcome", "How requests ended: `answered`, `late` (answered after the deadline), `quota`, `refused` or `failed`; of rows of jobs: \
        `answered`, `mistake` (cannot be answered), or `failed` and `refused`, which are sent again.";
    STATE: "state", "How jobs ended: `done`, `cancelled` or `failed`.";
    NODE: "node", "Another server, as `fleet.nodes` names it.";
    FORWARD_OUTCOME: "result", "How a forwarded request ended: `answered`, `refused` (by the other node), `unreachable`, `expired` (its time was \
        over) or `limit` (`fleet.forwards`); how a marked batch went on: `complete` or `incomplete`.";
    SIGNAL: "signal", "What is sent over OTLP: `traces`, `metrics` or `logs`.";
    CAUSE: "cause", "Why spans, data points and log events were dropped: `queue_full`, `refused` (by the collector) or `send_failed`; why \
        a request is traced: `refused`, `failed`, `late`, `slow`, `parent` or `ratio`; why the mark of a batch is ignored: `malformed` \
        or `too_many` (batches wait).";
    DIRECTION: "direction", "`fall` or `rise`.";
    INTERFERENCE: "interference", "`learned` or `none`: the expected slowdown by co-located batches.";
}

/// Declares a constant for each metric, documented by its help text, and a list of them all.
macro_rules! metrics {
    ($(#[$doc:meta])* $all:ident {
        $($constant:ident: $metric_type:ident, $name:literal, [$($label:ident),*], $help:literal;)+
    }) => {
        $(
            #[doc = $help]
            pub const $constant: Metric = Metric {
                name: $name,
                metric_type: MetricType::$metric_type,
                labels: &[$($label),*],
                help: $help,
            };
        )+
        $(#[$doc])*
        pub const $all: &[Metric] = &[$($constant),+];
    };
}

metrics! {
    /// Tessera's own metrics.
    TESSERA {
        QUEUE: Seconds, "tessera_queue_seconds", [MODEL, VERSION], "Time of answered requests from admission to dispatch.";
        BATCH_WAIT: Seconds, "tessera_batch_wait_seconds", [MODEL, VERSION],
            "Time of answered requests from dispatch to the start of the engine on the lane.";
        COMPUTE: Seconds, "tessera_compute_seconds", [MODEL, VERSION], "Time of answered requests in the engine.";
        REQUEST: Seconds, "tessera_request_seconds", [MODEL, VERSION],
            "Time of answered requests from their first byte to their answer, decoding included.";
        BATCH_ROWS: Rows, "tessera_batch_rows", [MODEL, VERSION], "Rows of each executed batch.";
        REQUESTS: Counter, "tessera_requests_total", [MODEL, VERSION], "Requests answered with a result.";
        REFUSALS: Counter, "tessera_refusals_total", [MODEL, VERSION, REASON], "Requests of a model that ended without a result, by reason.";
        FRONT_REFUSALS: Counter, "tessera_front_refusals_total", [TRANSPORT, REASON],
            "Requests that were answered with an error, or whose client did not read the answer, by transport and reason. \
             Includes requests that name no model.";
        DEADLINE_HITS: Counter, "tessera_deadline_hits_total", [MODEL, VERSION], "Requests answered by their deadline.";
        DEADLINE_MISSES: Counter, "tessera_deadline_misses_total", [MODEL, VERSION], "Requests answered after their deadline.";
        CACHE_HITS: Counter, "tessera_cache_hits_total", [MODEL, VERSION], "Requests of a model that the response cache answered.";
        CACHE_MISSES: Counter, "tessera_cache_misses_total", [MODEL, VERSION],
            "Requests of a model that the response cache did not know.";
        CACHE_BYTES: Gauge, "tessera_cache_bytes", [], "Bytes of answers in the response cache.";
        CACHE_ENTRIES: Gauge, "tessera_cache_entries", [], "Answers in the response cache.";
        CACHE_EVICTIONS: Counter, "tessera_cache_evictions_total", [],
            "Answers that left the response cache because it was full.";
        BEST_EFFORT_SHARE: Gauge, "tessera_best_effort_share", [], "Share of the time in which best-effort work starts, with `best_effort.protect`.";
        FAMILY_QUALITY: Gauge, "tessera_family_quality", [MODEL], "Quality of the best variant that requests to the family get at the moment.";
        FAMILY_CHANGES: Counter, "tessera_family_level_changes_total", [MODEL, DIRECTION], "How often that quality fell or rose.";
        JOBS_OPEN: Gauge, "tessera_jobs_open", [], "Jobs that have not ended.";
        JOB_ROWS_LEFT: Gauge, "tessera_job_rows_left", [], "Rows of these jobs whose results are not durable.";
        JOB_ROWS: Counter, "tessera_job_rows_total", [OUTCOME], "Rows of jobs that left the server, by outcome.";
        JOBS_ENDED: Counter, "tessera_jobs_ended_total", [STATE], "Jobs that ended.";
        TRACES: Counter, "tessera_traces_total", [], "Traces of requests that were written.";
        TRACES_LOST: Counter, "tessera_traces_lost_total", [],
            "Traces of requests that were not written: the disk was full or too slow, or `trace.max_bytes` was reached.";
        CONFIG_RELOADS: Counter, "tessera_config_reloads_total", [], "Reloads of the configuration that are in force.";
        CONFIG_RELOAD_FAILURES: Counter, "tessera_config_reload_failures_total", [],
            "Reloads of the configuration that changed nothing, because of a mistake in it or a model that cannot be loaded.";
        CONFIG_CURRENT: Gauge, "tessera_config_last_reload_successful", [],
            "1 if the last reload of the configuration is in force, and before the first one. 0 if it was refused.";
        CONFIG_PENDING: Gauge, "tessera_config_pending_settings", [],
            "Settings that differed at the last reload and need a restart.";
        ROLLOUT_ACTIVE: Gauge, "tessera_rollout_active", [MODEL], "1 while a new version gets a share of the requests of a model, else 0.";
        ROLLOUT_PROMOTIONS: Counter, "tessera_rollout_promotions_total", [MODEL], "New versions that got all requests at the end of a roll-out.";
        ROLLOUT_ROLLBACKS: Counter, "tessera_rollout_rollbacks_total", [MODEL],
            "New versions that were taken out of service by a roll-out.";
        GPULETS: Gauge, "tessera_gpulets", [DEVICE], "Gpulets in force on a device, with `partition.live`.";
        PLANNED_RATE: Gauge, "tessera_planned_rows_per_second", [MODEL], "Rows a second that gpulets are planned for, with `partition.live`.";
        PLANNED_SHARE: Gauge, "tessera_planned_share", [],
            "Share of the planned rates that the last plan serves: below 1 if the devices are too small.";
        PLANS: Counter, "tessera_plans_total", [], "Plans of gpulets that came into force.";
        PLAN_FAILURES: Counter, "tessera_plan_failures_total", [], "Plans of gpulets that did not come into force.";
        REPOSITORY_LISTED: Time, "tessera_repository_listed_seconds", [],
            "When a repository at a URL listed the models that are served.";
        REPOSITORY_REFRESH_FAILURES: Counter, "tessera_repository_refresh_failures_total", [],
            "Attempts to copy models from a URL that failed. The last copy is served.";
        TELEMETRY_EXPORTED: Counter, "tessera_telemetry_exported_total", [SIGNAL],
            "Spans, data points and log events that the collector of `telemetry.endpoint` took.";
        TELEMETRY_DROPPED: Counter, "tessera_telemetry_dropped_total", [SIGNAL, CAUSE],
            "Spans, data points and log events that were not sent to the collector.";
        TRACED: Counter, "tessera_traced_requests_total", [CAUSE], "Requests whose spans were kept for the collector, by cause.";
        NOT_TRACED: Counter, "tessera_traces_limited_total", [CAUSE],
            "Requests that a cause would have traced, beyond `telemetry.limit`.";
        ACCESS_LOG_LOST: Counter, "tessera_access_log_lost_total", [],
            "Requests that are missing from the access log: the disk was full or too slow.";
        MODEL_READY: Gauge, "tessera_model_ready", [MODEL],
            "1 if a model that should be ready is, 0 if it is not; NaN once it was unloaded.";
        MODEL_LANES: Gauge, "tessera_model_lanes", [MODEL, VERSION], "Lanes that hold a session of the model.";
        OBJECTIVE: Gauge, "tessera_objective_seconds", [MODEL, VERSION], "Latency objective of the model, if it has one.";
        LOAD_FAILURES: Counter, "tessera_model_load_failures_total", [MODEL], "Loads and reloads of the model that failed.";
        BUILD_INFO: Gauge, "tessera_build_info", [RELEASE], "Always 1.";
        QUEUE_DEPTH: Gauge, "tessera_queue_depth", [MODEL, VERSION], "Requests queued now.";
        PREDICTION: Gauge, "tessera_batch_time_over_predicted", [MODEL, VERSION],
            "Total time of batches in the engine, divided by the time that the plan's profile predicts for them.";
        INTERFERENCE_ERROR: Gauge, "tessera_interference_error_ratio", [DEVICE_TYPE, INTERFERENCE],
            "Mean relative error of predicted batch times under contention on a device type, over the last 256 observations: \
             with the learned interference (learned) and without any (none).";
        PROFILE_FACTOR: Gauge, "tessera_profile_factor", [MODEL, DEVICE_TYPE],
            "Measured solo batch times divided by those of the profile, once they differ for long enough. Plans use it; 1 after the times returned.";
        LANE_BUSY: Gauge, "tessera_lane_busy", [LANE], "1 while the lane runs a batch, else 0.";
        // A counter has whole numbers only, and seconds would be too coarse.
        LANE_BUSY_TIME: Counter, "tessera_lane_busy_us_total", [LANE],
            "Microseconds that the lane's batches spent in the engine, failed ones included.";
        PREEMPTED: Counter, "tessera_preempted_batches_total", [LANE],
            "Batches of the lane that the batching policy ended early. Their requests wait again.";
        PREEMPTED_TIME: Counter, "tessera_preempted_us_total", [LANE],
            "Microseconds that the lane's batches spent in the engine before they were ended early.";
        LANE_UP: Gauge, "tessera_lane_up", [LANE], "1 while the lane takes batches, else 0.";
        DEVICE_UP: Gauge, "tessera_device_up", [DEVICE],
            "1 while gpulets follow the load and plans use the device, 0 while it is lost.";
        LANE_FAILURES: Counter, "tessera_lane_failures_total", [LANE],
            "Times that the lane failed: its worker, process or device stopped, or stopped responding.";
        INVARIANT_VIOLATIONS: Counter, "tessera_invariant_violations_total", [ID],
            "Times that a decision core reached a state that must be impossible, by the id of the check. Above 0 is a bug.";
        GPU_UTILISATION: Gauge, "tessera_gpu_utilisation", [DEVICE],
            "Share of time in which a kernel ran on the GPU, on any number of its SMs, as the driver measures it.";
        GPU_MEMORY_USED: Gauge, "tessera_gpu_memory_used_bytes", [DEVICE], "Bytes of the GPU's memory in use by all processes.";
        GPU_MEMORY_TOTAL: Gauge, "tessera_gpu_memory_total_bytes", [DEVICE], "Bytes of the GPU's memory.";
        GPU_CLOCK_SM: Gauge, "tessera_gpu_sm_clock_hertz", [DEVICE], "Clock of the GPU's SMs now.";
        GPU_CLOCK_MEMORY: Gauge, "tessera_gpu_memory_clock_hertz", [DEVICE], "Clock of the GPU's memory now.";
        GPU_SM_ACTIVE: Gauge, "tessera_gpu_sm_active", [DEVICE],
            "Share of the GPU's SMs that had work in the last second, in the mean; NaN before Hopper.";
        GPU_SM_OCCUPANCY: Gauge, "tessera_gpu_sm_occupancy", [DEVICE],
            "Warps at work over the most that fit on the GPU, in the last second; NaN before Hopper.";
        GPU_MEMORY_BANDWIDTH: Gauge, "tessera_gpu_memory_bandwidth_utilisation", [DEVICE],
            "Share of the bandwidth to the GPU's memory that was used in the last second; NaN before Hopper.";
        GPU_THROTTLED: Gauge, "tessera_gpu_throttled", [DEVICE, REASON],
            "1 while this reason lowers the GPU's clocks, else 0. Idleness is a reason.";
        TENANT_REQUESTS: Counter, "tessera_tenant_requests_total", [TENANT, OUTCOME],
            "Requests of a tenant that ended, by outcome. `quota`: refused because its quota was used up.";
        TENANT_DEVICE_TIME: Counter, "tessera_tenant_device_us_total", [TENANT],
            "Microseconds of lane time that a tenant's share of batches took. Requests of unknown tenants count as `default`.";
        TENANT_DEVICE_QUOTA: Gauge, "tessera_tenant_device_seconds_quota", [TENANT],
            "Lane time per second that a tenant may use, in seconds. Absent without a limit, `+Inf` since it was removed.";
        TENANT_REQUEST_QUOTA: Gauge, "tessera_tenant_requests_quota", [TENANT],
            "Requests per second that a tenant may send. Absent without a limit, `+Inf` since it was removed.";
        FORWARDED: Counter, "tessera_forwarded_total", [NODE, FORWARD_OUTCOME],
            "Requests for models of another node that were forwarded to it, by result. A request that went to two nodes counts twice.";
        NODE_CONNECTED: Gauge, "tessera_node_connected", [NODE],
            "1 while another node tells which models it has and how busy they are, else 0.";
        AGENT_RUNNING: Gauge, "tessera_fleet_agent_running", [],
            "1 while the agent of a fleet on Kubernetes runs, else 0. Absent without `fleet.agent`.";
        AGENT_RESTARTS: Counter, "tessera_fleet_agent_restarts_total", [],
            "Times that the agent of a fleet ended and was started again, with `fleet.agent`.";
        MARKED_BATCHES: Counter, "tessera_marked_batches_total", [FORWARD_OUTCOME],
            "Batches that a picker marked, with `fleet.batch_marks`. `complete`: all rows came, except those of clients that left. \
             `incomplete`: the batch went on without some of its rows.";
        BATCH_MARKS_IGNORED: Counter, "tessera_batch_marks_ignored_total", [CAUSE],
            "Marks of batches that had no effect, with `fleet.batch_marks`. Their requests did not wait for others.";
        IDENTITY_RELOAD_FAILURES: Counter, "tessera_identity_reload_failures_total", [FILE],
            "Times that a file of `[identity]` or `[tls]` changed and could not be loaded. The old content stays in force.";
        IDENTITY_LOADED: Time, "tessera_identity_reload_success_seconds", [FILE],
            "When the content of the file that is in force was loaded, in seconds since 1970.";
        CERTIFICATE_EXPIRY: Time, "tessera_certificate_expiry_seconds", [FILE],
            "When the first certificate of the file expires, in seconds since 1970.";
        IN_FLIGHT: Gauge, "tessera_requests_in_flight", [], "Requests that are being answered now.";
        BODY_BYTES: Gauge, "tessera_body_bytes", [],
            "Bytes held for request bodies, and for large answers that clients have not read yet.";
    }
}

metrics! {
    /// Metrics of the process, with the names that Prometheus' client libraries use.
    PROCESS {
        PROCESS_CPU: Counter, "process_cpu_seconds_total", [], "Processor time of the process, in seconds.";
        PROCESS_START: Time, "process_start_time_seconds", [], "When the process started.";
        PROCESS_MEMORY: Gauge, "process_resident_memory_bytes", [], "Memory of the process that is in RAM, in bytes.";
        PROCESS_VIRTUAL: Gauge, "process_virtual_memory_bytes", [], "Address space of the process, in bytes.";
        PROCESS_VIRTUAL_MAX: Gauge, "process_virtual_memory_max_bytes", [], "Limit of the address space, in bytes.";
        PROCESS_FILES: Gauge, "process_open_fds", [], "Open files and connections.";
        PROCESS_FILES_MAX: Gauge, "process_max_fds", [], "Limit of open files and connections.";
        PROCESS_THREADS: Gauge, "process_threads", [], "Threads of the process.";
    }
}

metrics! {
    /// Triton's metrics.
    TRITON {
        NV_SUCCESS: Counter, "nv_inference_request_success", [MODEL, VERSION],
            "Number of successful inference requests, all batch sizes";
        NV_FAILURE: Counter, "nv_inference_request_failure", [MODEL, VERSION, REASON],
            "Number of failed inference requests, all batch sizes";
        NV_COUNT: Counter, "nv_inference_count", [MODEL, VERSION],
            "Number of inferences performed (does not include cached requests)";
        NV_EXEC_COUNT: Counter, "nv_inference_exec_count", [MODEL, VERSION],
            "Number of model executions performed (does not include cached requests)";
        NV_REQUEST_US: Counter, "nv_inference_request_duration_us", [MODEL, VERSION],
            "Cumulative inference request duration in microseconds (includes cached requests)";
        NV_QUEUE_US: Counter, "nv_inference_queue_duration_us", [MODEL, VERSION],
            "Cumulative inference queuing duration in microseconds (includes cached requests)";
        NV_COMPUTE_INPUT_US: Counter, "nv_inference_compute_input_duration_us", [MODEL, VERSION],
            "Cumulative compute input duration in microseconds (does not include cached requests)";
        NV_COMPUTE_INFER_US: Counter, "nv_inference_compute_infer_duration_us", [MODEL, VERSION],
            "Cumulative compute inference duration in microseconds (does not include cached requests)";
        NV_COMPUTE_OUTPUT_US: Counter, "nv_inference_compute_output_duration_us", [MODEL, VERSION],
            "Cumulative inference compute output duration in microseconds (does not include cached requests)";
        NV_PENDING: Gauge, "nv_inference_pending_request_count", [MODEL, VERSION],
            "Instantaneous number of pending requests awaiting execution per-model.";
        NV_CACHE_HITS: Counter, "nv_cache_num_hits_per_model", [MODEL, VERSION], "Number of cache hits per model";
        NV_CACHE_HIT_US: Counter, "nv_cache_hit_duration_per_model", [MODEL, VERSION],
            "Total cache hit duration per model, in microseconds";
        NV_CACHE_MISSES: Counter, "nv_cache_num_misses_per_model", [MODEL, VERSION], "Number of cache misses per model";
        NV_CACHE_MISS_US: Counter, "nv_cache_miss_duration_per_model", [MODEL, VERSION],
            "Total cache miss (insert+lookup) duration per model, in microseconds";
        NV_GPU_UTILIZATION: Gauge, "nv_gpu_utilization", [GPU_UUID], "GPU utilization rate [0.0 - 1.0)";
        NV_GPU_MEMORY_TOTAL: Gauge, "nv_gpu_memory_total_bytes", [GPU_UUID], "GPU total memory, in bytes";
        NV_GPU_MEMORY_USED: Gauge, "nv_gpu_memory_used_bytes", [GPU_UUID], "GPU used memory, in bytes";
        NV_GPU_POWER: Gauge, "nv_gpu_power_usage", [GPU_UUID], "GPU power usage in watts";
        NV_CPU_UTILIZATION: Gauge, "nv_cpu_utilization", [], "CPU utilization rate [0.0 - 1.0]";
        NV_CPU_MEMORY_TOTAL: Gauge, "nv_cpu_memory_total_bytes", [], "CPU total memory (RAM), in bytes";
        NV_CPU_MEMORY_USED: Gauge, "nv_cpu_memory_used_bytes", [], "CPU used memory (RAM), in bytes";
    }
}

/// Bucket bounds of [`MetricType::Seconds`]: 50 us to 10 s, three a decade.
pub const SECONDS: [f64; 17] = [
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0,
];

/// Bucket bounds of [`MetricType::Rows`].
pub const ROWS: [f64; 11] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];
