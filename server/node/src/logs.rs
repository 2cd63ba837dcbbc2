//! Structured logs on standard error. What is logged can be changed while the server runs.

use std::io;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use telemetry::LogLayer;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, reload};

use crate::config::{LogFormat, Server};

/// Starts logging, once per process. `exported` takes the same events to a collector.
pub fn install(server: &Server, stderr_is_terminal: bool, exported: Option<LogLayer>) -> anyhow::Result<()> {
    let filter: Targets = directives(&server.log_level).parse()?;
    let human = match server.log_format {
        LogFormat::Auto => stderr_is_terminal,
        LogFormat::Human => true,
        LogFormat::Json => false,
    };
    let settings = LogSettings::of(&server.log_level);
    let (filter, handle) = reload::Layer::new(Switched { filter, settings });
    let logged = Logged { level: server.log_level.clone(), settings };
    // A process installs logging once, so the cell is empty.
    let _ = RUNNING.set(Running { handle, logged: Mutex::new(logged) });
    let registry = tracing_subscriber::registry().with(filter).with(exported);
    if human {
        let layer = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(stderr_is_terminal);
        registry.with(layer.with_target(false)).try_init()?;
    } else {
        registry
            .with(tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(io::stderr))
            .try_init()?;
    }
    Ok(())
}

/// Which events are logged, in the terms of Triton's log settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// Events of level `info`.
    pub info: bool,
    /// Events of level `warn`.
    pub warning: bool,
    /// Events of level `error`.
    pub error: bool,
    /// 0: neither `debug` nor `trace`; 1: `debug`; 2 and more: both.
    pub verbose: u32,
}

impl LogSettings {
    /// What a level or filter of the configuration logs.
    fn of(level: &str) -> Self {
        let shows = |level: LevelFilter, text: &str| {
            directives(text).parse::<Targets>().is_ok_and(|filter| filter_level(&filter) >= level)
        };
        let verbose =
            u32::from(shows(LevelFilter::DEBUG, level)) + u32::from(shows(LevelFilter::TRACE, level));
        Self {
            info: shows(LevelFilter::INFO, level),
            warning: shows(LevelFilter::WARN, level),
            error: shows(LevelFilter::ERROR, level),
            verbose,
        }
    }
}

/// The most verbose level that a filter logs for this program.
fn filter_level(filter: &Targets) -> LevelFilter {
    let levels = [Level::TRACE, Level::DEBUG, Level::INFO, Level::WARN, Level::ERROR];
    let shown = levels.into_iter().find(|level| filter.would_enable("server", level));
    shown.map_or(LevelFilter::OFF, LevelFilter::from_level)
}

/// A filter of targets and levels, of which levels can be switched off one by one.
struct Switched {
    filter: Targets,
    settings: LogSettings,
}

impl Switched {
    fn logs(&self, event: &Metadata<'_>) -> bool {
        let is_on = match *event.level() {
            Level::ERROR => self.settings.error,
            Level::WARN => self.settings.warning,
            Level::INFO => self.settings.info,
            Level::DEBUG | Level::TRACE => true,
        };
        is_on && self.filter.would_enable(event.target(), event.level())
    }
}

impl<S: Subscriber> Layer<S> for Switched {
    fn register_callsite(&self, event: &'static Metadata<'static>) -> Interest {
        if self.logs(event) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, event: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.logs(event)
    }
}

/// The logging of this process.
struct Running {
    handle: reload::Handle<Switched, Registry>,
    logged: Mutex<Logged>,
}

struct Logged {
    /// Level or filters of the configuration.
    level: String,
    settings: LogSettings,
}

