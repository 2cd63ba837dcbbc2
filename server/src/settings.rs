//! Trace and log settings in Triton's format. Clients can read them (`get_trace_settings`, `get_log_settings`) but not
//! change them; the command line sets them.

use serde::Serialize;
use tracing::level_filters::LevelFilter;

/// Answer to a change of trace settings.
pub const TRACE_REFUSED: &str = "trace settings cannot be changed: request timings are in the response headers \
                                 `x-tessera-*` and on the metrics port";
/// Answer to a change of log settings.
pub const LOG_REFUSED: &str =
    "log settings cannot be changed at run time: start the server with `--log-level` and `--log-format`";
/// Answer to a registration of CUDA shared memory.
pub const CUDA_REFUSED: &str =
    "CUDA shared memory is not offered: send tensors inline or use system shared memory";

/// Trace settings: off.
pub const TRACE: [(&str, &str); 6] = [
    ("trace_level", "OFF"),
    ("trace_rate", "1000"),
    ("trace_count", "-1"),
    ("log_frequency", "0"),
    ("trace_file", ""),
    ("trace_mode", "triton"),
];

/// Log settings.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LogSettings {
    /// Always empty: logs go to standard error.
    pub log_file: &'static str,
    /// Level `info` is on.
    pub log_info: bool,
    /// Level `warn` is on.
    pub log_warning: bool,
    /// Level `error` is on.
    pub log_error: bool,
    /// 1 where level `debug` is on.
    pub log_verbose_level: u32,
    /// Triton's word for its own format.
    pub log_format: &'static str,
}

impl LogSettings {
    /// The current settings.
    pub fn now() -> Self {
        let enabled = |level| LevelFilter::current() >= level;
        Self {
            log_file: "",
            log_info: enabled(LevelFilter::INFO),
            log_warning: enabled(LevelFilter::WARN),
            log_error: enabled(LevelFilter::ERROR),
            log_verbose_level: u32::from(enabled(LevelFilter::DEBUG)),
            log_format: "default",
        }
    }
}
