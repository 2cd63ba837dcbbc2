//! Structured logs on standard error.

use std::io;
use std::sync::OnceLock;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, reload};

use crate::config::{LogFormat, Server};

/// What is logged, once logging is installed.
static FILTER: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Starts logging, once per process.
pub fn install(server: &Server, stderr_is_terminal: bool) -> anyhow::Result<()> {
    let filter: Targets = directives(&server.log_level).parse()?;
    let human = match server.log_format {
        LogFormat::Auto => stderr_is_terminal,
        LogFormat::Human => true,
        LogFormat::Json => false,
    };
    let (filter, handle) = reload::Layer::new(filter);
    // Logging is installed once.
    let _ = FILTER.set(handle);
    let registry = tracing_subscriber::registry().with(filter);
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

/// Changes what is logged from now on.
///
/// # Errors
/// If logging is not installed, or `level` is not a level or list of filters.
pub fn set_level(level: &str) -> anyhow::Result<()> {
    let filter: Targets = directives(level).parse()?;
    let Some(handle) = FILTER.get() else { anyhow::bail!("logging is not installed") };
    Ok(handle.reload(filter)?)
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
    fn a_bare_level_is_for_this_program_and_filters_are_taken_as_they_are() {
        assert!(directives("debug").starts_with("info,server=debug,"));
        assert_eq!(directives("warn"), "warn");
        assert_eq!(directives("h2=debug"), "h2=debug");
        assert!(directives("trace").parse::<Targets>().is_ok());
    }
}
