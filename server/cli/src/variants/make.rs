//! `tessera variants make`: variants of an ONNX model, made by ONNX Runtime's own quantizer.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context as _;
use node::catalog::Source;
use node::config::Config;
use node::output;

use super::arguments::MakeArgs;
use crate::profile::subjects;

/// What Python runs: kind, input and output.
const SCRIPT: &str = include_str!("make.py");

/// Makes the variants.
pub fn run(config: &Config, arguments: &MakeArgs) -> anyhow::Result<ExitCode> {
    let root = config.repository.path.as_deref().context("--repository: expected a folder of models")?;
    let source = Source::open(&config.repository)?;
    let found = subjects::find(&source, config, "MODEL", std::slice::from_ref(&arguments.model))?;
    let subject = found.first().context("expected a model")?;
    let (name, version) = (subject.name.as_str(), subject.version.to_string());
    let model = root.join(name).join(&version).join("model.onnx");
    anyhow::ensure!(model.is_file(), "{}: expected an ONNX model", model.display());
    let kinds = [("int8", arguments.int8), ("fp16", arguments.fp16)];
    for (kind, _) in kinds.into_iter().filter(|(_, asked)| *asked) {
        let variant = format!("{name}-{kind}");
        let folder = arguments.out.as_deref().unwrap_or(root).join(&variant);
        anyhow::ensure!(
            arguments.force || !folder.exists(),
            "{}: exists already: expected --force, or another --out",
            folder.display()
        );
        // Servers leave hidden folders out, so a variant that is not complete is not served.
        let new = folder.with_file_name(format!(".{variant}.tmp"));
        let made = make(arguments, kind, &model, &new)
            .and_then(|()| copy_settings(&root.join(name), &new, (name, &variant)))
            .and_then(|()| replace(&new, &folder));
        if made.is_err() {
            let _ = fs::remove_dir_all(&new);
        }
        made?;
        output::line(&format!("{variant}: written to {}", folder.display()));
    }
    output::line("Measure their quality with `tessera variants measure` before a family uses them.");
    Ok(ExitCode::SUCCESS)
}

fn make(arguments: &MakeArgs, kind: &str, model: &Path, folder: &Path) -> anyhow::Result<()> {
    let version = folder.join("1");
    fs::create_dir_all(&version).with_context(|| format!("cannot make {}", version.display()))?;
    let written = version.join("model.onnx");
    let python = &arguments.python;
    let mut child = Command::new(python)
        .arg("-")
        .args([kind.as_ref(), model.as_os_str(), written.as_os_str()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("--python: cannot run {}", python.display()))?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(SCRIPT.as_bytes()).context("cannot write to Python")?;
    }
    let ended = child.wait_with_output().context("cannot wait for Python")?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    anyhow::bail!("{kind}: {}", said.lines().last().unwrap_or("Python failed"))
}

fn replace(new: &Path, folder: &Path) -> anyhow::Result<()> {
    let shown = || format!("cannot write {}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(shown)?;
    }
    fs::rename(new, folder).with_context(shown)
}

/// The settings of the model, under the name of the variant.
fn copy_settings(from: &Path, to: &Path, (name, variant): (&str, &str)) -> anyhow::Result<()> {
    let settings = from.join("config.pbtxt");
    if !settings.is_file() {
        return Ok(());
    }
    let text = fs::read_to_string(&settings).with_context(|| settings.display().to_string())?;
    let renamed = text.replace(&format!("name: \"{name}\""), &format!("name: \"{variant}\""));
    fs::write(to.join("config.pbtxt"), renamed).context("cannot write config.pbtxt")
}
