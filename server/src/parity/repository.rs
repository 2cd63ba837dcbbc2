//! What the server of a comparison serves, and with which settings.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use models::TimeSpan;
use tempfile::TempDir;
use workload::{Model, Workload};

use super::arguments::ParityArgs;

/// Bytes of an element of a synthetic input.
const ELEMENT: u64 = 4;

/// A folder of models, and a configuration file in a folder that is gone afterwards.
#[derive(Debug)]
pub struct Repository {
    folder: TempDir,
    models: PathBuf,
    /// Models that are loaded when the server is there; empty if it loads all by itself.
    pub asked_for: Vec<String>,
}

impl Repository {
    /// Synthetic models that take as long as the profiles of a workload say, on as many lanes as it has.
    pub fn synthetic(workload: &Workload) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a folder")?;
        let models = folder.path().join("models");
        let mut config = format!("[lanes]\ncount = {}\nshared = true\n", workload.lanes.count);
        for model in &workload.models {
            let version = models.join(&model.name).join("1");
            fs::create_dir_all(&version).context("cannot make a folder")?;
            fs::write(version.join("model.toml"), description(model)?).context("cannot write a model")?;
            objective(&mut config, &model.name, model);
        }
        Self { folder, models, asked_for: Vec::new() }.with_config(&config)
    }

    /// The models of a folder with the objectives of a workload.
    pub fn given(path: &Path, arguments: &ParityArgs, workload: &Workload) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a folder")?;
        let mut config = format!("[lanes]\ncount = {}\n", workload.lanes.count);
        let _ = writeln!(config, "[repository]\nload = \"explicit\"\nengine = \"{}\"", arguments.engine);
        let mut served = Vec::new();
        for model in &workload.models {
            let mapped =
                arguments.client.maps.iter().find(|(name, _)| *name == model.name || *name == model.group);
            let name = mapped.map_or(&model.name, |(_, name)| name);
            if served.contains(name) {
                anyhow::bail!("two models of the workload are served as `{name}`: expected one each");
            }
            served.push(name.clone());
            objective(&mut config, name, model);
        }
        Self { folder, models: path.to_owned(), asked_for: served }.with_config(&config)
    }

    fn with_config(self, config: &str) -> anyhow::Result<Self> {
        fs::write(self.config(), config).context("cannot write a configuration")?;
        Ok(self)
    }

    /// The configuration file.
    pub fn config(&self) -> PathBuf {
        self.folder.path().join("tessera.toml")
    }

    /// The folder of models.
    pub fn path(&self) -> &Path {
        &self.models
    }
}

fn objective(config: &mut String, name: &str, model: &Model) {
    let key = toml::Value::String(name.to_owned());
    let slo = TimeSpan(Duration::from_nanos(model.slo));
    let _ = writeln!(config, "[models.{key}]");
    if model.deadline {
        let _ = writeln!(config, "slo = \"{slo}\"");
    }
    if let Some(profile) = &model.profile {
        let _ = writeln!(config, "max_batch = {}", profile.max_batch());
    }
}

fn description(model: &Model) -> anyhow::Result<String> {
    let profile = model.profiled()?;
    let elements = model.row_bytes.div_ceil(ELEMENT).max(1);
    let tensor =
        |name: &str| format!("[{{ name = \"{name}\", datatype = \"FP32\", dims = [-1, {elements}] }}]");
    let point = |rows: u32| format!("[{rows}, {}]", profile.time(rows).div_ceil(1_000));
    let points: Vec<String> = (1..=profile.max_batch()).map(point).collect();
    Ok(format!(
        "max_batch = {}\ninputs = {}\noutputs = {}\n[time]\npoints = [{}]\n",
        profile.max_batch(),
        tensor("input"),
        tensor("output"),
        points.join(", ")
    ))
}
