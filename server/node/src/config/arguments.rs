//! Where configuration comes from on the command line: flags as assignments of options, and the file that they name.

use std::path::{Path, PathBuf};

use clap::Args;

use super::Origin;
use super::merge::Assignment;
use crate::environment::Environment;

/// Name of the configuration file that a repository may hold.
const REPOSITORY_CONFIG: &str = "tessera.toml";

/// Where configuration comes from.
#[derive(Args, Clone, Debug, Default)]
pub struct ConfigArgs {
    /// Configuration file. Default: `tessera.toml` in the repository, if there is one.
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folder of models [repository.path]
    #[arg(long, short, value_name = "DIR")]
    pub repository: Option<String>,
    /// Set any option, such as `limits.body=16MiB`; may be repeated.
    #[arg(long = "set", value_name = "OPTION=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
    /// Engine of models that do not set one: auto, tract, ort or synthetic [repository.engine]
    #[arg(long, value_name = "ENGINE")]
    pub engine: Option<String>,
    /// ONNX Runtime's shared library [repository.ort_library]
    #[arg(long, value_name = "FILE")]
    pub ort_library: Option<String>,
    /// Address of the REST interface; port 0 selects a free port (same for `--grpc`) [server.http]
    #[arg(long, value_name = "ADDRESS")]
    pub http: Option<String>,
    /// Address of the gRPC interface [server.grpc]
    #[arg(long, value_name = "ADDRESS")]
    pub grpc: Option<String>,
    /// Address of /metrics [server.metrics]
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<String>,
    /// Address of the admin listener [server.admin]
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<String>,
    /// Which models to load: `all` at start, or `explicit`: only on request [repository.load]
    #[arg(long, value_name = "WHICH")]
    pub load_mode: Option<String>,
    /// Serve as this node of a fleet on Kubernetes: an agent loads the models of its plan [fleet.node, fleet.agent, repository.load]
    #[arg(long, value_name = "NAME", conflicts_with = "load_mode")]
    pub node: Option<String>,
    /// Number of lanes that divide the cores [lanes.count]
    #[arg(long, value_name = "NUMBER")]
    pub lanes: Option<String>,
    /// Time for requests in flight to finish after SIGTERM [server.grace]
    #[arg(long, value_name = "TIME")]
    pub grace: Option<String>,
    /// Lowest level to log: error, warn, info, debug or trace; or a filter such as `info,router=debug` [server.log_level]
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// Format of log lines: auto, human or json [server.log_format]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
}

fn assignment(text: &str) -> Result<(String, String), String> {
    let (path, value) = text.split_once('=').ok_or("expected OPTION=VALUE, such as limits.body=16MiB")?;
    Ok((path.trim().to_owned(), value.trim().to_owned()))
}

impl ConfigArgs {
    /// Flags with a name of their own, what they set, and their values.
    pub(super) fn named(&self) -> [(&'static str, &'static str, &Option<String>); 12] {
        [
            ("--repository", "repository.path", &self.repository),
            ("--engine", "repository.engine", &self.engine),
            ("--ort-library", "repository.ort_library", &self.ort_library),
            ("--http", "server.http", &self.http),
            ("--grpc", "server.grpc", &self.grpc),
            ("--metrics", "server.metrics", &self.metrics),
            ("--admin", "server.admin", &self.admin),
            ("--load-mode", "repository.load", &self.load_mode),
            ("--lanes", "lanes.count", &self.lanes),
            ("--grace", "server.grace", &self.grace),
            ("--log-level", "server.log_level", &self.log_level),
            ("--log-format", "server.log_format", &self.log_format),
        ]
    }

    /// The flags as assignments; those with a name of their own win over `--set`.
    pub fn assignments(&self) -> Vec<Assignment> {
        let set = self.set.iter().map(|(path, raw)| Assignment {
            path: path.clone(),
            raw: raw.clone(),
            origin: Origin::Flag("--set"),
        });
        let named = self.named().into_iter().filter_map(|(flag, path, value)| {
            let raw = value.clone()?;
            Some(Assignment { path: path.to_owned(), raw, origin: Origin::Flag(flag) })
        });
        let node = self.node.iter().flat_map(|name| {
            let values =
                [("fleet.node", name.as_str()), ("fleet.agent", "true"), ("repository.load", "explicit")];
            values.map(|(path, raw)| Assignment {
                path: path.to_owned(),
                raw: raw.to_owned(),
                origin: Origin::Flag("--node"),
            })
        });
        set.chain(named).chain(node).collect()
    }
}

/// A repository may bring the configuration of its models.
pub(super) fn repository_config(arguments: &ConfigArgs, environment: &Environment) -> Option<PathBuf> {
    let from_environment = || {
        environment.variables.iter().find(|(name, _)| name == "TESSERA_REPOSITORY_PATH").map(|(_, path)| path)
    };
    let repository = arguments.repository.as_ref().or_else(from_environment)?;
    let path = Path::new(repository).join(REPOSITORY_CONFIG);
    path.is_file().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(Debug, clap::Parser)]
    struct Flags {
        #[command(flatten)]
        config: ConfigArgs,
    }

    #[test]
    fn a_node_of_a_fleet_loads_nothing_by_itself() {
        let flags = Flags::try_parse_from(["tessera", "--node", "w-1"]).unwrap();
        let found: Vec<_> = flags.config.assignments().into_iter().map(|a| (a.path, a.raw)).collect();
        let expected = [("fleet.node", "w-1"), ("fleet.agent", "true"), ("repository.load", "explicit")];
        assert_eq!(found, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
        assert!(Flags::try_parse_from(["tessera", "--node", "w-1", "--load-mode", "all"]).is_err());
    }

    #[test]
    fn flags_become_assignments_and_named_ones_come_last() {
        let words =
            ["tessera", "--http", "127.0.0.1:1", "--set", "server.http = 127.0.0.1:2", "--lanes", "3"];
        let flags = Flags::try_parse_from(words).unwrap();
        let found: Vec<_> =
            flags.config.assignments().into_iter().map(|a| (a.path, a.raw, a.origin.to_string())).collect();
        let expected = [
            ("server.http", "127.0.0.1:2", "flag --set"),
            ("server.http", "127.0.0.1:1", "flag --http"),
            ("lanes.count", "3", "flag --lanes"),
        ];
        assert_eq!(found, expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned())));
    }
}
