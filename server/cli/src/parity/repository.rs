//! The models and settings of the server in a comparison.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use models::TimeSpan;
use tempfile::TempDir;
use toml::{Table, Value};
use workload::{Model, Workload};

use super::arguments::ParityArgs;
use super::{families, fan_out, pipelines};

/// Header in which requests name their tenant.
pub const TENANT_HEADER: &str = "x-tenant";

/// Bytes of an element of a synthetic input.
const ELEMENT: u64 = 4;

/// A folder of models, and the server's options for it.
#[derive(Debug)]
pub struct Repository {
    /// Options of `tessera serve`.
    pub options: Vec<OsString>,
    /// Models to load once the server has started; empty if the server loads all models.
    pub asked_for: Vec<String>,
    /// Temporary folder; removed at the end of the comparison.
    _folder: Option<TempDir>,
}

impl Repository {
    /// Synthetic models that take as long as the profiles of a workload say, on as many lanes as it has.
    pub fn synthetic(workload: &Workload, arguments: &ParityArgs) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a folder")?;
        let models = folder.path().join("models");
        let fan_outs = fan_out::tables(workload)?;
        for (number, model) in (0_u32..).zip(&workload.models).filter(|(_, model)| model.is_single()) {
            let version = models.join(&model.name).join("1");
            fs::create_dir_all(&version).context("cannot make a folder")?;
            fs::write(version.join("model.toml"), description(model, fan_outs.get(&number))?)
                .context("cannot write a model")?;
        }
        families::write_qualities(workload, &models)?;
        let config = folder.path().join("tessera.toml");
        fs::write(&config, pipelines::config(workload)?).context("cannot write the configuration")?;
        let mut options = options(&models);
        options.extend(["--config".into(), config.into()]);
        set(&mut options, format!("lanes.count={}", workload.lanes.count));
        set(&mut options, "lanes.shared=true".to_owned());
        tenants(&mut options, workload);
        for model in workload.models.iter().filter(|model| model.family.is_none()) {
            settings(&mut options, &model.name, model, &arguments.policy);
        }
        arguments.set.iter().for_each(|assignment| set(&mut options, assignment.clone()));
        Ok(Self { options, asked_for: Vec::new(), _folder: Some(folder) })
    }

    /// The models of a folder, with its own configuration and the objectives of a workload.
    pub fn given(path: &Path, arguments: &ParityArgs, workload: &Workload) -> anyhow::Result<Self> {
        pipelines::check_ensembles(workload)?;
        let mut options = options(path);
        let families = families::tables(workload, |model| arguments.served(model));
        let folder = (!families.is_empty()).then(tempfile::tempdir).transpose();
        let folder = folder.context("cannot make a folder")?;
        if let Some(folder) = &folder {
            let config = folder.path().join("tessera.toml");
            let sections = Table::from_iter([("families".to_owned(), Value::Table(families))]);
            fs::write(&config, toml::to_string(&sections)?).context("cannot write the configuration")?;
            options.extend(["--config".into(), config.into()]);
        }
        // One core for each lane. The network and the client use the others.
        let cores = gpulet::allowed_cores().context("cannot read the affinity mask")?;
        let lanes: Vec<String> =
            cores.iter().take(workload.lanes.count as usize).map(|core| format!("[{core}]")).collect();
        anyhow::ensure!(
            lanes.len() == workload.lanes.count as usize,
            "the workload asks for {} lanes: expected at most {}, one a core",
            workload.lanes.count,
            cores.len()
        );
        set(&mut options, format!("lanes.cores=[{}]", lanes.join(", ")));
        options.extend(["--load-mode", "explicit", "--engine"].map(OsString::from));
        options.push((&arguments.engine).into());
        tenants(&mut options, workload);
        if let Some(limit) = workload.protect {
            set(&mut options, format!("best_effort.protect={limit}"));
        }
        let mut served = Vec::new();
        for model in &workload.models {
            let name = arguments.served(model);
            if served.iter().any(|other| other == name) {
                anyhow::bail!("two models of the workload are served as `{name}`: expected one each");
            }
            served.push(name.to_owned());
            // The objective of a family is in its own section, and its variants have the policy.
            if model.family.is_none() {
                settings(&mut options, name, model, &arguments.policy);
            }
        }
        arguments.set.iter().for_each(|assignment| set(&mut options, assignment.clone()));
        Ok(Self { options, asked_for: served, _folder: folder })
    }
}

fn options(models: &Path) -> Vec<OsString> {
    vec!["--repository".into(), models.into()]
}

fn set(options: &mut Vec<OsString>, assignment: String) {
    options.extend(["--set".into(), assignment.into()]);
}

/// The policy, the objective, and the largest batch if the workload says it.
fn settings(options: &mut Vec<OsString>, name: &str, model: &Model, policy: &str) {
    set(options, format!("models.{name}.batching.policy={policy}"));
    if model.best_effort {
        set(options, format!("models.{name}.class=best_effort"));
    }
    if let Some(lanes) = &model.lanes {
        set(options, format!("models.{name}.lanes={lanes:?}"));
    }
    if model.deadline {
        let slo = TimeSpan(Duration::from_nanos(model.slo));
        set(options, format!("models.{name}.slo={slo}"));
    }
    // A model that cannot be batched has no largest batch to set.
    if let Some(profile) = model.profile.as_ref().filter(|profile| profile.max_batch() > 1) {
        set(options, format!("models.{name}.max_batch={}", profile.max_batch()));
    }
}

/// The weights and quotas of tenants, and the header that names them.
fn tenants(options: &mut Vec<OsString>, workload: &Workload) {
    if workload.tenants.len() < 2 {
        return;
    }
    set(options, format!("server.tenant_header={TENANT_HEADER}"));
    let weights = sim::whole_weights(workload.tenants.iter().map(|tenant| tenant.weight));
    for (tenant, weight) in workload.tenants.iter().zip(weights) {
        let mut set =
            |key: &str, value: String| set(options, format!("tenants.{}.{key}={value}", tenant.name));
        set("weight", weight.to_string());
        if let Some(quota) = tenant.quota.device_seconds {
            set("device_seconds_per_second", format!("{:?}", quota.per_second));
            set("device_seconds_burst", format!("{:?}", quota.burst));
        }
        if let Some(quota) = tenant.quota.requests {
            set("requests_per_second", format!("{:?}", quota.per_second));
            set("requests_burst", format!("{:?}", quota.burst));
        }
        if tenant.quota.borrow {
            set("borrow", "true".to_owned());
        }
    }
}

/// `fan_out`: the rows that come of each row of each request, if it is not one.
fn description(model: &Model, fan_out: Option<&Vec<Vec<u32>>>) -> anyhow::Result<String> {
    let profile = model.profiled()?;
    let elements = model.row_bytes.div_ceil(ELEMENT).max(1);
    let tensor =
        |name: &str| format!("[{{ name = \"{name}\", datatype = \"FP32\", dims = [-1, {elements}] }}]");
    let point = |rows: u32| format!("[{rows}, {}]", profile.time(rows).div_ceil(1_000));
    let points: Vec<String> = (1..=profile.max_batch()).map(point).collect();
    let fan_out = fan_out.map_or_else(String::new, |rows| format!("fan_out = {rows:?}\n"));
    Ok(format!(
        "max_batch = {}\ninputs = {}\noutputs = {}\n{fan_out}[time]\npoints = [{}]\n",
        profile.max_batch(),
        tensor("input"),
        tensor("output"),
        points.join(", ")
    ))
}