impl Running {
    fn logged(&self) -> MutexGuard<'_, Logged> {
        self.logged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

static RUNNING: OnceLock<Running> = OnceLock::new();

/// What is logged now. A process without logging logs nothing.
pub fn settings() -> LogSettings {
    let now = RUNNING.get().map(|running| running.logged().settings);
    now.unwrap_or(LogSettings { info: false, warning: false, error: false, verbose: 0 })
}

/// Changes what is logged, at once.
///
/// # Errors
/// If the process logs nothing.
pub fn change(change: impl FnOnce(&mut LogSettings)) -> anyhow::Result<LogSettings> {
    let running = RUNNING.get().ok_or_else(|| anyhow::anyhow!("this process does not log"))?;
    let mut logged = running.logged();
    let mut wanted = logged.settings;
    change(&mut wanted);
    let filter = directives(&level_for(&logged.level, wanted)).parse()?;
    running.handle.reload(Switched { filter, settings: wanted })?;
    logged.settings = wanted;
    Ok(wanted)
}

/// Takes up a level or filters of the configuration, in place of what clients set. Without a change of the configuration, what
/// they set stays.
///
/// # Errors
/// If the process logs nothing, or `level` is not a level or list of filters.
pub fn set_level(level: &str) -> anyhow::Result<()> {
    let running = RUNNING.get().ok_or_else(|| anyhow::anyhow!("this process does not log"))?;
    let mut logged = running.logged();
    if logged.level == level {
        return Ok(());
    }
    let (filter, settings) = (directives(level).parse()?, LogSettings::of(level));
    running.handle.reload(Switched { filter, settings })?;
    *logged = Logged { level: level.to_owned(), settings };
    Ok(())
}

/// The level or filters that log what is wanted: those of the configuration, unless they log another verbosity or too little.
fn level_for(configured: &str, wanted: LogSettings) -> String {
    let own = LogSettings::of(configured);
    let has_all = (own.info || !wanted.info) && (own.warning || !wanted.warning);
    match wanted.verbose {
        verbose if verbose == own.verbose && has_all => configured.to_owned(),
        0 => "info".to_owned(),
        1 => "debug".to_owned(),
        _ => "trace".to_owned(),
    }
}

/// A bare level applies to this program only. At `debug`, HTTP libraries would print every frame.
fn directives(level: &str) -> String {
    match level {
        "debug" | "trace" => {
            let own = ["server", "node", "cli", "router", "router_core", "gpulet", "models", "oip"];
            let own: Vec<String> = own.iter().map(|target| format!("{target}={level}")).collect();
            format!("info,{}", own.join(","))
        }
        _ => level.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_follow_the_level_of_the_configuration() {
        let of = |level| {
            let LogSettings { info, warning, error, verbose } = LogSettings::of(level);
            (info, warning, error, verbose)
        };
        assert_eq!(of("info"), (true, true, true, 0));
        assert_eq!(of("error"), (false, false, true, 0));
        assert_eq!(of("debug"), (true, true, true, 1));
        assert_eq!(of("trace"), (true, true, true, 2));
        let info = LogSettings::of("info");
        assert_eq!(level_for("info", LogSettings { info: false, ..info }), "info");
        assert_eq!(level_for("warn", info), "info");
        assert_eq!(
            level_for("info,router=debug", LogSettings { warning: false, ..info }),
            "info,router=debug"
        );
        assert_eq!(level_for("info", LogSettings { verbose: 1, ..info }), "debug");
        assert_eq!(level_for("debug", LogSettings { verbose: 0, ..info }), "info");
        assert_eq!(level_for("info", LogSettings { verbose: 9, ..info }), "trace");
    }

    #[test]
    fn a_level_is_switched_off_alone() {
        let subscriber =
            |settings| Registry::default().with(Switched { filter: "info".parse().unwrap(), settings });
        let shown = |settings| {
            tracing::subscriber::with_default(subscriber(settings), || {
                [
                    tracing::enabled!(target: "server", Level::ERROR),
                    tracing::enabled!(target: "server", Level::WARN),
                    tracing::enabled!(target: "server", Level::INFO),
                    tracing::enabled!(target: "server", Level::DEBUG),
                ]
            })
        };
        let all = LogSettings::of("info");
        assert_eq!(shown(all), [true, true, true, false]);
        assert_eq!(shown(LogSettings { warning: false, ..all }), [true, false, true, false]);
    }

    #[test]
    fn a_bare_level_is_for_this_program_and_filters_are_taken_as_they_are() {
        assert!(directives("debug").starts_with("info,server=debug,"));
        assert_eq!(directives("warn"), "warn");
        assert_eq!(directives("h2=debug"), "h2=debug");
        assert!(directives("trace").parse::<Targets>().is_ok());
    }
}
