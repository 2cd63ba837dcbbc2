//! Every metric name and label of Tessera, and nothing else.
//!
//! Rules: `tessera_` first, then the thing measured, then unit or qualifier. Durations are histograms in
//! seconds (`_seconds`), counters end in `_total`, gauges in neither. Labels are few and bounded: names of
//! loaded models and versions, lanes and devices, and the closed sets of `reason`, `transport` and `outcome`. Never ids, never
//! anything a client can choose freely. `nv_*` names are Triton's, kept for its dashboards; they are recorded
//! only where `metrics.triton_names` is on. A golden file in the tests lists what `/metrics` shows.

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only goes up.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Distribution, over [`SECONDS`].
    Seconds,
    /// Distribution, over [`ROWS`].
    Rows,
}

/// One metric: name, kind, help text.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Name on `/metrics`.
    pub name: &'static str,
    /// What it counts.
    pub kind: Kind,
    /// Help text on `/metrics`.
    pub help: &'static str,
}

const fn metric(name: &'static str, kind: Kind, help: &'static str) -> Metric {
    Metric { name, kind, help }
}

/// Label: model name.
pub const MODEL: &str = "model";
/// Label: model version.
pub const VERSION: &str = "version";
/// Label: a word of the error table.
pub const REASON: &str = "reason";
/// Label: `http` or `grpc`.
pub const TRANSPORT: &str = "transport";
/// Label: lane index.
pub const LANE: &str = "lane";
/// Label: the id of an invariant.
pub const ID: &str = "id";
/// Label: a device as plans call it.
pub const DEVICE: &str = "device";
/// Label: device type of profiles.
pub const DEVICE_TYPE: &str = "device_type";
/// Label: `learned` or `none`, the interference model.
pub const INTERFERENCE: &str = "interference";

/// From admission to dispatch.
pub const QUEUE: Metric =
    metric("tessera_queue_seconds", Kind::Seconds, "Time of answered requests from admission to dispatch.");
/// From dispatch to the engine's start.
pub const BATCH_WAIT: Metric = metric(
    "tessera_batch_wait_seconds",
    Kind::Seconds,
    "Time of answered requests from dispatch to the start of the engine on the lane.",
);
/// In the engine.
pub const COMPUTE: Metric =
    metric("tessera_compute_seconds", Kind::Seconds, "Time of answered requests in the engine.");
/// End to end.
pub const REQUEST: Metric = metric(
    "tessera_request_seconds",
    Kind::Seconds,
    "Time of answered requests from their first byte to their answer, decoding included.",
);
/// Batch sizes.
pub const BATCH_ROWS: Metric = metric("tessera_batch_rows", Kind::Rows, "Rows of each executed batch.");
/// Answered requests.
pub const REQUESTS: Metric =
    metric("tessera_requests_total", Kind::Counter, "Requests answered with a result.");
/// Requests without a result, by model.
pub const REFUSALS: Metric = metric(
    "tessera_refusals_total",
    Kind::Counter,
    "Requests of a model that ended without a result, by reason.",
);
/// Requests without a result, by transport: those that never reached a model included.
pub const FRONT_REFUSALS: Metric = metric(
    "tessera_front_refusals_total",
    Kind::Counter,
    "Requests that were answered with an error, or whose client did not read the answer, by transport and reason. \
     Includes requests that name no model.",
);
/// Answers inside their deadline.
pub const DEADLINE_HITS: Metric =
    metric("tessera_deadline_hits_total", Kind::Counter, "Requests answered by their deadline.");
/// Answers after their deadline.
pub const DEADLINE_MISSES: Metric =
    metric("tessera_deadline_misses_total", Kind::Counter, "Requests answered after their deadline.");
