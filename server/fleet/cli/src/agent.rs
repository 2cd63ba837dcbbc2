//! `tessera-fleet agent`: applies the plan of one node.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use clap::Args;
use fleet_kubernetes::agent::admin::Admin;
use fleet_kubernetes::agent::model_files::{ModelFiles, WithSources};
use fleet_kubernetes::agent::reconciler::Settings;
use fleet_kubernetes::agent::{self, Options};
use units::{Size, TimeSpan};

use crate::process::{self, ProcessArgs};

/// Options of `tessera-fleet agent`.
#[derive(Args, Debug)]
pub struct AgentArgs {
    #[command(flatten)]
    process: ProcessArgs,
    /// Name of the node, which is the name of its plan.
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node: String,
    /// Labels of the plan, for the selectors of pools and models.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = pair)]
    labels: Vec<(String, String)>,
    /// Admin address of the server (`server.admin`).
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8003")]
    admin: String,
    /// API key with the role `operate`, if the server asks for one.
    #[arg(long, value_name = "KEY", env = "TESSERA_KEY", hide_env_values = true)]
    key: Option<String>,
    /// File with the API key.
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    key_file: Option<PathBuf>,
    /// Folder for the last accepted plan. It should survive a restart of this process.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/tessera/fleet")]
    state: PathBuf,
    /// Folder of the server's repository, to which the files of models with a source are copied. Without it, such models are refused.
    #[arg(long, value_name = "DIR")]
    repository: Option<PathBuf>,
    /// Options of the sources, such as `endpoint`, `region` and `allow_http`. Credentials come from the environment.
    #[arg(long = "source-option", value_name = "NAME=VALUE", value_parser = pair)]
    source_options: Vec<(String, String)>,
    /// Memory that models may take. Default: the server decides.
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// Time between two listings of the server, which find models that changed without the agent.
    #[arg(long, value_name = "TIME", default_value = "15s")]
    poll: TimeSpan,
    /// Address of /metrics and /health.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9005")]
    metrics: SocketAddr,
    /// End when standard input ends, as the server that starts an agent asks for.
    #[arg(long, hide = true)]
    until_input_ends: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = pair.ok_or_else(|| format!("expected NAME=VALUE, got `{text}`"))?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Applies plans until it is told to stop. Models stay loaded then.
///
/// # Errors
/// It cannot start.
pub async fn run(arguments: AgentArgs) -> anyhow::Result<()> {
    let key = match &arguments.key_file {
        Some(file) => {
            let key =
                std::fs::read_to_string(file).with_context(|| format!("--key-file {}", file.display()))?;
            Some(key.trim().to_owned())
        }
        None => arguments.key,
    };
    let admin = Admin::new(&arguments.admin, key.as_deref())?;
    let stop = process::stop_signal()?;
    if arguments.until_input_ends {
        process::stop_at_end_of_input(stop.clone())?;
    }
    let (client, namespace) = process::client(&arguments.process).await?;
    process::serve_metrics(arguments.metrics, Arc::new(AtomicBool::new(true)), stop.clone()).await?;
    let settings = Settings {
        memory_bytes: arguments.memory.map(|size| size.0),
        poll: arguments.poll.0.max(Settings::default().backoff),
        ..Settings::default()
    };
    let options = Options {
        node: arguments.node,
        namespace,
        labels: arguments.labels.into_iter().collect(),
        folder: arguments.state,
        settings,
    };
    let source_options = arguments.source_options.into_iter().collect();
    let files = arguments.repository.map(|folder| ModelFiles::new(folder, source_options));
    agent::run(client, options, WithSources { node: admin, files }, stop).await?;
    Ok(())
}
