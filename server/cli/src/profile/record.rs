//! The file of profiles: read, checked, and added to cell by cell.
//!
//! Lines belong to the last `profile` line above them, so a profile that is to grow must be the last one. Where it is
//! not, the file is rewritten with that profile at the end. Everything else is appended, one write per cell, so a run that is
//! killed leaves a valid file, or one with an incomplete last line, which is dropped.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gpulet_core::profile::{Aggressor, Header, Line, Profile, Source};
use node::files::read_text;

use super::known_models::measured;
use super::machine::DEVICE;
use crate::journal;

/// The option that names the file.
const OPTION: &str = "--out";
/// How every file of profiles begins.
const FIRST: &str = "{\"profile\":";
/// Largest file.
const FILE_BYTES: u64 = 256 << 20;

/// A file of profiles that this process alone writes to.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    file: File,
    /// Lines of each profile, in the file's order.
    profiles: Vec<Vec<Line>>,
}

impl Record {
    /// Opens a file, or starts one.
    ///
    /// # Errors
    /// When it cannot be read or written, is not a file of profiles, or is being written by another run.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let file = journal::lock(OPTION, path)?;
        let text = read_text(path, FILE_BYTES)?;
        let whole = whole_lines(&text);
        let profiles = Profile::read(&whole)
            .with_context(|| format!("`{}`: expected a file of profiles", path.display()))?;
        let profiles = profiles.iter().map(Profile::lines).collect();
        let mut record = Self { path: path.to_owned(), file, profiles };
        if whole != text {
            record.rewrite()?;
        }
        Ok(record)
    }

    /// Header of a model's profile on this machine's device type.
    pub fn header(&self, model: &str) -> Option<&Header> {
        let lines = self.profiles.get(self.place(model)?)?;
        lines.first().and_then(header_of)
    }

    /// Lines of a model's profile; empty without profile.
    pub fn lines(&self, model: &str) -> &[Line] {
        self.place(model).and_then(|place| self.profiles.get(place)).map_or(&[], Vec::as_slice)
    }

    /// The batches and cores of a model's measured cells.
    pub fn cells(&self, model: &str) -> BTreeSet<(u32, u32)> {
        measured(self.lines(model)).iter().map(|cell| (cell.batch, cell.units)).collect()
    }

    /// All profiles of the file.
    pub fn profiles(&self) -> impl Iterator<Item = Profile> {
        self.profiles.iter().filter_map(|lines| Profile::of_lines(lines.iter().cloned()).ok()?.pop())
    }

    /// Removes models' profiles in which no cell was measured: their cells are measured, or predicted again.
    pub fn forget_predictions<'a>(&mut self, models: impl Iterator<Item = &'a str>) -> anyhow::Result<()> {
        let only_predicted = models
            .filter(|model| self.header(model).is_some_and(|header| header.source == Source::Predicted));
        let only_predicted: Vec<&str> = only_predicted.collect();
        self.forget(only_predicted.into_iter())
    }

    /// The batches, cores and loads under which a model was measured.
    pub fn contention(&self, model: &str) -> BTreeSet<(u32, u32, Aggressor)> {
        let line = |line: &Line| match line {
            Line::Contention(line) => Some((line.batch, line.units, line.aggressor)),
            _ => None,
        };
        self.lines(model).iter().filter_map(line).collect()
    }

    /// Removes models' profiles on this machine's device type from the file.
    pub fn forget<'a>(&mut self, models: impl Iterator<Item = &'a str>) -> anyhow::Result<()> {
        let before = self.profiles.len();
        for model in models {
            if let Some(place) = self.place(model) {
                self.profiles.remove(place);
            }
        }
        if self.profiles.len() == before { Ok(()) } else { self.rewrite() }
    }

    /// Adds lines to the profile of `header`, which is created if it does not exist. The lines are written at once before
    /// this returns.
    pub fn add(&mut self, header: &Header, lines: &[Line]) -> anyhow::Result<()> {
        let mut new = Vec::new();
        match self.place(&header.model) {
            None => {
                new.push(Line::Profile(header.clone()));
                self.profiles.push(Vec::new());
            }
            Some(place) if place.saturating_add(1) < self.profiles.len() => {
                let profile = self.profiles.remove(place);
                self.profiles.push(profile);
                self.rewrite()?;
            }
            Some(_) => {}
        }
        new.extend_from_slice(lines);
        let text = text(&new)?;
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.flush());
        written.with_context(|| format!("cannot write `{}`", self.path.display()))?;
        if let Some(last) = self.profiles.last_mut() {
            last.extend(new);
        }
        Ok(())
    }

    fn place(&self, model: &str) -> Option<usize> {
        let is_it = |header: &Header| header.model == model && header.device == DEVICE;
        self.profiles.iter().position(|lines| lines.first().and_then(header_of).is_some_and(is_it))
    }

    /// Replaces the file atomically by one with the current profiles.
    fn rewrite(&mut self) -> anyhow::Result<()> {
        let place = || format!("cannot write `{}`", self.path.display());
        // A link stays one: what it points to is replaced.
        let real = fs::canonicalize(&self.path).with_context(place)?;
        let folder = real.parent().unwrap_or_else(|| Path::new("/"));
        let mut temporary = tempfile::NamedTempFile::new_in(folder).with_context(place)?;
        for profile in &self.profiles {
            temporary.write_all(text(profile)?.as_bytes()).with_context(place)?;
        }
        let permissions = fs::metadata(&real).with_context(place)?.permissions();
        fs::set_permissions(temporary.path(), permissions).with_context(place)?;
        temporary.as_file().sync_all().with_context(place)?;
        temporary.persist(&real).with_context(place)?;
        self.file = journal::lock(OPTION, &self.path)?;
        Ok(())
    }
}