/// Queued requests.
pub const QUEUE_DEPTH: Metric = metric("tessera_queue_depth", Kind::Gauge, "Requests queued now.");
/// Batch times against the plan's.
pub const PREDICTION: Metric = metric(
    "tessera_batch_time_over_predicted",
    Kind::Gauge,
    "Total time of batches in the engine, divided by the time that the plan's profile predicts for them.",
);
/// Error of predicted batch times under contention.
pub const INTERFERENCE_ERROR: Metric = metric(
    "tessera_interference_error_ratio",
    Kind::Gauge,
    "Mean relative error of predicted batch times under contention on a device type, over the last 256 observations: \
     with the learned interference (learned) and without any (none).",
);
/// Lane occupied.
pub const LANE_BUSY: Metric =
    metric("tessera_lane_busy", Kind::Gauge, "1 while the lane runs a batch, else 0.");
/// Time of a lane in engines. A counter has whole numbers only, which seconds are too coarse for.
pub const LANE_BUSY_TIME: Metric = metric(
    "tessera_lane_busy_us_total",
    Kind::Counter,
    "Microseconds that the lane's batches spent in the engine, failed ones included.",
);
/// Lane in service.
pub const LANE_UP: Metric = metric("tessera_lane_up", Kind::Gauge, "1 while the lane takes batches, else 0.");
/// Lane failures.
pub const LANE_FAILURES: Metric = metric(
    "tessera_lane_failures_total",
    Kind::Counter,
    "Times that the lane failed: its worker, process or device stopped, or stopped responding.",
);
/// Impossible states.
pub const INVARIANT_VIOLATIONS: Metric = metric(
    "tessera_invariant_violations_total",
    Kind::Counter,
    "Times that a decision core reached a state that must be impossible, by the id of the check. Above 0 is a bug.",
);
/// GPU busy.
pub const GPU_UTILISATION: Metric = metric(
    "tessera_gpu_utilisation",
    Kind::Gauge,
    "Share of time in which a kernel ran on the GPU, on any number of its SMs, as the driver measures it.",
);
/// GPU memory in use.
pub const GPU_MEMORY_USED: Metric = metric(
    "tessera_gpu_memory_used_bytes",
    Kind::Gauge,
    "Bytes of the GPU's memory in use by all processes.",
);
/// GPU memory.
pub const GPU_MEMORY_TOTAL: Metric =
    metric("tessera_gpu_memory_total_bytes", Kind::Gauge, "Bytes of the GPU's memory.");
/// Clock of the SMs.
pub const GPU_CLOCK_SM: Metric =
    metric("tessera_gpu_sm_clock_hertz", Kind::Gauge, "Clock of the GPU's SMs now.");
/// Clock of the memory.
pub const GPU_CLOCK_MEMORY: Metric =
    metric("tessera_gpu_memory_clock_hertz", Kind::Gauge, "Clock of the GPU's memory now.");
/// SMs at work.
pub const GPU_SM_ACTIVE: Metric = metric(
    "tessera_gpu_sm_active",
    Kind::Gauge,
    "Share of the GPU's SMs that had work in the last second, in the mean; NaN before Hopper.",
);
/// Fullness of SMs.
pub const GPU_SM_OCCUPANCY: Metric = metric(
    "tessera_gpu_sm_occupancy",
    Kind::Gauge,
    "Warps at work over the most that fit on the GPU, in the last second; NaN before Hopper.",
);
/// Bandwidth to memory.
pub const GPU_MEMORY_BANDWIDTH: Metric = metric(
    "tessera_gpu_memory_bandwidth_utilisation",
    Kind::Gauge,
    "Share of the bandwidth to the GPU's memory that was used in the last second; NaN before Hopper.",
);
/// Lowered clocks.
pub const GPU_THROTTLED: Metric = metric(
    "tessera_gpu_throttled",
    Kind::Gauge,
    "1 while this reason lowers the GPU's clocks, else 0. Idleness is a reason.",
);
/// Requests inside the front end.
pub const IN_FLIGHT: Metric =
    metric("tessera_requests_in_flight", Kind::Gauge, "Requests that are being answered now.");
/// Body bytes held.
pub const BODY_BYTES: Metric = metric(
    "tessera_body_bytes",
    Kind::Gauge,
    "Bytes held for request bodies, and for large answers that clients have not read yet.",
);

