//! Log settings in Triton's format. Clients can read and change them.

use node::logs;
use node::reason::{Reason, Refusal};
use serde::Serialize;

/// Answer to a registration of CUDA shared memory.
pub const CUDA_REFUSED: &str =
    "CUDA shared memory is not offered: send tensors inline or use system shared memory";

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
        let now = logs::settings();
        Self {
            log_file: "",
            log_info: now.info,
            log_warning: now.warning,
            log_error: now.error,
            log_verbose_level: now.verbose,
            log_format: "default",
        }
    }
}

/// A value of a log setting as a client sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogValue {
    /// A switch.
    Bool(bool),
    /// A level.
    Number(u32),
    /// A file or a format.
    Text(String),
    /// A value of another type.
    Other,
}

/// A change of one setting.
type Change = Box<dyn Fn(&mut logs::LogSettings)>;

/// Changes log settings, all of them or none.
///
/// # Errors
/// Names the setting that is unknown, has a value of a wrong type, or cannot be changed while the server runs.
pub fn change_logging(wanted: &[(String, LogValue)]) -> Result<LogSettings, Refusal> {
    let mut changes: Vec<Change> = Vec::new();
    for (name, value) in wanted {
        let wrong =
            |expected: &str| Err(Refusal::new(Reason::Malformed, format!("{name}: expected {expected}")));
        let fixed = |option: &str| {
            let message = format!("{name}: cannot be changed while the server runs: {option}");
            Err(Refusal::new(Reason::Unsupported, message))
        };
        match (name.as_str(), value) {
            ("log_info", &LogValue::Bool(on)) => changes.push(Box::new(move |settings| settings.info = on)),
            ("log_warning", &LogValue::Bool(on)) => {
                changes.push(Box::new(move |settings| settings.warning = on));
            }
            ("log_error", &LogValue::Bool(on)) => changes.push(Box::new(move |settings| settings.error = on)),
            ("log_info" | "log_warning" | "log_error", _) => return wrong("true or false"),
            ("log_verbose_level", &LogValue::Number(level)) => {
                changes.push(Box::new(move |settings| settings.verbose = level));
            }
            ("log_verbose_level", _) => return wrong("a whole number of 0 or more"),
            ("log_file", LogValue::Text(file)) if file.is_empty() => {}
            ("log_format", LogValue::Text(format)) if format == "default" => {}
            ("log_file", _) => return fixed("logs go to standard error"),
            ("log_format", _) => return fixed("start it with `--log-format`"),
            _ => {
                let shown: String = name.chars().take(64).collect();
                let message = format!(
                    "`{shown}`: unknown log setting: expected log_info, log_warning, log_error or log_verbose_level"
                );
                return Err(Refusal::new(Reason::Malformed, message));
            }
        }
    }
    if changes.is_empty() {
        return Ok(LogSettings::now());
    }
    let changed = logs::change(|settings| changes.iter().for_each(|change| change(settings)));
    changed.map_err(|error| Refusal::new(Reason::Internal, format!("log settings: {error}")))?;
    Ok(LogSettings::now())
}
