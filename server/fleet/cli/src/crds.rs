//! `tessera-fleet crds`: the definitions of the kinds.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use fleet_kubernetes::manifests;

/// Prints the definitions, or writes them to a folder.
pub fn run(out: Option<&Path>) -> anyhow::Result<()> {
    for manifest in manifests::definitions()? {
        match out {
            None => write!(std::io::stdout(), "---\n{}", manifest.text).context("standard output")?,
            Some(folder) => {
                std::fs::create_dir_all(folder).with_context(|| format!("--out {}", folder.display()))?;
                let path = folder.join(&manifest.file);
                std::fs::write(&path, &manifest.text).with_context(|| path.display().to_string())?;
            }
        }
    }
    Ok(())
}