fn header_of(line: &Line) -> Option<&Header> {
    match line {
        Line::Profile(header) => Some(header),
        _ => None,
    }
}

fn text(lines: &[Line]) -> anyhow::Result<String> {
    let mut text = String::new();
    for line in lines {
        text.push_str(&serde_json::to_string(line)?);
        text.push('\n');
    }
    Ok(text)
}

/// Removes an incomplete last line and a last profile without cells from the text. A run that was killed while it
/// wrote leaves them.
fn whole_lines(text: &str) -> String {
    let parsed = |line: &str| serde_json::from_str::<Line>(line).ok();
    let mut lines: Vec<&str> = text.lines().collect();
    let is_incomplete = journal::incomplete_line(text, FIRST).is_some();
    if is_incomplete && lines.last().is_some_and(|line| parsed(line).is_none()) {
        lines.pop();
    }
    while lines.last().is_some_and(|line| matches!(parsed(line), Some(Line::Profile(_)))) {
        lines.pop();
    }
    lines.iter().flat_map(|line| [*line, "\n"]).collect()
}

/// Lists the conditions under which a profile was measured that differ from the current ones.
pub fn differences(found: &Header, now: &Header) -> Vec<String> {
    let short = |hash: &Option<String>| {
        hash.as_deref().map_or_else(|| "none".to_owned(), |hash| hash.chars().take(12).collect::<String>())
    };
    let source = |header: &Header| serde_json::to_string(&header.source).unwrap_or_default().replace('"', "");
    let pairs = [
        ("model_sha256", short(&found.model_sha256), short(&now.model_sha256)),
        ("source", source(found), source(now)),
        ("engine", found.engine.clone(), now.engine.clone()),
        ("units_total", found.units_total.to_string(), now.units_total.to_string()),
        ("note", found.note.clone(), now.note.clone()),
    ];
    let differ = pairs.into_iter().filter(|(_, before, after)| before != after);
    differ.map(|(field, before, after)| format!("{field} is `{before}`, now it is `{after}`")).collect()
}

#[cfg(test)]
mod tests;
