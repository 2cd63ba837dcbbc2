//! The models that a command runs on the rows of a file.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use models::Loader;
use node::catalog::Source;
use node::config::{Config, FamilySettings};
use node::environment::Environment;

use super::answers::{Answers, Rows};
use super::arguments::RowsArgs;
use crate::profile::subjects::{self, Subject};

/// Models, and the rows that they get.
pub struct Classifiers<'a> {
    /// The repository.
    pub source: Source,
    /// The models, by name.
    pub found: Vec<Subject>,
    config: &'a Config,
    arguments: &'a RowsArgs,
    loader: Loader,
    rows: Rows,
    cores: Vec<usize>,
}

impl<'a> Classifiers<'a> {
    /// The models that the arguments name, and the rows of this file.
    ///
    /// # Errors
    /// A model does not exist or could not be served, or the file has no rows by name.
    pub fn open(
        config: &'a Config,
        arguments: &'a RowsArgs,
        path: &Path,
        environment: &Environment,
    ) -> anyhow::Result<Self> {
        let names = models_of(&config.families, &arguments.names);
        let source = Source::open(&config.repository)?;
        let found = subjects::find(&source, config, "NAME", &names)?;
        let ort = models::engine::ort::discover(config.repository.ort_library.as_deref(), &environment.ort);
        let (loader, rows) = (Loader::new(ort), Rows::open(path)?);
        let cores = crate::split::cores(arguments.cores)?;
        Ok(Self { source, found, config, arguments, loader, rows, cores })
    }

    /// Another model of the repository. `option`: what names it on the command line.
    ///
    /// # Errors
    /// It does not exist or could not be served.
    pub fn find(&self, option: &str, name: &str) -> anyhow::Result<Subject> {
        let found = subjects::find(&self.source, self.config, option, &[name.to_owned()])?;
        found.into_iter().next().with_context(|| format!("{option}: expected a model"))
    }

    /// What a model answers to all rows. `labelled`: whether the rows have labels.
    ///
    /// # Errors
    /// The model cannot be loaded, does not take the rows, or its outputs are no classes.
    pub fn answers(&self, subject: &Subject, labelled: bool) -> anyhow::Result<Answers> {
        let files = subject.read(&self.source).map_err(anyhow::Error::msg)?;
        let mut session = self.loader.load(&files, &subject.config.load_options(&self.cores, false))?;
        let label = labelled.then_some(self.arguments.label.as_str());
        let output = self.arguments.output.as_deref();
        let answers = Answers::of(session.as_mut(), &self.rows, output, label);
        let answers = answers.with_context(|| format!("model `{}`", subject.name))?;
        anyhow::ensure!(!answers.classes.is_empty(), "{}: has no rows", self.rows.path().display());
        Ok(answers)
    }
}

/// The variants of families, and other names as they are.
fn models_of(families: &BTreeMap<String, FamilySettings>, names: &[String]) -> Vec<String> {
    let mut models: Vec<String> = Vec::new();
    for name in names {
        let family = families.get(name).map(|family| family.variants.as_slice());
        for model in family.unwrap_or(std::slice::from_ref(name)) {
            if !models.contains(model) {
                models.push(model.clone());
            }
        }
    }
    models
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_stand_for_their_variants() {
        let family = toml::from_str("variants = ['s', 'l']").unwrap();
        let families = BTreeMap::from([("digits".to_owned(), family)]);
        let names = ["l", "digits", "other"].map(str::to_owned);
        assert_eq!(models_of(&families, &names), ["l", "s", "other"]);
    }
}
