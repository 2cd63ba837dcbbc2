//! Where the configuration of a process comes from, to read it more than once.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;

use super::arguments::{ConfigArgs, repository_config};
use super::merge::{Assignment, Sources};
use super::{Config, Origin, Problem, Problems};
use crate::environment::Environment;

/// Largest configuration file, in bytes.
pub const CONFIG_BYTES: usize = 4 << 20;

/// A configuration file: its path, as messages name it, and its text.
pub type ConfigFile = (PathBuf, String);

type ReadFile = dyn Fn() -> Result<Option<ConfigFile>, Problems> + Send + Sync;

/// The sources of a process's configuration. The file may change; environment and flags are those of the start.
#[derive(Clone)]
pub struct ConfigSource {
    read_file: Arc<ReadFile>,
    environment: Vec<(String, String)>,
    flags: Vec<Assignment>,
}

impl ConfigSource {
    /// The file that the command line names, or that of the repository; the environment; and the flags.
    pub fn new(arguments: ConfigArgs, environment: Environment) -> Self {
        let (variables, flags) = (environment.variables.clone(), arguments.assignments());
        let read_file = move || {
            let path = arguments.config.clone().or_else(|| repository_config(&arguments, &environment));
            path.map(read_config).transpose().map_err(|error| {
                let (message, origin) = (format!("{error:#}"), Origin::Flag("--config"));
                Problems(vec![Problem { path: String::new(), message, origin }])
            })
        };
        Self { read_file: Arc::new(read_file), environment: variables, flags }
    }

    /// Flags, and a file whose text is that of the moment.
    pub fn with_file(
        flags: Vec<Assignment>,
        read_file: impl Fn() -> Option<ConfigFile> + Send + Sync + 'static,
    ) -> Self {
        Self { read_file: Arc::new(move || Ok(read_file())), environment: Vec::new(), flags }
    }

    /// The file as it is now. `None`: the process has no file.
    ///
    /// # Errors
    /// It cannot be read, or is too large.
    pub fn file(&self) -> Result<Option<ConfigFile>, Problems> {
        (self.read_file)()
    }

    /// The configuration with this file.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn load(&self, file: Option<ConfigFile>) -> Result<Config, Problems> {
        let (environment, flags) = (self.environment.clone(), self.flags.clone());
        Config::load(&Sources { file, environment, flags })
    }

    /// The configuration with the file as it is now.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn read(&self) -> Result<Config, Problems> {
        self.load(self.file()?)
    }
}

/// Reads all sources and merges them.
pub fn configure(arguments: &ConfigArgs, environment: &Environment) -> Result<Config, Problems> {
    ConfigSource::new(arguments.clone(), environment.clone()).read()
}

fn read_config(path: PathBuf) -> anyhow::Result<ConfigFile> {
    let text = read_text(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
    Ok((path, text))
}

fn read_text(path: &Path) -> anyhow::Result<String> {
    let length = fs::metadata(path)?.len();
    anyhow::ensure!(length <= CONFIG_BYTES as u64, "it has {length} bytes: expected at most {CONFIG_BYTES}");
    Ok(fs::read_to_string(path)?)
}
