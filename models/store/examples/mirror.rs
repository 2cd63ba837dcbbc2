//! Mirrors a repository once and prints what it did as JSON.
//!
//!     cargo run -p model-store --example mirror -- URL CACHE_FOLDER [OPTION=VALUE...]
//!
//! `--bytes-max=N` sets the limit of the cache, `--retry-timeout-ms=N` how long a failed request is tried again, and `--progress`
//! prints a line to stderr for each step. Exit code: 0 up to date, 3 the last complete snapshot because the refresh failed, 1 no
//! snapshot.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use model_store::{Error, Freshness, Latest, Limits, Location, Mirror, Transfer};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let mut options = BTreeMap::new();
    let mut words = Vec::new();
    let mut limits = Limits::default();
    let mut progress = false;
    for argument in std::env::args().skip(1) {
        match argument.split_once('=') {
            Some(("--bytes-max", value)) => limits.bytes_max = value.parse().unwrap_or(limits.bytes_max),
            Some(("--retry-timeout-ms", value)) => {
                limits.retry_timeout =
                    value.parse().map(Duration::from_millis).unwrap_or(limits.retry_timeout);
                limits.retries_max = 2;
            }
            Some((name, value)) => {
                options.insert(name.to_owned(), value.to_owned());
            }
            None if argument == "--progress" => progress = true,
            None => words.push(argument),
        }
    }
    let [url, folder] = words.as_slice() else {
        eprintln!("usage: mirror URL CACHE_FOLDER [OPTION=VALUE...]");
        return ExitCode::from(2);
    };
    let show = |transfer: Transfer| {
        if progress {
            eprintln!("{}/{} bytes", transfer.bytes_done, transfer.bytes);
        }
    };
    match mirror(url, Path::new(folder), &options, limits, &show).await {
        Ok(Latest { snapshot, freshness: Freshness::Fresh(report) }) => {
            let folder = snapshot.path();
            println!("{}", serde_json::json!({ "fresh": true, "folder": folder, "report": report }));
            ExitCode::SUCCESS
        }
        Ok(Latest { snapshot, freshness: Freshness::Stale(error) }) => {
            let (folder, listed_at) = (snapshot.path(), snapshot.manifest().listed_at);
            let output = serde_json::json!({
                "fresh": false, "folder": folder, "listed_at": listed_at,
                "error": error.to_string(), "label": error.label(),
            });
            println!("{output}");
            ExitCode::from(3)
        }
        Err(error) => {
            println!("{}", serde_json::json!({ "error": error.to_string(), "label": error.label() }));
            ExitCode::FAILURE
        }
    }
}

async fn mirror(
    url: &str,
    folder: &Path,
    options: &BTreeMap<String, String>,
    limits: Limits,
    progress: &(impl Fn(Transfer) + Send + Sync),
) -> Result<Latest, Error> {
    Mirror::open(&Location::parse(url, options)?, folder, limits)?.latest(progress).await
}
