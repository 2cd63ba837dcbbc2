//! `tessera health`: whether a running server is ready, for places without an HTTP client such as the container image.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use http::Method;
use node::output;

use crate::rest::{self, ServerArgs};

/// Examples of the help.
pub const HEALTH_EXAMPLES: &str = "\
Example:
  tessera health --server 127.0.0.1:9000

Exit code 0: the server is ready. 1: it is not ready, with the reason, or did not respond. 2: wrong usage.";

/// Shorter than the time that container runtimes give a health check by default, which is 30 s.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Options of `health`.
#[derive(Args, Clone, Debug)]
pub struct HealthArgs {
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Asks the server. What a server that is not ready says is the error.
pub fn run(arguments: &HealthArgs) -> anyhow::Result<ExitCode> {
    let server = arguments.server.server()?;
    rest::wait_for(TIMEOUT, server.call(Method::GET, "/v2/health/ready"))?;
    output::line("ready");
    Ok(ExitCode::SUCCESS)
}
