//! Writes stages and their ensemble into a model repository: all of them, or none.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use model_split::Stage;
use models::ModelName;
use models::split::{PipelineConfig, SplitModel};
use node::catalog::Source;

/// What is written, and where.
pub struct Writer<'a> {
    pub out: &'a Path,
    /// Whether folders that are there are replaced.
    pub force: bool,
    /// The repository that the model comes from, if it is a folder.
    pub repository: Option<&'a Path>,
}

impl Writer<'_> {
    /// Checks that nothing is in the way.
    ///
    /// # Errors
    /// What is, and what would be right.
    pub fn check(&self, whole: &ModelName, stages: &[ModelName]) -> anyhow::Result<()> {
        let same = |repository: &Path| -> bool {
            fs::canonicalize(repository)
                .ok()
                .is_some_and(|path| fs::canonicalize(self.out).ok() == Some(path))
        };
        anyhow::ensure!(
            !self.repository.is_some_and(same),
            "--out: `{}` is the repository of the model, whose name the ensemble gets: expected another folder",
            self.out.display()
        );
        let there = stages.iter().chain([whole]).find(|name| self.out.join(name.as_str()).exists());
        if let Some(name) = there.filter(|_| !self.force) {
            anyhow::bail!(
                "--out: `{}` exists: expected a folder without it, or --force",
                self.out.join(name.as_str()).display()
            );
        }
        Ok(())
    }

    /// Writes everything next to its place, and then moves it there.
    ///
    /// # Errors
    /// A file that cannot be read or written.
    pub fn write(
        &self,
        model: &SplitModel,
        stages: &[Stage],
        config: &PipelineConfig<'_>,
        source: &Source,
    ) -> anyhow::Result<()> {
        fs::create_dir_all(self.out).with_context(|| format!("--out: `{}`", self.out.display()))?;
        // Repositories ignore names that start with a dot.
        let draft = tempfile::Builder::new().prefix(".split-").tempdir_in(self.out);
        let draft = draft.with_context(|| format!("--out: `{}`", self.out.display()))?;
        for (index, (stage, (name, _))) in stages.iter().zip(config.stages).enumerate() {
            let folder = draft.path().join(name.as_str());
            let version = folder.join("1");
            make_folder(&version)?;
            model.write_stage(stage, &version)?;
            write_text(&folder.join("config.pbtxt"), &config.stage_text(index)?)?;
        }
        let ensemble = draft.path().join(config.name.as_str());
        make_folder(&ensemble.join("1"))?;
        write_text(&ensemble.join("config.pbtxt"), &config.ensemble_text()?)?;
        let outputs = config.source.map(|source| source.output.as_slice()).unwrap_or_default();
        for output in outputs.iter().filter(|output| !output.label_filename.is_empty()) {
            let labels = source.labels(config.name, &output.label_filename)?;
            write_text(&ensemble.join(&output.label_filename), &(labels.join("\n") + "\n"))?;
        }
        let names = config.stages.iter().map(|(name, _)| name).chain([config.name]);
        names.into_iter().try_for_each(|name| self.publish(draft.path(), name))
    }

    fn publish(&self, draft: &Path, name: &ModelName) -> anyhow::Result<()> {
        let (from, to) = (draft.join(name.as_str()), self.out.join(name.as_str()));
        let failed = || format!("--out: `{}`", to.display());
        if self.force && to.exists() {
            let old: PathBuf = draft.join(format!("{name}.old"));
            fs::rename(&to, &old).with_context(failed)?;
        }
        fs::rename(&from, &to).with_context(failed)
    }
}

fn make_folder(path: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(path).with_context(|| format!("`{}`", path.display()))
}

fn write_text(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("`{}`", path.display()))
}
