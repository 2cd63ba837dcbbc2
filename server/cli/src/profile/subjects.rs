//! The models to be measured, as `tessera serve` would serve them.

use gpulet_core::profile::RowShape;
use models::repository::Pbtxt;
use models::{ContentHash, EffectiveConfig, EngineChoice, Format, ModelFiles, ModelName, Version, inspect};
use node::catalog::Source;
use node::config::Config;
use units::nearest;

use super::grid;

/// One model.
#[derive(Clone, Debug)]
pub struct Subject {
    pub name: ModelName,
    /// The newest version that would be served.
    pub version: Version,
    /// How it would be served.
    pub config: EffectiveConfig,
    /// Hash of its main file.
    pub hash: ContentHash,
    /// Batches to be measured, ascending.
    pub batches: Vec<u32>,
    /// Shapes to be measured; empty: what the model accepts first.
    pub shapes: Vec<RowShape>,
    /// Names of its inputs.
    pub inputs: Vec<String>,
    pbtxt: Option<Pbtxt>,
}

/// A model that cannot be measured, or no further.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Failure {
    pub model: String,
    /// Why, and what would be right.
    pub reason: String,
}

/// Models that can be measured, and those of which it is clear already that they cannot.
pub type Gathered = (Vec<Subject>, Vec<Failure>);

/// These models.
///
/// # Errors
/// One does not exist, or could not be served.
pub fn find(
    source: &Source,
    config: &Config,
    option: &str,
    names: &[String],
) -> anyhow::Result<Vec<Subject>> {
    let (found, failed) = gather(source, config, (option, names), &[])?;
    match failed.first() {
        Some(failure) => anyhow::bail!("model `{}`: {}", failure.model, failure.reason),
        None => Ok(found),
    }
}

/// The models that were asked for; all if none was. `option`: what names them on the command line.
///
/// # Errors
/// When a model does not exist, when the repository is empty, or when a model does not take a requested batch size.
pub fn gather(
    source: &Source,
    config: &Config,
    (option, asked): (&str, &[String]),
    batches: &[u32],
) -> anyhow::Result<Gathered> {
    let known = source.names().map_err(|refusal| anyhow::anyhow!(refusal.message))?;
    let words: Vec<&str> = known.keys().map(String::as_str).collect();
    if let Some(unknown) = asked.iter().find(|name| !known.contains_key(*name)) {
        let hint =
            nearest(unknown, &words).map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
        let shown: String = unknown.chars().take(ModelName::MAX_LEN).flat_map(char::escape_default).collect();
        anyhow::bail!(
            "{option}: `{shown}` is not in the repository: expected one of {}{hint}",
            listed(&words)
        );
    }
    anyhow::ensure!(
        !known.is_empty(),
        "repository.path: has no model: expected a folder such as `resnet50/1` with a `model.onnx` in it"
    );
    let (mut subjects, mut failures) = (Vec::new(), Vec::new());
    for (name, versions) in known.iter().filter(|(name, _)| asked.is_empty() || asked.contains(name)) {
        match subject(source, config, name, versions) {
            Ok((mut subject, max_batch)) => {
                subject.batches = grid::batches(batches, name, max_batch).map_err(anyhow::Error::msg)?;
                subjects.push(subject);
            }
            Err(reason) => failures.push(Failure { model: name.clone(), reason }),
        }
    }
    Ok((subjects, failures))
}

/// Names as a sentence has them; many are cut short.
fn listed(words: &[&str]) -> String {
    const SHOWN: usize = 20;
    let shown: Vec<String> = words.iter().take(SHOWN).map(|word| format!("`{word}`")).collect();
    let more = if words.len() > SHOWN { ", ..." } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// The model, and the largest batch that its shapes allow.
fn subject(source: &Source, config: &Config, name: &str, versions: &[u64]) -> Result<(Subject, u32), String> {
    let name = ModelName::new(name).map_err(|error| error.to_string())?;
    let settings = config.models.get(name.as_str()).cloned().unwrap_or_default();
    let pbtxt = source.config(&name).map_err(|error| error.to_string())?;
    let versions: Vec<Version> = versions.iter().copied().map(Version).collect();
    let policy = EffectiveConfig::versions(pbtxt.as_ref(), &settings);
    let version = policy.select(&versions).last().copied();
    let version =
        version.ok_or("has no version to serve: expected a folder such as `1` with a `model.onnx` in it")?;
    let files = source.read(&name, version, pbtxt.as_ref()).map_err(|error| error.to_string())?;
    if files.format == Format::Ensemble {
        return Err("is an ensemble, which runs other models: measure these".to_owned());
    }
    let signature =
        inspect(&files, &EffectiveConfig::inspection(&settings)).map_err(|error| error.to_string())?;
    let mut effective = EffectiveConfig::resolve(&name, pbtxt.as_ref(), &settings, &signature)
        .map_err(|error| error.to_string())?;
    if effective.engine == EngineChoice::Auto && settings.engine.is_none() {
        effective.engine =
            config.repository.engine.parse().map_err(|error: models::UnknownEngine| error.to_string())?;
    }
    let max_batch = effective.max_batch.unwrap_or(signature.max_batch);
    let hash = files.hash;
    let inputs = signature.inputs.into_iter().map(|spec| spec.name).collect();
    let (batches, shapes) = (Vec::new(), Vec::new());
    Ok((Subject { name, version, config: effective, hash, batches, shapes, inputs, pbtxt }, max_batch))
}

/// Shapes of a model's rows as `--shape` has them; empty if it does not.
///
/// # Errors
/// When the model has no such input.
pub fn shapes_of_rows(asked: &[(String, Vec<u64>)], subject: &Subject) -> Result<Vec<RowShape>, String> {
    if let Some((name, _)) = asked.iter().find(|(name, _)| !subject.inputs.contains(name)) {
        return Err(format!("--shape: no input `{name}`: expected one of {}", subject.inputs.join(", ")));
    }
    let inputs = asked.iter().cloned().collect();
    Ok(if asked.is_empty() { Vec::new() } else { vec![RowShape { inputs, share: None, assumed: false }] })
}

impl Subject {
    /// Its files, which must still be those that it was gathered with.
    ///
    /// # Errors
    /// When they cannot be read, or were replaced since.
    pub fn read(&self, source: &Source) -> Result<ModelFiles, String> {
        let files =
            source.read(&self.name, self.version, self.pbtxt.as_ref()).map_err(|error| error.to_string())?;
        if files.hash == self.hash {
            return Ok(files);
        }
        Err(format!("version {} was replaced while it was measured: measure it again", self.version))
    }
}