/// Triton: answered requests.
pub const NV_SUCCESS: Metric = metric(
    "nv_inference_request_success",
    Kind::Counter,
    "Number of successful inference requests, all batch sizes",
);
/// Triton: failed requests.
pub const NV_FAILURE: Metric = metric(
    "nv_inference_request_failure",
    Kind::Counter,
    "Number of failed inference requests, all batch sizes",
);
/// Triton: rows.
pub const NV_COUNT: Metric = metric(
    "nv_inference_count",
    Kind::Counter,
    "Number of inferences performed (does not include cached requests)",
);
/// Triton: batches.
pub const NV_EXEC_COUNT: Metric = metric(
    "nv_inference_exec_count",
    Kind::Counter,
    "Number of model executions performed (does not include cached requests)",
);
/// Triton: end to end.
pub const NV_REQUEST_US: Metric = metric(
    "nv_inference_request_duration_us",
    Kind::Counter,
    "Cumulative inference request duration in microseconds (includes cached requests)",
);
/// Triton: queued.
pub const NV_QUEUE_US: Metric = metric(
    "nv_inference_queue_duration_us",
    Kind::Counter,
    "Cumulative inference queuing duration in microseconds (includes cached requests)",
);
/// Triton: gathering of inputs.
pub const NV_COMPUTE_INPUT_US: Metric = metric(
    "nv_inference_compute_input_duration_us",
    Kind::Counter,
    "Cumulative compute input duration in microseconds (does not include cached requests)",
);
/// Triton: engine.
pub const NV_COMPUTE_INFER_US: Metric = metric(
    "nv_inference_compute_infer_duration_us",
    Kind::Counter,
    "Cumulative compute inference duration in microseconds (does not include cached requests)",
);
/// Triton: scattering of outputs.
pub const NV_COMPUTE_OUTPUT_US: Metric = metric(
    "nv_inference_compute_output_duration_us",
    Kind::Counter,
    "Cumulative inference compute output duration in microseconds (does not include cached requests)",
);
/// Triton: queued requests.
pub const NV_PENDING: Metric = metric(
    "nv_inference_pending_request_count",
    Kind::Gauge,
    "Instantaneous number of pending requests awaiting execution per-model.",
);

/// Tessera's own.
pub const TESSERA: [Metric; 29] = [
    QUEUE,
    BATCH_WAIT,
    COMPUTE,
    REQUEST,
    BATCH_ROWS,
    REQUESTS,
    REFUSALS,
    FRONT_REFUSALS,
    DEADLINE_HITS,
    DEADLINE_MISSES,
    QUEUE_DEPTH,
    PREDICTION,
    INTERFERENCE_ERROR,
    LANE_BUSY,
    LANE_BUSY_TIME,
    LANE_UP,
    LANE_FAILURES,
    INVARIANT_VIOLATIONS,
    GPU_UTILISATION,
    GPU_MEMORY_USED,
    GPU_MEMORY_TOTAL,
    GPU_CLOCK_SM,
    GPU_CLOCK_MEMORY,
    GPU_SM_ACTIVE,
    GPU_SM_OCCUPANCY,
    GPU_MEMORY_BANDWIDTH,
    GPU_THROTTLED,
    IN_FLIGHT,
    BODY_BYTES,
];

/// Triton's.
pub const TRITON: [Metric; 10] = [
    NV_SUCCESS,
    NV_FAILURE,
    NV_COUNT,
    NV_EXEC_COUNT,
    NV_REQUEST_US,
    NV_QUEUE_US,
    NV_COMPUTE_INPUT_US,
    NV_COMPUTE_INFER_US,
    NV_COMPUTE_OUTPUT_US,
    NV_PENDING,
];

/// Bucket bounds of [`Kind::Seconds`]: 50 us to 10 s, three a decade.
pub const SECONDS: [f64; 17] = [
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0,
];

/// Bucket bounds of [`Kind::Rows`].
pub const ROWS: [f64; 11] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];
