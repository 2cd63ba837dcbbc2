//! Where results go. Files are opened before anything is sent: a run of an hour must not end with a path that cannot
//! be written.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use loadtest::{Report, hdr_log, page, seconds_csv, table};
use node::output;

use super::arguments::LoadArgs;

/// Files that were asked for, and the shape of the answer.
#[derive(Debug)]
pub struct Outputs {
    json: bool,
    page: Option<(PathBuf, File)>,
    csv: Option<(PathBuf, File)>,
    hdr: Option<(PathBuf, File)>,
}

impl Outputs {
    /// Opens every file.
    pub fn open(arguments: &LoadArgs) -> anyhow::Result<Self> {
        let open = |option: &str, path: &Option<PathBuf>| -> anyhow::Result<Option<(PathBuf, File)>> {
            let Some(path) = path else { return Ok(None) };
            // What is there already stays until there is something to take its place.
            let file = File::options().write(true).create(true).truncate(false).open(path);
            let file = file.with_context(|| format!("{option}: cannot write `{}`", path.display()))?;
            Ok(Some((path.clone(), file)))
        };
        Ok(Self {
            json: arguments.json,
            page: open("--report", &arguments.report)?,
            csv: open("--csv", &arguments.csv)?,
            hdr: open("--hdr", &arguments.hdr)?,
        })
    }

    /// Writes everything; the answer itself goes to standard output.
    pub fn write(self, report: &Report, command: &str, colour: bool) -> anyhow::Result<()> {
        for (path, file) in [&self.page, &self.csv, &self.hdr].into_iter().flatten() {
            empty(file).with_context(|| cannot_write(path))?;
        }
        put(self.page, |file| file.write_all(page::html(report, command).as_bytes()))?;
        put(self.csv, |file| seconds_csv::write(report, file))?;
        put(self.hdr, |file| hdr_log::write(report, file))?;
        if self.json {
            output::line(&serde_json::to_string(report)?);
        } else {
            output::write(table::text(report, colour).as_bytes());
        }
        Ok(())
    }
}

fn put(
    target: Option<(PathBuf, File)>,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> anyhow::Result<()> {
    let Some((path, file)) = target else { return Ok(()) };
    let mut file = BufWriter::new(file);
    write(&mut file).and_then(|()| file.flush()).with_context(|| cannot_write(&path))
}

/// A pipe, or a terminal, has nothing to be emptied of.
fn empty(file: &File) -> io::Result<()> {
    if file.metadata()?.is_file() { file.set_len(0) } else { Ok(()) }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write `{}`", path.display())
}
